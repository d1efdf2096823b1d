"""Schedules: tasks that the broker gives again and again, or once at a given time.

The definition is durable before its timers are; whoever dies in between, the coordinators' watch arms what is missing.
Times are the broker's: the clock of the process that defines a schedule, and those of the coordinators, are not asked.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from ..topics import reads
from ..topics.bus import Bus, fence
from ..topics.errors import Conflict, InvalidInput, InvalidMessage, NotFound, StaleFence
from ..topics.ids import new_token
from ..topics.messages import VERSION, Payload, Policy, RunRecord, encode
from ..topics.reads import Stored
from ..topics.schedules import Fire, Schedule, due_after, due_by, due_ms, require_valid
from ..topics.units import schedule_at
from .blobs import Blobs
from .log import EventLog
from .unread import leave_out

log = logging.getLogger(__name__)

AHEAD_S = 12.0
"""How far ahead the due times of a schedule have their timers, in seconds: at least the next one, whatever its
distance. A process that dies with a fire in its hands leaves the others in the broker's."""
_AHEAD_MOST = 12
_METADATA_PART = 0.5
_LAST_TRIES = 5
_KEPT = {"Nats-TTL": "never"}
"""A definition outlives the retention of the log."""

_decode = msgspec.json.Decoder(Schedule).decode


class Found(NamedTuple):
    """A definition and the stream sequence it has."""

    schedule: Schedule
    sequence: int


class Outlook(NamedTuple):
    """What is known of a schedule's times."""

    next: datetime | None
    """None: paused, or over."""
    last: RunRecord | None
    """The newest run that it gave, among the last few due times."""


class Schedules:
    """Defines, reads, pauses and removes schedules."""

    def __init__(self, bus: Bus, blobs: Blobs | None = None) -> None:
        self._bus, self._blobs = bus, blobs or Blobs(bus)
        self._stream, self._subjects = bus.subjects.events, bus.subjects
        self._log = EventLog(bus)

    # -- define -------------------------------------------------------------------------------------------------

    async def put(
        self,
        name: str,
        value: bytes = b"null",
        *,
        cron: str | None = None,
        zone: str = "UTC",
        every_s: float | None = None,
        at: datetime | None = None,
        topic: str | None = None,
        agent: str | None = None,
        thread: str | None = None,
        policy: Policy | None = None,
        metadata: dict[str, Any] | None = None,
        missed: Literal["once", "skip"] = "once",
        paused: bool = False,
        overwrite: bool = True,
    ) -> Schedule:
        """Defines a schedule; `value` is the input as JSON, of any size. It begins to fire after this moment.

        One that has this name is replaced, with all of its timers; with `overwrite=False` that is a Conflict. Raises
        InvalidInput for what cannot be, before anything is stored; Conflict when somebody else wrote it meanwhile;
        Unavailable, StorageFull."""
        now = await self.now()
        if at is not None and at.tzinfo is not None and 1 < at.year < 9999:
            at = datetime.fromtimestamp(due_ms(at) / 1000, UTC)  # due times have milliseconds
        schedule = Schedule(
            name=name, token=new_token(), created_at=now, since=now, input=Payload(json=msgspec.Raw(b"null")),
            cron=cron, zone=zone, every_s=every_s, at=at, topic=topic, agent=agent, thread=thread, policy=policy,
            metadata=metadata or None, missed=missed, paused=paused,
        )  # fmt: skip
        require_valid(schedule)
        self._require_small(metadata)
        known = await self._stored(name)
        if known is not None and not overwrite:
            raise Conflict(f"there is a schedule {name!r} already: replace it, or remove it first", schedule=name)
        schedule = replace(schedule, input=await self._blobs.payload(value))
        await self._write(schedule, known.sequence if known else 0)
        if known is not None:
            await self._disarm(name)
        await self.arm(schedule, now)
        return schedule

    def _require_small(self, metadata: dict[str, Any] | None) -> None:
        limit = int(self._bus.inline_limit * _METADATA_PART)
        size = len(encode(metadata)) if metadata else 0
        if size > limit:
            raise InvalidInput(f"metadata has {size} bytes, at most {limit} fit: put large values into the input")

    async def pause(self, name: str) -> Schedule:
        """Stops it from firing until it is resumed. Idempotent. Raises NotFound, Conflict."""
        found = await self.require(name)
        schedule = found.schedule
        if not schedule.paused:
            schedule = replace(schedule, paused=True)
            await self._write(schedule, found.sequence)
        await self._disarm(name)
        return schedule

    async def resume(self, name: str) -> Schedule:
        """Lets it fire again, from now on: what was due meanwhile is not made up. Idempotent. Raises NotFound,
        Conflict."""
        found = await self.require(name)
        schedule, now = found.schedule, await self.now()
        if schedule.paused:
            schedule = replace(schedule, paused=False, since=now)
            await self._write(schedule, found.sequence)
        await self.arm(schedule, now)
        return schedule

    async def remove(self, name: str) -> None:
        """Removes it, with its timers; the runs that it gave stay. Raises NotFound."""
        await self._stored_or_raise(name)
        await self._bus.api(f"STREAM.PURGE.{self._stream}", {"filter": self._subjects.schedule(name)})
        await self._disarm(name)

    async def _write(self, schedule: Schedule, after: int) -> None:
        subject = self._subjects.schedule(schedule.name)
        try:
            await self._bus.store(subject, encode(schedule), fence(after, extra=_KEPT))
        except StaleFence as error:
            now = await self._stored(schedule.name)  # the first try of a repeated write may have been stored
            if now is None or now.data != encode(schedule):
                raise Conflict(
                    f"schedule {schedule.name!r} was changed by somebody else at the same time: look, and try again",
                    schedule=schedule.name,
                ) from error

    # -- timers -------------------------------------------------------------------------------------------------

    async def now(self) -> datetime:
        """The broker's clock."""
        info = await self._bus.api(f"STREAM.INFO.{self._subjects.inbox}")
        assert info is not None
        return datetime.fromisoformat(_micros(info["ts"]))

    async def arm(self, schedule: Schedule, after: datetime) -> None:
        """Sees to it that the due times that follow `after` have their timers. Any number of times, by anybody: a due
        time has one timer, and fires that come again find the run that is there."""
        due = None if schedule.paused else due_after(schedule, after)
        horizon = due + timedelta(seconds=AHEAD_S) if due is not None else after
        for _ in range(_AHEAD_MOST):
            if due is None or due > horizon:
                return
            await self.arm_at(schedule, due)
            due = due_after(schedule, due)

    async def arm_at(self, schedule: Schedule, due: datetime) -> None:
        """The timer of one due time; when that has passed, it fires at once."""
        head = {
            "Nats-Schedule": schedule_at(due),
            "Nats-Schedule-Target": self._subjects.fires,
        }
        body = encode(Fire(schedule.name, schedule.token, due))
        subject = self._subjects.schedule_timer(schedule.name, str(due_ms(due)))
        try:
            await self._bus.store(subject, body, fence(0, extra=head))
        except StaleFence:
            log.debug("%s has its timer", subject)

    async def is_armed(self, schedule: Schedule, after: datetime) -> bool:
        """Whether the due time that follows `after` has its timer, or there is no such time."""
        due = due_after(schedule, after)
        if due is None:
            return True
        subject = self._subjects.schedule_timer(schedule.name, str(due_ms(due)))
        return await reads.last_from_leader(self._bus, self._subjects.inbox, subject) is not None

    async def _disarm(self, name: str) -> None:
        await self._bus.api(f"STREAM.PURGE.{self._subjects.inbox}", {"filter": self._subjects.schedule_timer(name)})

    async def armed(self) -> set[str]:
        """The names of the schedules that have a timer."""
        prefix = f"{self._subjects.timer}.@schedule."
        names: set[str] = set()
        offset = 0
        while True:
            body = {"subjects_filter": f"{prefix}>", "offset": offset}
            info = await self._bus.api(f"STREAM.INFO.{self._subjects.inbox}", body)
            subjects = (info or {}).get("state", {}).get("subjects") or {}
            names |= {subject[len(prefix) :].partition(".")[0] for subject in subjects}
            offset += len(subjects)
            if not subjects or offset >= int((info or {}).get("total", 0)):
                return names

    # -- read ---------------------------------------------------------------------------------------------------

    async def get(self, name: str) -> Schedule:
        """One definition. Raises NotFound."""
        return (await self.require(name)).schedule

    async def require(self, name: str) -> Found:
        """The definition as the stream's leader knows it. Raises NotFound, InvalidMessage for what cannot be read."""
        stored = await self._stored_or_raise(name)
        schedule = _read(stored)
        if schedule is None:
            raise InvalidMessage(f"the definition of schedule {name!r} cannot be read: replace or remove it")
        return Found(schedule, stored.sequence)

    async def all(self) -> list[Schedule]:
        """All definitions by name; what cannot be read as one is left out with a warning."""
        found = await reads.many_last(self._bus, self._stream, [f"{self._subjects.schedules}.*"])
        schedules = (_read(stored) for stored in found.values())
        return sorted((one for one in schedules if one is not None), key=lambda one: one.name)

    async def outlook(self, schedule: Schedule, now: datetime | None = None) -> Outlook:
        """When it fires next, and the newest run that it gave. `now` is the broker's, asked for when not given."""
        now = now or await self.now()
        upcoming = None if schedule.paused else due_after(schedule, now)
        return Outlook(upcoming, await self._last(schedule, now))

    async def _last(self, schedule: Schedule, now: datetime) -> RunRecord | None:
        since_ever = replace(schedule, since=schedule.created_at)
        due, wanted = due_by(since_ever, now), list[str]()
        while due is not None and len(wanted) < _LAST_TRIES:
            wanted.append(schedule.run_at(due))
            due = due_by(since_ever, due - timedelta(milliseconds=1))
        found = await self._log.load_many(wanted) if wanted else {}
        return next((found[run] for run in wanted if run in found), None)

    async def _stored(self, name: str) -> Stored | None:
        return await reads.last_from_leader(self._bus, self._stream, self._subjects.schedule(name))

    async def _stored_or_raise(self, name: str) -> Stored:
        stored = await self._stored(name)
        if stored is None:
            raise NotFound(f"there is no schedule {name!r}", schedule=name)
        return stored


def _micros(stamp: str) -> str:
    """A stamp with nanoseconds as Python reads it."""
    whole, dot, rest = stamp.partition(".")
    return f"{whole}.{rest.rstrip('Z')[:6].ljust(6, '0')}+00:00" if dot else stamp.replace("Z", "+00:00")


def _read(stored: Stored) -> Schedule | None:
    try:
        schedule = _decode(stored.data)
        if schedule.v > VERSION:
            raise InvalidMessage(f"written by a newer Callboard (wire version {schedule.v}): upgrade")
        if schedule.name != stored.kind:
            raise InvalidMessage(f"it defines another schedule, {schedule.name!r}")
    except (msgspec.MsgspecError, UnicodeDecodeError, InvalidMessage) as error:
        leave_out(log, stored, f"it is not a schedule: {error}")
        return None
    return schedule
