"""The order of the runs of one thread, as pure functions over its head; and what a run becomes by it.

At most one run is active. Those that replace it come next, in the order in which they came, and then those that wait.
Of several that replace only the last one gets to work: each of the others was itself replaced.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from msgspec.structs import replace

from ...topics.messages import CancelOrder, Deed, Entry, ErrorInfo, Policy, RunRecord, Status, ThreadHead, Turn
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


def join(head: ThreadHead, run: str, policy: Policy) -> Joined:
    """The head with the run in it. A run that is in it already stays where it is."""
    if head.active is not None and head.active.run == run:
        return Joined(head, "taken", head.active)
    for entry in head.waiting:
        if entry.run == run:
            return Joined(head, "waiting", entry)
    if head.active is None:
        entry = Entry(run, policy)
        return Joined(replace(head, active=entry), "taken", entry)
    entry = Entry(run, policy, head.active.run)
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


def leave(head: ThreadHead, gone: Collection[str], left: Collection[str]) -> ThreadHead:
    """The head without the runs that have ended. The version rises if the active one is among those that `left`
    something."""
    waiting = [entry for entry in head.waiting if entry.run not in gone]
    active, version = head.active, head.version
    if active is not None and active.run in gone:
        version += active.run in left
        active = None
    if active is None and waiting:
        active, waiting = waiting[0], waiting[1:]
    if active == head.active and waiting == head.waiting:
        return head
    return replace(head, active=active, waiting=waiting, version=version)


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


def taken(turn: Turn, entry: Entry, version: int) -> TakeTurn:
    """The run may work."""
    did = turn.did or (_DEEDS.get(entry.policy, "started") if entry.met else "started")
    return TakeTurn(replace(turn, state="taken", did=did, met=entry.met, base=version))


def waits(turn: Turn, entry: Entry, thread: str) -> TakeTurn:
    """Others come first."""
    did = _DEEDS.get(entry.policy, "queued")
    return TakeTurn(
        replace(turn, state="waiting", did=did, met=entry.met), f"waits for run {entry.met} in thread {thread}"
    )


def apart(turn: Turn, version: int, met: str | None, branch: str | None = None) -> TakeTurn:
    """The run works in a thread of its own: of a fork for good, of an optimistic one until it is kept."""
    did: Deed = "forked" if turn.policy == "fork" else "alongside" if met else "started"
    return TakeTurn(replace(turn, state="taken", did=did, met=met, base=version, branch=branch))


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
