"""The order of the runs of one thread, as pure functions over its head; and what a run becomes by it.

At most one run is active. Those that replace it come next, in the order in which they came, and then those that wait.
Of several that replace only the last one gets to work: each of the others was itself replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from msgspec.structs import replace

from ...topics.messages import (
    CancelOrder,
    Deed,
    Entry,
    ErrorInfo,
    Origin,
    Policy,
    RunRecord,
    Status,
    ThreadHead,
    Tip,
    Turn,
)
from .run_commands import TakeTurn

MOST_WAITING = 300
"""Runs that may wait in one thread."""

REPLACING: dict[Policy, Literal["interrupt", "rollback"]] = {"interrupt": "interrupt", "rollback": "rollback"}
_DEEDS: dict[Policy, Deed] = {
    "enqueue": "queued", "interrupt": "interrupted", "rollback": "rolled_back", "fork": "forked",
    "optimistic": "alongside",
}  # fmt: skip


class Joined(NamedTuple):
    """Where a run stands in a thread: `taken`, `waiting`, or refused because the thread is `busy` or its queue `full`.
    `head` is the same object when nothing changed."""

    head: ThreadHead
    place: Literal["taken", "waiting", "busy", "full"]
    entry: Entry


def join(head: ThreadHead, run: str, policy: Policy, begins: Tip | None = None) -> Joined:
    """The head with the run in it. A run that is in it already stays where it is."""
    if head.active is not None and head.active.run == run:
        return Joined(head, "taken", head.active)
    for entry in head.waiting:
        if entry.run == run:
            return Joined(head, "waiting", entry)
    if head.active is None:
        entry = Entry(run, policy, begins=begins)
        return Joined(replace(head, active=entry), "taken", entry)
    entry = Entry(run, policy, head.active.run, begins)
    if policy == "reject":
        return Joined(head, "busy", entry)
    if len(head.waiting) >= MOST_WAITING:
        return Joined(head, "full", entry)
    place = len(replacements(head)) if policy in REPLACING else len(head.waiting)
    waiting = [*head.waiting[:place], entry, *head.waiting[place:]]
    return Joined(replace(head, waiting=waiting), "waiting", entry)


def replacements(head: ThreadHead) -> list[Entry]:
    """Who replaces the active run, in order."""
    return [entry for entry in head.waiting if entry.policy in REPLACING]


def doomed(head: ThreadHead) -> list[tuple[Entry, CancelOrder, Entry]]:
    """The runs that are to end because others replace them: how, and for whom."""
    if head.active is None:
        return []
    line = [head.active, *replacements(head)]
    found = []
    for place, entry in enumerate(line[:-1]):
        after = line[place + 1 :]
        undo = any(one.policy == "rollback" for one in after)
        order = CancelOrder(action="rollback" if undo else "interrupt", scope="tree")
        found.append((entry, order, after[0]))
    return found


def leave(
    head: ThreadHead, gone: Collection[str], left: Collection[str], tips: Mapping[str, Tip | None] | None = None
) -> ThreadHead:
    """The head without the runs that have ended. The version rises if the active one is among those that `left`
    something; the thread's state is the one that it left, if it did (`tips`, by run)."""
    waiting = [entry for entry in head.waiting if entry.run not in gone]
    active, version, tip = head.active, head.version, head.tip
    if active is not None and active.run in gone:
        version += active.run in left
        tip = (tips or {}).get(active.run) or tip
        active = None
    if active is None and waiting:
        active, waiting = waiting[0], waiting[1:]
    if active == head.active and waiting == head.waiting:
        return head
    return replace(head, active=active, waiting=waiting, version=version, tip=tip)


def let_go(head: ThreadHead, entry: Entry) -> ThreadHead:
    """The head without an active run that has left nothing, and may come again."""
    return leave(head, {entry.run}, ()) if head.active == entry else head


def begins(record: RunRecord) -> Tip | None:
    """The state with which a run begins that does not begin from that of its thread."""
    fork = record.forked_from
    return None if fork is None else Tip(run=record.id, checkpoint=fork.checkpoint, agent=record.agent)


def tip_of(record: RunRecord, checkpoint: int) -> Tip | None:
    """The state that a run which has ended leaves in its thread. `checkpoint`: its newest one; 0: none. A fork leaves
    at least what it began with."""
    if record.attempt == 0 or record.status is Status.ROLLED_BACK:
        return None
    if checkpoint and record.status in (Status.COMPLETED, Status.INTERRUPTED):
        return Tip(run=record.id, checkpoint=checkpoint, agent=record.agent)
    return begins(record)


def is_held(record: RunRecord) -> bool:
    """Whether the run asks for its turn, or waits for it."""
    return record.status is Status.QUEUED and record.wake_at is None and record.turn is not None and record.turn.held


def leaves_something(record: RunRecord) -> bool:
    """Whether a run that has ended counts as a change of its thread."""
    if record.attempt == 0 or record.status is Status.ROLLED_BACK:
        return False
    optimistic = record.turn is not None and record.turn.policy == "optimistic"
    return record.status is Status.COMPLETED or not optimistic


# -- what a run becomes -----------------------------------------------------------------------------------------


def taken(turn: Turn, entry: Entry, head: ThreadHead) -> TakeTurn:
    """The run may work, from the thread's state on."""
    did = turn.did or (_DEEDS.get(entry.policy, "started") if entry.met else "started")
    return TakeTurn(replace(turn, state="taken", did=did, met=entry.met, base=head.version, tip=head.tip))


def waits(turn: Turn, entry: Entry, thread: str) -> TakeTurn:
    """Others come first."""
    did = _DEEDS.get(entry.policy, "queued")
    return TakeTurn(
        replace(turn, state="waiting", did=did, met=entry.met), f"waits for run {entry.met} in thread {thread}"
    )


def apart(turn: Turn, origin: Origin, branch: str | None = None) -> TakeTurn:
    """The run works in a thread of its own: of a fork for good, of an optimistic one until it is kept."""
    met = origin.without
    did: Deed = "forked" if turn.policy == "fork" else "alongside" if met else "started"
    return TakeTurn(replace(turn, state="taken", did=did, met=met, base=origin.version, branch=branch, tip=origin.tip))


def refused(turn: Turn, why: str, met: str | None = None) -> TakeTurn:
    """The run ends as rejected."""
    details = {"busy": met} if met else None
    error = ErrorInfo(code="thread_busy", message=why, details=details)
    return TakeTurn(replace(turn, state="refused", did="rejected", met=met), why, error)


def take_turn(record: RunRecord, command: TakeTurn, now: datetime) -> RunRecord | None:
    """The record after the thread's word; None when it says nothing new."""
    before, turn = record.turn, command.turn
    if record.status is not Status.QUEUED or record.wake_at is not None or before is None or not before.held:
        return None
    record = replace(record, turn=turn, rev=record.rev + 1, updated_at=now)
    match turn.state:
        case "taken":
            reason = record.reason if before.state == "asking" else None
            wait = None if record.wait_timeout_s is None else now + timedelta(seconds=record.wait_timeout_s)
            return replace(record, dispatch=record.dispatch + 1, reason=reason, wait_until=wait)
        case "waiting" if before.state == "asking":
            return replace(record, reason=command.reason)
        case "refused" if before.state == "asking":
            return replace(record, status=Status.REJECTED, reason=command.reason, error=command.error, ended_at=now)
        case _:
            return None
