"""The work messages: which dispatch of which run lies on which queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ...topics.bus import Bus
from ...topics.messages import Work
from .stream import Moment, messages

_decode = msgspec.json.Decoder(Work).decode


class Message(NamedTuple):
    """A work message of one run."""

    queue: str
    dispatch: int
    sequence: int


class WorkQueue:
    """The stream WORK at one moment: a message is there until it is acknowledged."""

    def __init__(self) -> None:
        self._one: dict[str, Message] = {}
        self._more: dict[str, list[Message]] = {}

    @classmethod
    async def read(cls, bus: Bus) -> WorkQueue:
        """Reads it whole; what is no work message is left to the workers, who set it aside."""
        found = cls()
        subjects = bus.subjects
        moment = await Moment.of(bus, subjects.work_stream)
        async for page in messages(bus, subjects.work_stream, f"{subjects.work}.>", moment.last):
            for stored in page:
                try:
                    work = _decode(stored.data)
                except (msgspec.MsgspecError, RecursionError):
                    continue
                queue = stored.subject[len(subjects.work) + 1 :]
                found.add(work.run, Message(queue, work.dispatch, stored.sequence))
        return found

    def add(self, run: str, message: Message) -> None:
        """Takes a message in."""
        if run in self._one:
            self._more.setdefault(run, []).append(message)
        else:
            self._one[run] = message

    def of(self, run: str) -> Iterator[Message]:
        """The messages of a run."""
        if run in self._one:
            yield self._one[run]
            yield from self._more.get(run, ())
