"""What was said to a run: `cb.run.{root}.{run}.said`, read from that part of its log alone."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

import msgspec

from ..topics import reads
from ..topics.bus import Bus
from ..topics.errors import Unavailable
from ..topics.messages import Word

log = logging.getLogger(__name__)

_decode = msgspec.json.Decoder(Word).decode
_LAG_S = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0)


class Spoken(NamedTuple):
    """A word, and the stream sequence under which it stands."""

    sequence: int
    word: Word


class Words:
    """Reads what was said."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def of(self, run: str, until: int = 0, after: int = 0) -> list[Spoken]:
        """All that was said to the run after sequence `after`, in order, each key once. Without `until`, which is the
        sequence of a word that must be in, the leader is asked for the newest. Raises Unavailable."""
        subject = self._bus.subjects.event(run, "said")
        if not until:
            newest = await reads.last_from_leader(self._bus, self._bus.subjects.events, subject)
            if newest is None or newest.sequence <= after:
                return []
            until = newest.sequence
        for pause in (*_LAG_S, None):
            found = await self._read(subject, after)
            if found and found[-1].sequence >= until:
                return _once(found)
            if pause is not None:
                await asyncio.sleep(pause)
        raise Unavailable(f"what was said to run {run} is not all there: the replicas are behind", run=run)

    async def _read(self, subject: str, after: int) -> list[Spoken]:
        found = []
        async for page in reads.read(self._bus, self._bus.subjects.events, subject, after):
            for stored in page:
                try:
                    found.append(Spoken(stored.sequence, _decode(stored.data)))
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    log.warning("message %d on %s cannot be read: %s", stored.sequence, stored.subject, error)
        return found


def _once(found: list[Spoken]) -> list[Spoken]:
    """Without what was said again: two coordinators may have written one message at the same time."""
    seen: set[tuple[str, bool]] = set()
    fresh = []
    for one in found:
        mark = (one.word.key, one.word.answer is not None)
        if mark not in seen:
            seen.add(mark)
            fresh.append(one)
    return fresh
