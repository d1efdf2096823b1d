"""The life of a run as a pure function: `decide(record, command, now) → Decision`. Needs no broker and no clock.

    queued → running → completed
       ↑        ├→ waiting (children, timer) → queued
       │        ├→ cancel_requested → canceled
       ├────────┤ retry, hand-over, loss of the worker
       │        ├→ failed (retries used up, or not retryable)
       │        └→ timed_out

Every command may arrive twice, late or out of order: a command that was applied before, or whose attempt is over,
changes nothing. What the outside owes a run (a work message, a timer, a look at its children, a word to its parent)
follows from its record alone: see `effects.owed`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple, assert_never

from msgspec.structs import replace

from ...topics.messages import CancelOrder, ErrorInfo, Outcome, RetryPolicy, RunRecord, Status
from .run_commands import (
    Cancel,
    CancelDeadline,
    Claim,
    Due,
    End,
    Lost,
    Redispatch,
    RunCommand,
    Settled,
    Verdict,
    Wake,
)

MAX_LOSSES = 5
"""A run whose process died this often without a suspension in between is taken for the cause of it."""

_LONGEST_DELAY_S = 366 * 86_400.0

_ENDED_BY_WISH = frozenset({Status.CANCEL_REQUESTED, Status.CANCELED, Status.INTERRUPTED, Status.ROLLED_BACK})

LEGAL: dict[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.QUEUED, Status.RUNNING, Status.FAILED}) | _ENDED_BY_WISH,
    Status.RUNNING: frozenset(
        {
            Status.RUNNING, Status.QUEUED, Status.WAITING, Status.INPUT_REQUIRED, Status.CANCEL_REQUESTED,
            Status.COMPLETED, Status.FAILED, Status.TIMED_OUT,
        }
    ),
    Status.WAITING: frozenset({Status.QUEUED, Status.FAILED}) | _ENDED_BY_WISH,
    Status.INPUT_REQUIRED: frozenset({Status.QUEUED, Status.FAILED}) | _ENDED_BY_WISH,
    Status.CANCEL_REQUESTED: frozenset(
        {Status.CANCEL_REQUESTED, Status.CANCELED, Status.INTERRUPTED, Status.ROLLED_BACK, Status.ORPHANED}
    ),
}  # fmt: skip
"""Which status may follow which; a terminal status has no successor. A run begins as queued."""


class Decision(NamedTuple):
    """What becomes of a command: the next record (`changed`), or why there is none.

    `applied`: it was carried out before; `stale`: it belongs to something that is over; `later`: it may be early;
    `refused`: the status does not allow it."""

    verdict: Verdict
    record: RunRecord | None = None


APPLIED, STALE, LATER, REFUSED = Decision("applied"), Decision("stale"), Decision("later"), Decision("refused")


def decide(record: RunRecord, command: RunCommand, now: datetime) -> Decision:
    """The next record of a run, or why it stays as it is. Pure: same arguments, same answer."""
    match command:
        case Claim():
            return _claim(record, command, now)
        case End():
            return _end(record, command, now)
        case Cancel():
            return _cancel(record, command, now)
        case CancelDeadline():
            return _cancel_deadline(record, command, now)
        case Settled():
            return _settled(record, command, now)
        case Lost():
            return _lost(record, command, now)
        case Wake():
            return _wake(record, command, now)
        case Due():
            return _due(record, command, now)
        case Redispatch():
            return _redispatch(record, command, now)
        case _:
            assert_never(command)


def _next(record: RunRecord, now: datetime, status: Status, **changes: object) -> Decision:
    return Decision("changed", replace(record, status=status, rev=record.rev + 1, updated_at=now, **changes))


def _finish(record: RunRecord, now: datetime, status: Status, **changes: object) -> Decision:
    return _next(record, now, status, ended_at=now, waits=None, wake_at=None, worker=None, lease=0, **changes)


def _queue(record: RunRecord, now: datetime, reason: str | None, **changes: object) -> Decision:
    """Back to the queue, to be dispatched at once."""
    return _next(
        record,
        now,
        Status.QUEUED,
        dispatch=record.dispatch + 1,
        reason=reason,
        waits=None,
        wake_at=None,
        worker=None,
        lease=0,
        **changes,
    )


# -- claim ------------------------------------------------------------------------------------------------------


def _claim(record: RunRecord, claim: Claim, now: datetime) -> Decision:
    if record.terminal or claim.dispatch < record.dispatch or (claim.queue and claim.queue != record.agent):
        return STALE
    if claim.dispatch > record.dispatch:
        return LATER
    if record.status is Status.QUEUED:
        return STALE if record.wake_at is not None else _begin(record, claim, now, record.losses)
    if record.status not in (Status.RUNNING, Status.CANCEL_REQUESTED) or record.lease != claim.lease:
        return STALE
    if claim.delivery <= record.delivery:
        same = record.worker == claim.worker and record.status is Status.RUNNING
        return APPLIED if same else STALE
    if record.status is Status.CANCEL_REQUESTED:
        return _stopped(record, now, why="its worker was lost")
    if record.worker == claim.worker:  # alive, but it never got the grant, or lost its lease: no process has died
        return _begin(record, claim, now, record.losses)
    if record.losses + 1 >= MAX_LOSSES:
        return _poisoned(record, now)
    return _begin(record, claim, now, record.losses + 1)


def _begin(record: RunRecord, claim: Claim, now: datetime, losses: int) -> Decision:
    agent = claim.agent
    return _next(
        record,
        now,
        Status.RUNNING,
        attempt=record.attempt + 1,
        losses=losses,
        reason=None,
        worker=claim.worker,
        lease=claim.lease,
        delivery=claim.delivery,
        started_at=record.started_at or now,
        retry=agent.retry if agent else record.retry,
        timeout_s=agent.timeout_s if agent else record.timeout_s,
    )


def _poisoned(record: RunRecord, now: datetime) -> Decision:
    error = ErrorInfo(
        code="worker_lost",
        message=f"the process that carried this run out died {record.losses + 1} times in a row; "
        "the run is parked as failed",
    )
    return _finish(record, now, Status.FAILED, losses=record.losses + 1, error=error, reason="poison: kills its worker")


# -- end of an attempt ------------------------------------------------------------------------------------------


def _end(record: RunRecord, end: End, now: datetime) -> Decision:
    outcome = end.outcome
    if outcome.attempt != record.attempt or record.status not in (Status.RUNNING, Status.CANCEL_REQUESTED):
        return APPLIED if _tells_of(record, outcome) else STALE
    if record.status is Status.CANCEL_REQUESTED:
        return STALE if record.worker is None else _stopped(record, now, steps=outcome.steps)
    match outcome.kind:
        case "completed":
            return _finish(
                record, now, Status.COMPLETED, result=outcome.value, steps=outcome.steps, error=None, reason=None
            )
        case "failed" | "timed_out":
            return _fail(record, end, now)
        case "suspended" if not outcome.waits and outcome.wake_at is None:
            return _queue(record, now, "has nothing to wait for", steps=outcome.steps)
        case "suspended":
            return _next(
                record,
                now,
                Status.WAITING,
                waits=outcome.waits,
                wake_at=outcome.wake_at,
                steps=outcome.steps,
                failures=0,
                losses=0,
                worker=None,
                lease=0,
                reason=_waiting_for(outcome),
            )
        case "released" | "stopped":
            return _queue(record, now, "handed back by its worker", steps=outcome.steps)
        case _:
            assert_never(outcome.kind)


def _tells_of(record: RunRecord, outcome: Outcome) -> bool:
    """Whether the record is what this outcome, applied before, has led to."""
    if outcome.attempt != record.attempt:
        return False
    match outcome.kind:
        case "completed":
            return record.status is Status.COMPLETED
        case "suspended":
            return record.status is Status.WAITING
        case "failed" | "timed_out":
            return record.status in (Status.FAILED, Status.TIMED_OUT) or record.failures > 0
        case _:
            return record.status is Status.QUEUED or record.cancel is not None


def _waiting_for(outcome: Outcome) -> str:
    children = len({child for group in outcome.waits or () for child in group})
    parts = [f"{children} child run{'s' if children != 1 else ''}"] if children else []
    if outcome.wake_at is not None:
        parts.append(f"the clock ({outcome.wake_at:%Y-%m-%d %H:%M:%S} UTC)")
    return f"waits for {' or '.join(parts) or 'nothing'}"


def retry_delay_s(policy: RetryPolicy, failures: int, jitter: float) -> float:
    """Seconds before the attempt after the `failures`-th failure: exponential, capped, the last part random.

    Of 0 to a year, whatever the policy says: it comes from a registration that anybody may have written."""
    try:
        full = min(policy.maximum, policy.initial * policy.factor ** min(failures - 1, 64))
    except OverflowError:
        full = policy.maximum
    delay = min(full, _LONGEST_DELAY_S) * (1 - min(1.0, max(0.0, policy.jitter)) * jitter)
    return delay if delay > 0 else 0.0  # also for what is not a number


def _fail(record: RunRecord, end: End, now: datetime) -> Decision:
    outcome, policy = end.outcome, record.retry or RetryPolicy()
    failures = record.failures + 1
    error = outcome.error or ErrorInfo(code="failed", message="the attempt failed")
    if not error.retryable or failures >= policy.max_attempts:
        status = Status.TIMED_OUT if outcome.kind == "timed_out" else Status.FAILED
        return _finish(
            record, now, status, failures=failures, error=error, steps=outcome.steps, reason=error.message[:300]
        )
    delay = retry_delay_s(policy, failures, end.jitter)
    return _next(
        record,
        now,
        Status.QUEUED,
        failures=failures,
        error=error,
        steps=outcome.steps,
        worker=None,
        lease=0,
        wake_at=now + timedelta(seconds=delay),
        reason=f"attempt {failures} of {policy.max_attempts} failed ({error.code}); again in {delay:.1f} s",
    )


# -- from outside -----------------------------------------------------------------------------------------------


FINAL = {"cancel": Status.CANCELED, "interrupt": Status.INTERRUPTED, "rollback": Status.ROLLED_BACK}
"""How a run ends after each action."""


def _cancel(record: RunRecord, cancel: Cancel, now: datetime) -> Decision:
    if record.terminal:
        return APPLIED if record.cancel is not None else REFUSED
    reason, epoch = cancel.reason or record.reason or FINAL[cancel.order.action], record.epoch + 1
    if record.status is Status.CANCEL_REQUESTED:
        order = _joined(record.cancel or CancelOrder(), cancel.order)
        if order == record.cancel:
            return APPLIED
        return _next(record, now, Status.CANCEL_REQUESTED, epoch=epoch, cancel=order)
    has_children = cancel.order.scope == "tree" and record.attempt > 0
    if record.status is Status.RUNNING or has_children:
        return _next(
            record,
            now,
            Status.CANCEL_REQUESTED,
            epoch=epoch,
            cancel=cancel.order,
            reason=reason,
            waits=None,
            wake_at=None,
        )
    return _finish(record, now, FINAL[cancel.order.action], epoch=epoch, cancel=cancel.order, reason=reason)


def _joined(before: CancelOrder, order: CancelOrder) -> CancelOrder:
    """A second cancel widens the first and never narrows it; the action that undoes more holds."""
    actions = ("cancel", "interrupt", "rollback")
    return CancelOrder(
        action=max(before.action, order.action, key=actions.index),
        scope="tree" if "tree" in (before.scope, order.scope) else before.scope,
        by=before.by,
    )


def _stopped(record: RunRecord, now: datetime, why: str = "", **changes: object) -> Decision:
    """The worker holds the run no more. A tree goes on until all below has ended."""
    order = record.cancel or CancelOrder()
    reason = f"{record.reason}; {why}" if why else record.reason
    if order.scope == "tree":
        return _next(record, now, Status.CANCEL_REQUESTED, worker=None, lease=0, reason=reason, **changes)
    return _finish(record, now, FINAL[order.action], reason=reason, **changes)


def _cancel_deadline(record: RunRecord, command: CancelDeadline, now: datetime) -> Decision:
    if record.status is not Status.CANCEL_REQUESTED or record.epoch != command.epoch or record.worker is None:
        return STALE
    why = "its worker did not confirm and is fenced off"
    if record.cancel is not None and record.cancel.by:
        return _finish(record, now, Status.ORPHANED, reason=f"{record.reason}; {why}")
    return _stopped(record, now, why)


def _settled(record: RunRecord, command: Settled, now: datetime) -> Decision:
    if record.status is not Status.CANCEL_REQUESTED or record.worker is not None or record.epoch != command.epoch:
        return STALE
    return _finish(record, now, FINAL[(record.cancel or CancelOrder()).action])


def _lost(record: RunRecord, lost: Lost, now: datetime) -> Decision:
    if record.worker != lost.worker or (lost.attempt and lost.attempt != record.attempt):
        return STALE
    if record.status is Status.CANCEL_REQUESTED:
        return _stopped(record, now, lost.why)
    if record.status is not Status.RUNNING:
        return STALE
    if record.losses + 1 >= MAX_LOSSES:
        return _poisoned(record, now)
    return _queue(record, now, f"attempt {record.attempt} was lost: {lost.why}", losses=record.losses + 1)


def _wake(record: RunRecord, wake: Wake, now: datetime) -> Decision:
    if record.status is not Status.WAITING:
        return STALE
    return _queue(record, now, wake.reason)


def _due(record: RunRecord, due: Due, now: datetime) -> Decision:
    if record.status is not Status.QUEUED or record.wake_at is None or record.dispatch != due.dispatch:
        return STALE
    return _queue(record, now, "next attempt")


def _redispatch(record: RunRecord, command: Redispatch, now: datetime) -> Decision:
    if record.status is not Status.QUEUED or record.wake_at is not None or record.dispatch != command.dispatch:
        return STALE
    return _queue(record, now, command.reason, agent=command.agent)
