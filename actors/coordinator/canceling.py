"""How a run is brought to its end by somebody's wish, and its effects are undone before.

    cancel_requested ─ stopped by its worker, which has undone the effects ─────────→ canceled | interrupted | …
                     ├ no worker holds it ─ all below has ended ─ no effects ───────→ canceled | … | orphaned
                     └                                          └ effects: dispatched to be undone, and then ─→ …

A worker that stops its own attempt undoes the effects at once. Of a run that nobody holds (it waited, its worker was
lost) the coordinator asks the log whether there are any, and only then sends it to a worker once more.
"""

from __future__ import annotations

from datetime import datetime

from ...topics.messages import CancelOrder, Outcome, RunRecord, Status
from .decision import APPLIED, MAX_LOSSES, REFUSED, STALE, Decision, finished, following
from .run_commands import Cancel, CancelDeadline, Settled

FINAL = {
    "cancel": Status.CANCELED,
    "interrupt": Status.INTERRUPTED,
    "rollback": Status.ROLLED_BACK,
    "timeout": Status.TIMED_OUT,
}
"""How a run ends after each action."""

_ACTIONS = ("timeout", "interrupt", "cancel", "rollback")
"""The one that undoes more stands later: an interrupt keeps all, a cancel undoes effects, a rollback messages too."""


def decide(record: RunRecord, command: Cancel | CancelDeadline | Settled, now: datetime) -> Decision:
    """Of the commands of `transitions.decide` those that are about a cancel."""
    match command:
        case Cancel():
            return cancel(record, command, now)
        case CancelDeadline():
            return cancel_deadline(record, command, now)
        case Settled():
            return settled(record, command, now)


def cancel(record: RunRecord, command: Cancel, now: datetime) -> Decision:
    """Somebody wants the run to end."""
    if record.terminal:
        return APPLIED if record.cancel is not None and not weaker(record.cancel, command.order) else REFUSED
    order, epoch = command.order, record.epoch + 1
    if record.status is Status.CANCEL_REQUESTED:
        return _again(record, command, now)
    reason = command.reason or (f"{FINAL[order.action]} with run {order.by}" if order.by else FINAL[order.action])
    begun = record.attempt > 0
    if record.status is Status.RUNNING or (begun and (order.scope == "tree" or not order.keeps)):
        check = "check" if record.status is not Status.RUNNING and not order.keeps else ""
        return following(
            record, now, Status.CANCEL_REQUESTED, epoch=epoch, cancel=order, reason=reason, waits=None, wake_at=None,
            unknown=None, interrupts=None, answers=None, hears=False, undo=check,
            left=bool(record.unknown) and order.keeps,
        )  # fmt: skip
    return finished(record, now, FINAL[order.action], epoch=epoch, cancel=order, reason=reason)


def weaker(order: CancelOrder | None, other: CancelOrder) -> bool:
    """Whether an order leaves more as it is than another one does."""
    return _ACTIONS.index((order or CancelOrder()).action) < _ACTIONS.index(other.action)


def _again(record: RunRecord, command: Cancel, now: datetime) -> Decision:
    """A second cancel widens the first and never narrows it."""
    before, order = record.cancel or CancelOrder(), command.order
    joined = CancelOrder(
        action=max(before.action, order.action, key=_ACTIONS.index),
        scope="tree" if "tree" in (before.scope, order.scope) else before.scope,
        by=before.by,
    )
    if joined == record.cancel:
        return APPLIED
    kept = before.keeps and not joined.keeps and record.worker is None
    undo, reason = "check" if kept and not record.undo else record.undo, command.reason or record.reason
    return following(
        record, now, Status.CANCEL_REQUESTED, epoch=record.epoch + 1, cancel=joined, undo=undo, reason=reason
    )  # fmt: skip


def handed_in(record: RunRecord, outcome: Outcome, now: datetime) -> Decision:
    """The worker that held the run says that it has stopped."""
    if record.worker is None:
        return STALE
    why = outcome.error.message if outcome.kind == "stopped" and outcome.error else ""
    if outcome.abandoned:
        why = "; ".join([*([why] if why else []), _abandoned(outcome.abandoned)])
    left = outcome.kind == "stopped" and outcome.undone and outcome.error is not None
    return stopped(record, now, why, undone=outcome.undone, steps=outcome.steps, left=left)


def _abandoned(steps: list[str]) -> str:
    names = ", ".join(map(repr, steps[:3])) + (f" and {len(steps) - 3} more" if len(steps) > 3 else "")
    return f"abandoned in a thread, where it goes on, its result dropped: step {names}"


def stopped(record: RunRecord, now: datetime, why: str = "", *, undone: bool = False, **changes: object) -> Decision:
    """The worker holds the run no more. A tree goes on until all below has ended, and effects are undone first."""
    order = record.cancel or CancelOrder()
    reason = f"{record.reason}; {why}" if why else record.reason
    if record.undo == "due":
        if undone:
            return finished(record, now, FINAL[order.action], reason=reason, undo="", **changes)
        return _dispatched(record, now, reason, **changes)
    check = not undone and not order.keeps
    if order.scope == "tree" or check:
        undo = "check" if check else ""
        return following(
            record, now, Status.CANCEL_REQUESTED, worker=None, lease=0, reason=reason, undo=undo, **changes
        )  # fmt: skip
    return finished(record, now, FINAL[order.action], reason=reason, **changes)


def _dispatched(record: RunRecord, now: datetime, reason: str | None, **changes: object) -> Decision:
    """To a worker, to have its effects undone."""
    return following(
        record, now, Status.CANCEL_REQUESTED, undo="due", dispatch=record.dispatch + 1, worker=None, lease=0,
        reason=reason, **changes,
    )  # fmt: skip


def undo_lost(record: RunRecord, now: datetime, why: str) -> Decision:
    """The process that undid the effects of the run is gone: to the next one, unless that happens again and again."""
    if record.losses + 1 < MAX_LOSSES:
        return stopped(record, now, losses=record.losses + 1)
    order = record.cancel or CancelOrder()
    reason = f"{record.reason}; its effects are not undone: {why}, {record.losses + 1} times in a row"
    return finished(record, now, FINAL[order.action], losses=record.losses + 1, reason=reason, undo="", left=True)


def cancel_deadline(record: RunRecord, command: CancelDeadline, now: datetime) -> Decision:
    """The worker has had its time to confirm. Effects that are being undone elsewhere are under a lease instead."""
    if record.status is not Status.CANCEL_REQUESTED or record.epoch != command.epoch:
        return STALE
    if record.worker is None or record.undo == "due":
        return STALE
    why = "its worker did not confirm and is fenced off"
    order = record.cancel or CancelOrder()
    if not order.by:
        return stopped(record, now, why)
    reason = f"{record.reason}; {why}"
    if order.keeps:
        return finished(record, now, Status.ORPHANED, reason=reason)
    return following(record, now, Status.CANCEL_REQUESTED, worker=None, lease=0, reason=reason, undo="lost")


def settled(record: RunRecord, command: Settled, now: datetime) -> Decision:
    """All below the run has ended. A run that was not heard of ends as orphaned, unless a worker undoes its effects."""
    if record.status is not Status.CANCEL_REQUESTED or record.epoch != command.epoch:
        return STALE
    if record.worker is not None or record.undo == "due":
        return STALE
    if record.undo and command.effects:
        return _dispatched(record, now, record.reason, losses=0)
    status = Status.ORPHANED if record.undo == "lost" else FINAL[(record.cancel or CancelOrder()).action]
    return finished(record, now, status, undo="")
