"""The order of a thread as pure functions: any mixture of starts and ends, against what the policies promise."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from callboard.actors.coordinator import placing, turns
from callboard.actors.coordinator.effects import AskTurn, Dispatch, LeaveTurn, Timer, owed
from callboard.actors.coordinator.run_commands import Cancel, Claim, Due, Redispatch, TakeTurn
from callboard.actors.coordinator.transitions import decide
from callboard.topics import tasks
from callboard.topics.errors import InvalidInput
from callboard.topics.messages import (
    NOTHING,
    ChildRequest,
    Entry,
    Policy,
    RunRecord,
    Status,
    TaskRequest,
    ThreadHead,
    Turn,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOINING: tuple[Policy, ...] = ("enqueue", "reject", "interrupt", "rollback")


class Order(RuleBasedStateMachine):
    """One thread. Runs start, end, and do both again."""

    def __init__(self) -> None:
        super().__init__()
        self.head = ThreadHead()
        self.number = 0
        self.gone: list[str] = []
        self.left = 0

    def members(self) -> list[Entry]:
        return [*([self.head.active] if self.head.active else []), *self.head.waiting]

    @rule(policy=st.sampled_from(JOINING))
    def start(self, policy: Policy) -> None:
        self.number += 1
        run, before = f"r{self.number}", self.head
        joined = turns.join(before, run, policy)
        if before.active is None:
            assert joined.place == "taken"
            assert joined.entry.met is None
        elif policy == "reject":
            assert (joined.place, joined.head, joined.entry.met) == ("busy", before, before.active.run)
        else:
            assert joined.place == "waiting"
            assert joined.head.active == before.active
            assert joined.entry.met == before.active.run
            others = [entry for entry in joined.head.waiting if entry.run != run]
            assert others == before.waiting, "nobody else changes places"
            behind = joined.head.waiting[joined.head.waiting.index(joined.entry) + 1 :]
            assert all(entry.policy not in turns.REPLACING for entry in behind)
            assert policy in turns.REPLACING or not behind
        again = turns.join(joined.head, run, policy)
        assert again.head is joined.head, "a second time changes nothing"
        self.head = joined.head

    @precondition(lambda self: self.head.active)
    @rule(data=st.data(), kept=st.booleans())
    def end(self, data: Any, kept: bool) -> None:
        run = data.draw(st.sampled_from(self.members())).run
        before = self.head
        assert before.active is not None
        was_active = before.active.run == run
        after = turns.leave(before, {run}, {run} if kept else set())
        assert after.version == before.version + (was_active and kept)
        if was_active:
            assert after.active == (before.waiting[0] if before.waiting else None)
        else:
            assert after.active == before.active
        assert turns.leave(after, {run}, {run}) is after, "a second time changes nothing"
        self.head = after
        self.gone.append(run)

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def end_again(self, data: Any) -> None:
        run = data.draw(st.sampled_from(self.gone))
        assert turns.leave(self.head, {run}, {run}) is self.head

    @invariant()
    def all_have_one_place(self) -> None:
        runs = [entry.run for entry in self.members()]
        assert len(runs) == len(set(runs))
        assert not set(runs) & set(self.gone)
        assert self.head.active is not None or not self.head.waiting

    @invariant()
    def all_but_the_last_that_replace_are_replaced(self) -> None:
        line = turns.replacements(self.head)
        doomed = turns.doomed(self.head)
        if not line:
            assert doomed == []
            return
        assert self.head.active is not None
        assert [entry for entry, _, _ in doomed] == [self.head.active, *line[:-1]]
        for place, (_, order, by) in enumerate(doomed):
            assert by == line[place]
            undone = any(entry.policy == "rollback" for entry in line[place:])
            assert (order.action == "rollback") is undone


TestOrder = Order.TestCase


def record(policy: Policy | None = None, **changes: Any) -> RunRecord:
    first = RunRecord(
        id="r", root="r", agent="a", status=Status.QUEUED, input=NOTHING, created_at=NOW, updated_at=NOW, dispatch=1,
        thread="t",
    )  # fmt: skip
    return placing.placed(msgspec.structs.replace(first, **changes), policy)


def told(before: RunRecord, word: TakeTurn) -> RunRecord:
    decision = decide(before, word, NOW)
    assert decision.record is not None
    assert decide(decision.record, word, NOW).record is None, "a second time changes nothing"
    return decision.record


def turn_of(found: RunRecord) -> Turn:
    assert found.turn is not None
    return found.turn


def test_a_run_is_held_back_until_its_turn_comes() -> None:
    first = record()
    assert owed(first) == (AskTurn("r"),)
    for command in (Claim("w", 0, 1, 1), Claim("w", 1, 1, 1), Redispatch("a", 0)):
        assert decide(first, command, NOW).record is None
    entry = Entry("r", "enqueue", "x")
    waits = told(first, turns.waits(turn_of(first), entry, "t"))
    assert (waits.reason, turn_of(waits).did, owed(waits)) == ("waits for run x in thread t", "queued", (AskTurn("r"),))
    taken = told(waits, turns.taken(turn_of(waits), entry, ThreadHead(version=3)))
    assert (turn_of(taken).base, turn_of(taken).did, taken.reason) == (3, "queued", None)
    assert owed(taken) == (Dispatch("a", "r", 1),)
    late = turns.waits(turn_of(first), entry, "t")
    assert decide(taken, late, NOW).record is None, "what comes late does not take the turn away"
    running = decide(taken, Claim("w", 1, 1, 1), NOW).record
    assert running is not None
    assert running.status is Status.RUNNING


def test_a_word_may_come_in_any_order_and_the_deed_is_the_same() -> None:
    first = record("rollback")
    at_once = told(first, turns.taken(turn_of(first), Entry("r", "rollback", "x"), ThreadHead()))
    assert turn_of(at_once).did == "rolled_back"
    alone = told(first, turns.taken(turn_of(first), Entry("r", "rollback"), ThreadHead()))
    assert turn_of(alone).did == "started"


def test_rejected_runs_have_ended_and_owe_the_thread_nothing() -> None:
    first = record("reject", parent="p")
    found = told(first, turns.refused(turn_of(first), "busy", "x"))
    assert (found.status, found.ended_at, found.terminal) == (Status.REJECTED, NOW, True)
    assert found.error is not None
    assert found.error.details == {"busy": "x"}
    assert not any(isinstance(effect, LeaveTurn) for effect in owed(found))
    assert not turns.leaves_something(found)


def test_canceled_while_it_waits_it_leaves_the_queue() -> None:
    first = record()
    waits = told(first, turns.waits(turn_of(first), Entry("r", "enqueue", "x"), "t"))
    ended = decide(waits, Cancel(), NOW).record
    assert ended is not None
    assert ended.status is Status.CANCELED
    assert LeaveTurn("t", "r") in owed(ended)
    assert not turns.leaves_something(ended)


def test_a_delayed_run_asks_when_it_is_due() -> None:
    first = record(wake_at=NOW)
    assert all(isinstance(effect, Timer) for effect in owed(first))
    due = decide(first, Due(0), NOW).record
    assert due is not None
    assert owed(due) == (AskTurn("r"),)


def test_a_fork_works_in_a_thread_of_its_own() -> None:
    first = record("fork")
    assert (first.thread, turn_of(first).origin) == ("r", "t")


def test_children_belong_to_their_parent_s_turn() -> None:
    parent = told(
        record("interrupt"), turns.taken(turn_of(record("interrupt")), Entry("r", "interrupt"), ThreadHead(version=2))
    )
    blank = msgspec.structs.replace(record(), id="r~c", parent="r", turn=None, dispatch=1)

    def child(detached: bool = False, **options: Any) -> RunRecord:
        request = ChildRequest(run="r~c", agent="a", input=NOTHING, detached=detached, **options)
        return placing.of_child(msgspec.structs.replace(blank, detached=detached), parent, request)

    inherits = child()
    assert (turn_of(inherits).holder, turn_of(inherits).held, inherits.thread) == ("r", False, "t")
    assert child(thread="t") == inherits
    assert child(detached=True).thread is None
    assert turn_of(child(detached=True, thread="t")).holder is None
    assert turn_of(child(thread="u", policy="reject")).held
    assert child(policy="fork").thread == "r~c"
    for wrong in ("reject", "interrupt", "rollback", "optimistic"):
        with pytest.raises(InvalidInput):
            child(policy=wrong)


def test_without_a_thread_nothing_changes() -> None:
    plain = msgspec.structs.replace(record(), thread=None, turn=None, dispatch=1)
    assert placing.placed(plain) is plain
    assert placing.ensured(plain) is plain
    assert owed(plain) == (Dispatch("a", "r", 1),)
    with pytest.raises(InvalidInput):
        tasks.require_valid(TaskRequest(agent="a", policy="fork"), 1000)
    with pytest.raises(InvalidInput):
        placing.of_header("somehow")
