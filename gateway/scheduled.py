"""Schedules as they go in and out over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from ..store.schedules import Outlook
from ..topics.messages import Policy, RunRecord, Status
from ..topics.schedules import NAME_CHARS, Schedule
from . import translate
from .models import Asked, BlobRefOut, Model, Token
from .moments import LONGEST_S, Moment

ScheduleName = Annotated[
    str, StringConstraints(min_length=1, max_length=NAME_CHARS, pattern=r"^[^\s.*>/\\@\x00-\x20\x7f]+$")
]


class SchedulePut(Asked):
    """When which task is given: one of `cron`, `every_s`, `at`, and one of `agent`, `topic`."""

    cron: Annotated[str, Field(max_length=200)] | None = None
    """`second minute hour day-of-month month day-of-week`, or `@daily` and the like."""
    zone: Annotated[str, Field(max_length=60)] = "UTC"
    """Time zone of the cron expression."""
    every_s: Annotated[float, Field(ge=1, le=LONGEST_S)] | None = None
    at: Moment | None = None
    agent: Token | None = None
    topic: Token | None = None
    input: Any = None
    thread: Token | None = None
    policy: Policy | None = None
    metadata: dict[str, Any] | None = None
    missed: Literal["once", "skip"] = "once"
    """What becomes of times that passed while nothing could fire: one run for all of them, or none."""
    paused: bool = False


class ScheduleCreate(SchedulePut):
    """A schedule that is not there yet."""

    name: ScheduleName


class LastRun(Model):
    """The newest run that a schedule gave."""

    run: str
    status: Status
    scheduled_for: str | None = None


class ScheduleOut(Model):
    """A schedule, when it fires next, and what it gave last."""

    name: str
    spec: str
    """When it fires, for people."""
    cron: str | None = None
    zone: str = "UTC"
    every_s: float | None = None
    at: datetime | None = None
    agent: str | None = None
    topic: str | None = None
    input: Any = None
    input_ref: BlobRefOut | None = None
    thread: str | None = None
    policy: Policy | None = None
    metadata: dict[str, Any] | None = None
    missed: Literal["once", "skip"]
    paused: bool
    created_at: datetime
    since: datetime
    """Only times after this count: when it was defined, or last resumed."""
    next: datetime | None
    """Null: paused, or over."""
    last: LastRun | None


class ScheduleList(Model):
    """All schedules by name."""

    schedules: list[ScheduleOut]


def shown(schedule: Schedule, outlook: Outlook) -> ScheduleOut:
    """A schedule as it goes out; its token stays inside."""
    return ScheduleOut(
        name=schedule.name, spec=schedule.spec, cron=schedule.cron, zone=schedule.zone, every_s=schedule.every_s,
        at=schedule.at, agent=schedule.agent, topic=schedule.topic,
        input=translate.value(schedule.input), input_ref=translate.ref(schedule.input),
        thread=schedule.thread, policy=schedule.policy, metadata=schedule.metadata, missed=schedule.missed,
        paused=schedule.paused,
        created_at=schedule.created_at, since=schedule.since, next=outlook.next, last=_last(outlook.last),
    )  # fmt: skip


def _last(record: RunRecord | None) -> LastRun | None:
    if record is None:
        return None
    due = (record.metadata or {}).get("scheduled_for")
    return LastRun(run=record.id, status=record.status, scheduled_for=due if isinstance(due, str) else None)
