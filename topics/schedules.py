"""What a schedule is: its definition, its due times, and the message that its timers send.

`cb.schedule.{name}` in EVENTS holds the definition (`Schedule`), and the last one is the truth. For each of the next
due times there is a message schedule of the broker's on `cb.timer.@schedule.{name}.{due}`, which sends a `Fire` to
`cb.task.@schedule` when that time has come. A due time of a definition gives one run, whose id follows from both.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct

from .cron import Cron
from .errors import InvalidInput
from .ids import RunId, derived_run_id
from .messages import POLICIES, VERSION, Payload, Policy
from .subjects import require_token
from .units import LAST_YEAR, LONGEST_S

NAME_CHARS = 64
_PAST = (timedelta(seconds=2), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1), timedelta(days=32))
_DAY = timedelta(days=1)


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cb.schedule.{name}`: when which task is given.

    Exactly one of `cron`, `every_s` and `at` is set, and one of `topic` and `agent`."""

    name: str
    token: str
    """Random, new at each replacement: timers of an older definition are told by it, and run ids follow from it."""
    created_at: datetime
    """By the broker's clock; the times of `every_s` count from here."""
    since: datetime
    """Only due times after this moment count: when it was defined, or last resumed."""
    input: Payload
    cron: str | None = None
    zone: str = "UTC"
    """Time zone of `cron`."""
    every_s: float | None = None
    """Seconds, at least 1."""
    at: datetime | None = None
    topic: str | None = None
    agent: str | None = None
    thread: str | None = None
    policy: Policy | None = None
    """What its runs do when another one is at work in the thread."""
    metadata: dict[str, Any] | None = None
    missed: Literal["once", "skip"] = "once"
    """What becomes of due times that passed while nothing could fire: one run for all of them, or none."""
    paused: bool = False
    v: int = VERSION

    @property
    def spec(self) -> str:
        """When it fires, for people."""
        if self.cron is not None:
            return f"cron {self.cron}" + (f" ({self.zone})" if self.zone != "UTC" else "")
        if self.every_s is not None:
            return f"every {self.every_s:g} s"
        return f"at {self.at:%Y-%m-%d %H:%M:%S} UTC" if self.at is not None else "never"

    def run_at(self, due: datetime) -> RunId:
        """The id of the run of this due time."""
        stamp = due_ms(due)
        return derived_run_id(self.token, stamp, "schedule", self.name, str(stamp))


class Fire(Struct, frozen=True):
    """`cb.task.@schedule`: a due time of a schedule has come."""

    name: str
    token: str
    due: datetime


def due_ms(due: datetime) -> int:
    """Unix milliseconds: a due time as it stands in subjects and ids."""
    return round(due.timestamp() * 1000)


@lru_cache(maxsize=512)
def _cron(text: str, zone: str) -> Cron:
    return Cron(text, zone)


def _require_place(thread: str | None, policy: str | None) -> None:
    if thread is not None:
        require_token("thread", thread)
    elif policy is not None:
        raise InvalidInput(f"policy {policy!r} says what to do in a busy thread: name the thread as well")
    if policy is not None and policy not in POLICIES:
        raise InvalidInput(f"{policy!r} is no policy: use one of {', '.join(POLICIES)}")


def require_valid(schedule: Schedule) -> None:
    """Raises InvalidInput (InvalidSubject for a name), which says what cannot be and what may."""
    require_token("schedule", schedule.name)
    if len(schedule.name) > NAME_CHARS:
        raise InvalidInput(f"the name of a schedule has at most {NAME_CHARS} characters, not {len(schedule.name)}")
    if sum(one is not None for one in (schedule.cron, schedule.every_s, schedule.at)) != 1:
        raise InvalidInput("a schedule has exactly one of: a cron expression, an interval, a time")
    if bool(schedule.topic) == bool(schedule.agent):
        raise InvalidInput("a schedule names either an agent or a topic: set exactly one of the two")
    require_token("agent" if schedule.agent else "topic", schedule.agent or schedule.topic or "")
    _require_place(schedule.thread, schedule.policy)
    if schedule.cron is not None:
        _cron(schedule.cron, schedule.zone)
    if schedule.every_s is not None and not 1 <= schedule.every_s <= LONGEST_S:
        raise InvalidInput(f"an interval is 1 second to 10 years, not {schedule.every_s:g} s")
    if schedule.at is not None and schedule.at.tzinfo is None:
        raise InvalidInput(f"{schedule.at.isoformat()} has no time zone: add Z or an offset such as +02:00")
    if schedule.at is not None and schedule.at.year > LAST_YEAR:
        raise InvalidInput(f"{schedule.at.isoformat()} is beyond the calendar: give a time up to {LAST_YEAR}")
    if schedule.at is not None and schedule.at <= schedule.since:
        raise InvalidInput(f"{schedule.at.isoformat()} lies in the past: give a time to come")


def due_after(schedule: Schedule, moment: datetime) -> datetime | None:
    """The first due time after `moment` (and after `since`), in UTC; None when there is none. Pauses are not looked
    at."""
    moment = max(moment, schedule.since)
    if schedule.at is not None:
        return schedule.at.astimezone(UTC) if schedule.at > moment else None
    try:
        if schedule.every_s is not None:
            step_ms, start_ms = round(schedule.every_s * 1000), due_ms(schedule.created_at)
            passed = max(0, (int(moment.timestamp() * 1000) - start_ms) // step_ms)
            return datetime.fromtimestamp((start_ms + (passed + 1) * step_ms) / 1000, UTC)
        return None if schedule.cron is None else _cron(schedule.cron, schedule.zone).following(moment)
    except (OverflowError, ValueError):
        return None  # beyond the calendar


def due_by(schedule: Schedule, moment: datetime) -> datetime | None:
    """The newest due time that is not after `moment`, if it is one after `since` and at most 32 days back."""
    for reach in _PAST:
        found = due_after(schedule, moment - reach)
        if found is None or found > moment:
            continue
        while (later := due_after(schedule, found)) is not None and later <= moment:
            found = later
        return found
    return None
