"""Runs whose time is over: a deadline that has passed, a wait for a worker that took too long.

    queued | running | waiting | input_required ─ deadline ─→ (cancel_requested →) timed_out
    queued ─ no worker has taken it in time ────────────────→ (cancel_requested →) timed_out

What was begun is stopped as by a cancel of the tree; the runs below are canceled. Nothing is undone: as with a run that
has failed, what its effects have done stays and is listed.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from ...topics.messages import CancelOrder, ErrorInfo, RunRecord, Status
from .canceling import cancel
from .decision import STALE, Decision
from .run_commands import Cancel, Deadline, Starved

_ORDER = CancelOrder(action="timeout", scope="tree")


def waits_for_worker(record: RunRecord) -> bool:
    """Whether a work message of the run is, or is to be, where a worker finds it."""
    held = record.turn is not None and record.turn.held
    return record.status is Status.QUEUED and record.wake_at is None and not held


def overdue(record: RunRecord, moment: datetime) -> Deadline | Starved | None:
    """What a timer should have said by that moment."""
    if record.terminal or record.status is Status.CANCEL_REQUESTED:
        return None
    if record.deadline_at is not None and record.deadline_at < moment:
        return Deadline()
    if waits_for_worker(record) and record.wait_until is not None and record.wait_until < moment:
        return Starved(record.dispatch)
    return None


def decide(record: RunRecord, command: Deadline | Starved, now: datetime) -> Decision:
    """What becomes of a run when a clock says that its time is over."""
    match command:
        case Deadline():
            return _deadline(record, now)
        case Starved():
            return _starved(record, command, now)


def _deadline(record: RunRecord, now: datetime) -> Decision:
    """A run that is being ended by somebody's wish already ends so."""
    if record.terminal or record.deadline_at is None or record.status is Status.CANCEL_REQUESTED:
        return STALE
    limit_s = (record.deadline_at - record.created_at).total_seconds()
    return _timed_out(record, now, "deadline_exceeded", f"it had not ended {limit_s:g} s after its creation")


def _starved(record: RunRecord, command: Starved, now: datetime) -> Decision:
    if not waits_for_worker(record) or record.wait_until is None or record.dispatch != command.dispatch:
        return STALE
    message = f"no worker of agent {record.agent!r} has taken it within {record.wait_timeout_s or 0:g} s"
    return _timed_out(record, now, "no_worker_in_time", message)


def _timed_out(record: RunRecord, now: datetime, code: str, message: str) -> Decision:
    decision = cancel(record, Cancel(message, _ORDER), now)
    if decision.record is None:
        return decision
    return Decision(decision.verdict, replace(decision.record, error=ErrorInfo(code=code, message=message)))
