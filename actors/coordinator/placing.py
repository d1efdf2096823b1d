"""How a new run comes into a thread: it asks for its turn there, or is a part of the turn of a run above it."""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from ...topics.errors import InvalidInput
from ...topics.messages import POLICIES, ChildRequest, Policy, RunRecord, TaskRequest, Turn
from ...topics.subjects import require_token

HEADER = "Callboard-Policy"


def of_header(text: str | None) -> Policy | None:
    """The policy in the header of a task. Raises InvalidInput."""
    if text is not None and text not in POLICIES:
        raise InvalidInput(f"header {HEADER} {text[:40]!r} is no policy: use one of {', '.join(POLICIES)}")
    return cast(Policy | None, text)


def placed(record: RunRecord, policy: Policy | None = None) -> RunRecord:
    """The first record of a run that asks for its turn in its thread; a fork gets a thread with the run's own id."""
    if record.thread is None:
        return record
    turn = Turn(policy=policy or "enqueue")
    if policy == "fork":
        turn, record = replace(turn, origin=record.thread), replace(record, thread=record.id)
    return replace(record, turn=turn, dispatch=0)


def ensured(record: RunRecord) -> RunRecord:
    """Any first record: a root with a thread takes its turn there."""
    return record if record.thread is None or record.turn is not None or record.parent else placed(record)


def follows(request: TaskRequest, first: RunRecord) -> TaskRequest:
    """The request for a further agent of the same topic: its run comes after the first one, whatever that has met."""
    if first.thread is None or first.turn is None:
        return request
    policy: Policy = "optimistic" if first.turn.policy == "optimistic" else "enqueue"
    return replace(request, thread=first.thread, policy=policy)


def of_child(record: RunRecord, parent: RunRecord, request: ChildRequest) -> RunRecord:
    """The first record of a child. Without a thread of its own it belongs to its parent's turn, and a detached one to
    no thread. Raises InvalidInput."""
    policy, thread = request.policy, request.thread
    if thread is not None:
        require_token("thread", thread)
    if record.detached or policy == "fork" or thread not in (None, parent.thread):
        own = thread or (parent.thread if policy else None)
        if own is None and policy is not None:
            raise InvalidInput(f"policy {policy!r} needs a thread: run {parent.id} has none, and none was named")
        return placed(replace(record, thread=own), policy)
    if policy not in (None, "enqueue"):
        raise InvalidInput(
            f"a child belongs to the turn of run {parent.id} in thread {parent.thread}: policy {policy!r} is for a "
            "detached child, or for another thread"
        )
    if parent.turn is None:
        return record
    return replace(record, turn=replace(parent.turn, holder=parent.turn.holder or parent.id))
