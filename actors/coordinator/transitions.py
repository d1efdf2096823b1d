"""The life of a run as a pure function: `decide(record, command, now) → Decision`. Needs no broker and no clock.

    queued → running → completed
       ↑        ├→ waiting (children, timer) → queued
       ↑        ├→ input_required, auth_required (an interrupt, an unknown effect) → queued
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
from typing import assert_never

from msgspec.structs import replace

from ...store.attention import FAILED_BY_HAND
from ...topics.messages import ASKING, SUSPECT_LOSSES, ErrorInfo, Outcome, RetryPolicy, Ruling, RunRecord, Status
from . import answering, canceling, deadlines, pinning, turns
from .decision import APPLIED, LATER, MAX_LOSSES, REFUSED, STALE, Decision, finished, following, queued
from .run_commands import (
    Cancel,
    CancelDeadline,
    Claim,
    Deadline,
    Due,
    End,
    Escalate,
    Fail,
    InterruptDue,
    Lost,
    Reconcile,
    Redispatch,
    Resume,
    RunCommand,
    Settled,
    Starved,
    TakeTurn,
    Unanswered,
    Unattended,
    Wake,
)

__all__ = ["LEGAL", "MAX_LOSSES", "Decision", "decide"]

_STOPPED = frozenset(
    {Status.CANCEL_REQUESTED, Status.CANCELED, Status.INTERRUPTED, Status.ROLLED_BACK, Status.TIMED_OUT}
)
"""By somebody's wish, or by the clock."""

LEGAL: dict[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.QUEUED, Status.RUNNING, Status.FAILED, Status.REJECTED}) | _STOPPED,
    Status.RUNNING: frozenset(
        {
            Status.RUNNING, Status.QUEUED, Status.WAITING, Status.INPUT_REQUIRED, Status.AUTH_REQUIRED,
            Status.CANCEL_REQUESTED, Status.COMPLETED, Status.FAILED, Status.TIMED_OUT,
        }
    ),
    Status.WAITING: frozenset({Status.QUEUED, Status.FAILED}) | _STOPPED,
    Status.INPUT_REQUIRED: frozenset({Status.QUEUED, Status.INPUT_REQUIRED, Status.FAILED}) | _STOPPED,
    Status.AUTH_REQUIRED: frozenset({Status.QUEUED, Status.AUTH_REQUIRED, Status.FAILED}) | _STOPPED,
    Status.CANCEL_REQUESTED: frozenset(
        _STOPPED | {Status.ORPHANED}
    ),
}  # fmt: skip
"""Which status may follow which; a terminal status has no successor. A run begins as queued."""


def decide(record: RunRecord, command: RunCommand, now: datetime) -> Decision:
    """The next record of a run, or why it stays as it is. Pure: same arguments, same answer."""
    match command:
        case Claim():
            return _claim(record, command, now)
        case End():
            return _end(record, command, now)
        case Cancel() | CancelDeadline() | Settled():
            return canceling.decide(record, command, now)
        case Reconcile() | Fail():
            return _told(record, command, now)
        case Resume() | InterruptDue() | Escalate() | Unanswered():
            return answering.decide(record, command, now)
        case Lost() | Wake() | Due() | Redispatch():
            return _sent_on(record, command, now)
        case TakeTurn():
            after = turns.take_turn(record, command, now)
            return STALE if after is None else Decision("changed", after)
        case Deadline() | Starved():
            return deadlines.decide(record, command, now)
        case Unattended():
            return pinning.unattended(record, command)
        case _:
            assert_never(command)


# -- claim ------------------------------------------------------------------------------------------------------


def _claim(record: RunRecord, claim: Claim, now: datetime) -> Decision:
    if record.terminal or claim.dispatch < record.dispatch or not pinning.belongs(record, claim.queue):
        return STALE
    if claim.dispatch > record.dispatch:
        return LATER
    if record.status is Status.QUEUED:
        if record.wake_at is not None or _held(record):
            return STALE
        if record.lease == claim.lease and claim.delivery <= record.delivery:
            return LATER  # said again for a worker that was taken for gone: the message is to come to somebody anew
        if claim.beside and record.losses >= SUSPECT_LOSSES:
            return LATER
        elsewhere = pinning.is_elsewhere(record, claim)
        return (pinning.sent_there if elsewhere else _begin)(record, claim, now, record.losses)
    if record.undo == "due" and record.worker is None:
        return _begin(record, claim, now, record.losses)
    if record.status not in (Status.RUNNING, Status.CANCEL_REQUESTED) or record.lease != claim.lease:
        return STALE
    return _take_over(record, claim, now)


def _take_over(record: RunRecord, claim: Claim, now: datetime) -> Decision:
    """The work message of an attempt that is under way was delivered again."""
    undoing = record.undo == "due"
    if claim.delivery <= record.delivery:
        same = record.worker == claim.worker and (undoing or record.status is Status.RUNNING)
        return APPLIED if same else STALE
    if record.status is Status.CANCEL_REQUESTED and not undoing:
        return canceling.stopped(record, now, why="its worker was lost")
    if record.worker == claim.worker:  # alive, but it never got the grant, or lost its lease: no process has died
        return _begin(record, claim, now, record.losses)
    losses = _losses(record, claim)
    if losses >= MAX_LOSSES:
        return canceling.undo_lost(record, now, "its worker was lost") if undoing else _poisoned(record, now)
    if claim.beside and losses >= SUSPECT_LOSSES:
        return LATER
    if pinning.is_elsewhere(record, claim) and not undoing:
        return pinning.sent_there(record, claim, now, losses)
    return _begin(record, claim, now, losses)


def _losses(record: RunRecord, command: Claim | Lost) -> int:
    """How many deaths in a row this one is: those before count no more when the attempt has left a result, from which
    the next one goes on. What kills its process always at the same place leaves none."""
    return 1 if command.got_on == record.attempt else record.losses + 1


def _held(record: RunRecord) -> bool:
    """Whether the run has to wait for its turn in its thread: it has no work message."""
    return record.turn is not None and record.turn.held


def _begin(record: RunRecord, claim: Claim, now: datetime, losses: int) -> Decision:
    agent = claim.agent
    return following(
        record,
        now,
        Status.RUNNING if record.status is Status.QUEUED else record.status,
        attempt=record.attempt + 1,
        losses=losses,
        reason=record.reason if record.undo else None,
        wait_until=None,
        worker=claim.worker,
        lease=claim.lease,
        delivery=claim.delivery,
        consumer_seq=claim.consumer_seq,
        started_at=record.started_at or now,
        retry=agent.retry if agent else record.retry,
        timeout_s=agent.timeout_s if agent else record.timeout_s,
        **pinning.at_claim(record, claim),
    )


def _poisoned(record: RunRecord, now: datetime) -> Decision:
    error = ErrorInfo(
        code="worker_lost",
        message=f"the process that carried this run out died {record.losses + 1} times in a row; "
        "the run is parked as failed",
    )
    return finished(
        record, now, Status.FAILED, losses=record.losses + 1, error=error, reason="poison: kills its worker"
    )


# -- end of an attempt ------------------------------------------------------------------------------------------


def _end(record: RunRecord, end: End, now: datetime) -> Decision:
    outcome = end.outcome
    if outcome.attempt != record.attempt or record.status not in (Status.RUNNING, Status.CANCEL_REQUESTED):
        return APPLIED if _tells_of(record, outcome) else STALE
    if outcome.checkpoint:
        record = replace(record, checkpoint=outcome.checkpoint)
    if record.status is Status.CANCEL_REQUESTED:
        return canceling.handed_in(record, outcome, now)
    record = answering.taken(record, outcome)
    match outcome.kind:
        case "completed":
            return finished(
                record, now, Status.COMPLETED, result=outcome.value, steps=outcome.steps, error=None, reason=None
            )
        case "failed" | "timed_out":
            return _fail(record, end, now)
        case "suspended" if not outcome.waits and outcome.wake_at is None and not outcome.hears:
            return queued(record, now, "has nothing to wait for", steps=outcome.steps)
        case "suspended":
            return following(
                record,
                now,
                Status.WAITING,
                waits=outcome.waits,
                wake_at=outcome.wake_at,
                hears=outcome.hears,
                heard=outcome.heard,
                interrupts=None,
                steps=outcome.steps,
                failures=0,
                losses=0,
                worker=None,
                lease=0,
                reason=_waiting_for(outcome),
            )
        case "input_required":
            return answering.asked(record, outcome, now, _needs(outcome))
        case "released" | "stopped":
            return queued(record, now, "handed back by its worker", steps=outcome.steps)
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
        case "input_required":
            return record.status in (*ASKING, Status.QUEUED)
        case "failed" | "timed_out":
            return record.status in (Status.FAILED, Status.TIMED_OUT) or record.failures > 0
        case _:
            return record.status is Status.QUEUED or record.cancel is not None


def _waiting_for(outcome: Outcome) -> str:
    children = len({child for group in outcome.waits or () for child in group})
    parts = [f"{children} child run{'s' if children != 1 else ''}"] if children else []
    if outcome.wake_at is not None:
        parts.append(f"the clock ({outcome.wake_at:%Y-%m-%d %H:%M:%S} UTC)")
    if outcome.hears:
        parts.append("a message")
    return f"waits for {' or '.join(parts) or 'nothing'}"


def _needs(outcome: Outcome) -> str:
    names = [f"{one.name!r} ({one.at}{'; ' if one.why else ''}{one.why})" for one in outcome.unknown or ()]
    asked = [one.id for one in outcome.interrupts or ()]
    if not names:
        return f"waits for an answer: {_listed(asked)}"
    plural = "s" if len(names) != 1 else ""
    unknown = f"it is not known whether the effect{plural} {_listed(names)} happened: reconcile"
    return f"{unknown}; waits for an answer: {_listed(asked)}" if asked else unknown


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def _fail(record: RunRecord, end: End, now: datetime) -> Decision:
    outcome, policy = end.outcome, record.retry or RetryPolicy()
    failures = record.failures + 1
    error = outcome.error or ErrorInfo(code="failed", message="the attempt failed")
    if not error.retryable or failures >= policy.max_attempts:
        status = Status.TIMED_OUT if outcome.kind == "timed_out" else Status.FAILED
        successor = end.successor if outcome.anew and end.successor and record.parent is None else None
        reason = f"run {successor} has started in its place" if successor else error.message[:300]
        return finished(
            record, now, status, failures=failures, error=error, steps=outcome.steps, reason=reason, successor=successor
        )
    delay = policy.delay_s(failures, end.jitter)
    return following(
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


def _lost(record: RunRecord, lost: Lost, now: datetime) -> Decision:
    if record.worker != lost.worker or (lost.attempt and lost.attempt != record.attempt):
        return STALE
    if record.status is Status.CANCEL_REQUESTED:
        undoing = record.undo == "due"
        return canceling.undo_lost(record, now, lost.why) if undoing else canceling.stopped(record, now, lost.why)
    if record.status is not Status.RUNNING:
        return STALE
    reason, losses = f"attempt {record.attempt} was lost: {lost.why}", _losses(record, lost)
    if losses >= MAX_LOSSES:
        return _poisoned(record, now)
    if not record.consumer_seq or (record.pin and record.attempt == 1):  # pinned since: it may lie on another queue
        return queued(record, now, reason, losses=losses)
    return queued(record, now, reason, losses=losses, dispatch=record.dispatch, lease=record.lease)


def _sent_on(record: RunRecord, command: Lost | Wake | Due | Redispatch, now: datetime) -> Decision:
    match command:
        case Lost():
            return _lost(record, command, now)
        case Wake():
            return _wake(record, command, now)
        case Due():
            return _due(record, command, now)
        case Redispatch():
            return _redispatch(record, command, now)


def _wake(record: RunRecord, wake: Wake, now: datetime) -> Decision:
    waits = record.status in ASKING and (record.waits or record.wake_at is not None or record.hears)
    if record.status is not Status.WAITING and not waits:
        return STALE
    return queued(record, now, wake.reason, unknown=None)


def _due(record: RunRecord, due: Due, now: datetime) -> Decision:
    if record.status is not Status.QUEUED or record.wake_at is None or record.dispatch != due.dispatch:
        return STALE
    return queued(record, now, "next attempt")


def _redispatch(record: RunRecord, command: Redispatch, now: datetime) -> Decision:
    if record.status is not Status.QUEUED or record.wake_at is not None or record.dispatch != command.dispatch:
        return STALE
    if _held(record):
        return STALE
    return queued(record, now, command.reason, agent=command.agent, **pinning.at_registration(command.info))


def _told(record: RunRecord, command: Reconcile | Fail, now: datetime) -> Decision:
    """What a person says."""
    if isinstance(command, Reconcile):
        return _reconcile(record, command, now)
    if record.terminal and record.error is not None and record.error.code == FAILED_BY_HAND:
        return APPLIED
    if record.status not in (Status.QUEUED, Status.WAITING, *ASKING):
        return REFUSED
    reason = command.reason or "a person has ended it as failed"
    error = ErrorInfo(code=FAILED_BY_HAND, message=reason)
    return finished(record, now, Status.FAILED, error=error, reason=reason[:300])


def _reconcile(record: RunRecord, command: Reconcile, now: datetime) -> Decision:
    asked = [one for one in record.unknown or () if command.effect in (one.at, one.name)]
    if record.status not in ASKING or len(asked) != 1:
        told = [one for one in record.rulings or () if command.effect in (one.at, one.name)]
        return APPLIED if told and told[-1].happened is command.happened and not asked else REFUSED
    one = asked[0]
    ruling = Ruling(
        at=one.at, name=one.name, attempt=one.attempt, n=one.n, happened=command.happened, value=command.value,
        decided_at=now, reason=command.reason,
    )  # fmt: skip
    rulings = [*(record.rulings or ()), ruling]
    left = [other for other in record.unknown or () if other is not one]
    if left:
        return following(record, now, record.status, unknown=left, rulings=rulings)
    return queued(record, now, "reconciled", unknown=None, rulings=rulings)
