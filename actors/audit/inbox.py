"""The INBOX at one moment: tasks and commands that no coordinator has done yet, and the timers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from ...topics.bus import Bus
from ...topics.ids import derived_run_id, keyed_run_id
from ...topics.messages import Command
from ...topics.pull import consumer_info
from ...topics.reads import Stored
from ...topics.schedules import Fire, due_ms
from ...topics.subjects import INBOX_CONSUMER
from .findings import Suspect, suspect
from .stream import Moment, messages

_decode = msgspec.json.Decoder(Command).decode
_decode_fire = msgspec.json.Decoder(Fire).decode
_NO_COMMAND = Command()
_EPOCH, _MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)


class Scheduled(NamedTuple):
    """What a timer's command will carry."""

    dispatch: int
    epoch: int


class _Waiting:
    """Messages of one kind that wait: how many, and the oldest."""

    def __init__(self) -> None:
        self.count = 0
        self.oldest: Stored | None = None

    def add(self, stored: Stored) -> None:
        self.count += 1
        if self.oldest is None:
            self.oldest = Stored(stored.subject, stored.sequence, b"", None, stored._stamp)  # noqa: SLF001 no body kept


class Inbox:
    """Make it with `await Inbox.read(bus)`."""

    def __init__(self, moment: Moment, consumer: dict[str, Any] | None) -> None:
        self._moment, self._consumer = moment, consumer
        self._tasks: dict[str, _Waiting] = {}
        self._commands = _Waiting()
        self.expected: set[str] = set()
        """Runs that a command or task in the INBOX is about: a coordinator will come to them."""
        self.timers: dict[tuple[str, str], Scheduled] = {}
        """By run and verb."""
        self.fires: set[tuple[str, str]] = set()
        """Due times (Unix milliseconds) of schedules that have their timer, or are being carried out: by name."""
        self.time = moment.time

    @classmethod
    async def read(cls, bus: Bus) -> Inbox:
        """Reads it whole. Raises NotFound without the stream, BrokerError when the broker does not answer."""
        subjects = bus.subjects
        moment = await Moment.of(bus, subjects.inbox)
        found = cls(moment, await consumer_info(bus, subjects.inbox, INBOX_CONSUMER))
        salt = (moment.config.get("metadata") or {}).get(subjects.salt_key, subjects.namespace)
        async for page in messages(bus, subjects.inbox, f"{subjects.namespace}.>", moment.last):
            for stored in page:
                found._add(stored, salt)
        return found

    def _add(self, stored: Stored, salt: str) -> None:
        words = stored.subject.split(".")
        if words[1] == "task":
            self._tasks.setdefault(stored.subject, _Waiting()).add(stored)
            self.expected.add(_run_of(stored, salt))
            if words[2] == "@schedule":
                self._fired(stored)
        elif words[1] == "cmd":
            self._commands.add(stored)
            if len(words) == 4:
                self.expected.add(words[2])
        elif len(words) == 5 and words[2] == "@schedule":
            self.fires.add((words[3], words[4]))
        elif len(words) == 4:
            command = _command(stored.data)
            self.timers[words[2], words[3]] = Scheduled(command.dispatch, command.epoch)

    def _fired(self, stored: Stored) -> None:
        try:
            fire = _decode_fire(stored.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        self.fires.add((fire.name, str(due_ms(fire.due))))

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        return sum(one.count for one in self._tasks.values())

    @property
    def commands(self) -> int:
        """How many commands there are."""
        return self._commands.count

    def late(self, pending_s: float) -> Iterator[Suspect]:
        """Tasks, by topic, and commands of which the oldest waits for longer than `pending_s` seconds."""
        limit = self._moment.time - timedelta(seconds=pending_s)
        for waiting in (*self._tasks.values(), self._commands):
            oldest = waiting.oldest
            if oldest is None or oldest.time > limit:
                continue
            code = "command_pending" if waiting is self._commands else "task_pending"
            age = (self._moment.time - oldest.time).total_seconds()
            found = f"{waiting.count} wait, the oldest on {oldest.subject} for {age:.0f} s; {self._who()}"
            yield suspect(code, None, found, expected=f"at most {pending_s:g} s", sequence=oldest.sequence)

    def _who(self) -> str:
        info = self._consumer
        if info is None:
            return "no coordinator has ever been here"
        return (
            f"coordinators: {info['num_pending']} not delivered, {info['num_ack_pending']} in hand, "
            f"{info['num_redelivered']} delivered again, {info['num_waiting']} requests open"
        )


def _run_of(stored: Stored, salt: str) -> str:
    """The run that a task leads to (the first one, when several agents serve its topic)."""
    headers = stored.headers
    run, key = headers.get("Callboard-Run"), headers.get("Callboard-Key")
    if run:
        return run
    if key:
        return str(keyed_run_id(salt, "key", key))
    return str(derived_run_id(salt, (stored.time - _EPOCH) // _MS, "task", str(stored.sequence)))


def _command(data: bytes) -> Command:
    try:
        return _decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return _NO_COMMAND
