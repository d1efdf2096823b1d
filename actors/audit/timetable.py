"""Schedules: each active one has the timer of its next due time, each due time has led to its run, and to one alone.

A due time that was missed while nobody was there has no run of its own: the newest of those stands for all. So it is
asked whether a run was made for one of the newest due times."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ...topics.bus import Bus
from ...topics.ids import is_derived_at
from ...topics.messages import RunRecord
from ...topics.reads import Stored
from ...topics.schedules import Schedule, due_after, due_by, due_ms
from ...topics.subjects import Subjects
from .findings import Findings, Suspect, suspect
from .inbox import Inbox
from .remedies import fire

_GRACE = timedelta(seconds=15)
"""What is due is late by an election, and by the time that a coordinator takes to see that it was missed."""
_BACK = timedelta(hours=1)
_MOST = 32

_decode = msgspec.json.Decoder(Schedule).decode


class Timetable:
    """Gathers definitions, and the runs that come from them, while the log is read."""

    def __init__(self, subjects: Subjects, findings: Findings, *, truncated: bool) -> None:
        self._subjects, self._findings, self._truncated = subjects, findings, truncated
        self._known: dict[str, tuple[Schedule, int]] = {}
        self._given: set[int] = set()

    def definition(self, stored: Stored) -> None:
        """A schedule, or what nobody can read as one."""
        try:
            schedule = _decode(stored.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._known.pop(stored.kind, None)
            return
        self._known[stored.kind] = schedule, stored.sequence

    def begins(self, record: RunRecord, sequence: int) -> None:
        """The first state of a run. What has a fire's metadata is one only if its id is one: whatever goes on from a
        scheduled run has its metadata as well, and anybody may write the same."""
        marks: dict[str, Any] = record.metadata or {}
        name, due = marks.get("schedule"), marks.get("scheduled_for")
        if name is None or not isinstance(due, str) or not _is_fire(record.id, due):
            return
        mark = hash((str(name), str(due), record.agent, record.topic))
        if record.agent and mark in self._given:
            found = f"agent {record.agent} has a run already for schedule {str(name)[:80]} at {str(due)[:40]}"
            self._findings.add("schedule_doubled", record.id, found, sequence=sequence)
        self._given.add(mark)

    # -- afterwards ---------------------------------------------------------------------------------------------

    async def suspects(
        self, bus: Bus, inbox: Inbox, missing: Callable[[Sequence[str]], AsyncIterator[str]]
    ) -> AsyncIterator[Suspect]:
        """Schedules that stand still. `missing(runs)` gives those of the runs that do not exist."""
        for schedule, sequence in self._known.values():
            if schedule.paused:
                continue
            for one in self._unarmed(schedule, sequence, inbox):
                yield one
            runs = {} if self._truncated else self._newest(schedule, inbox)
            if runs and len([run async for run in missing(list(runs))]) == len(runs):
                run, due = next(iter(runs.items()))
                yield suspect(
                    "schedule_missed", run, f"schedule {schedule.name} was due at {due.isoformat()} and gave no run",
                    sequence=sequence, remedy=fire(bus.subjects, schedule, due),
                )  # fmt: skip

    def _unarmed(self, schedule: Schedule, sequence: int, inbox: Inbox) -> Iterator[Suspect]:
        due = due_after(schedule, inbox.time)
        if due is not None and (schedule.name, str(due_ms(due))) not in inbox.fires:
            yield suspect(
                "schedule_unarmed", None, f"schedule {schedule.name} has no timer for {due.isoformat()}",
                expected=f"a schedule on {self._subjects.schedule_timer(schedule.name, str(due_ms(due)))}",
                sequence=sequence, remedy=fire(self._subjects, schedule, due),
            )  # fmt: skip

    def _newest(self, schedule: Schedule, inbox: Inbox) -> dict[str, datetime]:
        """The runs of the newest due times, the newest first: one of them must be there. None when nothing was due,
        or is still on its way."""
        due, oldest = due_by(schedule, inbox.time), due_by(schedule, inbox.time - _GRACE)
        skips = schedule.missed == "skip" and schedule.at is None
        if due is None or oldest is None or skips or oldest < inbox.time - _BACK:
            return {}
        found: dict[str, datetime] = {}
        while due is not None and due >= oldest and len(found) < _MOST:
            if (schedule.name, str(due_ms(due))) in inbox.fires:
                return {}
            found[schedule.run_at(due)] = due
            due = due_by(schedule, due - timedelta(milliseconds=1))
        return found


def _is_fire(run: str, due: str) -> bool:
    """Whether the id begins with the due time. Of those for further agents of a topic, whose ids follow from that one,
    there are two only if there are two of it."""
    try:
        moment = datetime.fromisoformat(due)
    except ValueError:
        return False
    return moment.tzinfo is not None and is_derived_at(run, due_ms(moment))
