"""Several runs in one thread: under each policy exactly what it promises, with two coordinators at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from callboard import Context, agent
from callboard.actors.coordinator.threads import ThreadTurns
from callboard.store.threads import Threads
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import InvalidInput
from callboard.topics.ids import child_run_id
from callboard.topics.messages import Outcome, Policy, RunRecord, Status, TaskRequest
from tests.actors.company import Company, company, eventually
from tests.support import invariants

MANY = 20


@agent("talker")
async def talker(ctx: Context, seconds: float) -> int:
    """Speaks, works for a while, speaks again."""
    assert ctx.thread is not None
    before = await ctx.thread.messages()
    await ctx.thread.say("agent", "begin")
    await ctx.step(asyncio.sleep, seconds)
    await ctx.thread.say("agent", "end")
    return len(before)


@agent("caller")
async def caller(ctx: Context, how: dict[str, Any]) -> Any:
    """Calls the talker in some thread."""
    return await ctx.call("talker", how.pop("seconds", 0.0), returns=int, **how)


@agent("parent")
async def parent(ctx: Context, seconds: float) -> None:
    """Leaves a child behind that is still at work."""
    await ctx.start("talker", seconds)


AGENTS = (talker, caller, parent)


@agent("keeper")
async def keeper(ctx: Context, _: Any) -> Any:
    """Waits for a child that has the same place in the thread."""
    return await ctx.call("sleeper")


@agent("sleeper")
async def sleeper(ctx: Context) -> None:
    await ctx.sleep(3600)


async def said(all_: Company, thread: str) -> list[str]:
    """Who has spoken in the thread, message by message."""
    return [posted.message.run or "" for posted in await Threads(all_.bus).messages(thread)]


def pairs(runs: list[str]) -> list[str]:
    """The runs in the order in which they spoke, after a look that none spoke in between."""
    assert runs[::2] == runs[1::2], f"two runs mix: {runs}"
    return runs[::2]


async def start(all_: Company, thread: str, policy: str | None, number: int = MANY, seconds: float = 0.05) -> list[str]:
    """Starts so many runs at once; their ids."""
    starts = (all_.submit("talker", seconds, thread=thread, policy=policy) for _ in range(number))
    return list(await asyncio.gather(*starts))


async def ended(all_: Company, runs: list[str]) -> dict[str, RunRecord]:
    records = await asyncio.gather(*(all_.ended(run, 40) for run in runs))
    return {record.id: record for record in records}


async def idle(all_: Company, thread: str) -> int:
    """The thread's version, once nobody is in it any more."""

    async def empty() -> bool:
        order = (await Threads(all_.bus).head(thread)).order
        return order.active is None and not order.waiting

    await eventually(empty, what=lambda: f"thread {thread} is left by all")
    return (await Threads(all_.bus).head(thread)).order.version


async def test_enqueue_one_after_the_other(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, AGENTS, coordinators=2, keeper=True) as all_:
        runs = await start(all_, "t", None)
        found = await ended(all_, runs)
        assert {record.status for record in found.values()} == {Status.COMPLETED}
        order = pairs(await said(all_, "t"))
        assert sorted(order) == sorted(runs)
        assert await idle(all_, "t") == MANY
        turns = [found[run].turn for run in order]
        assert [turn.base for turn in turns if turn] == list(range(MANY))
        assert Counter(turn.did for turn in turns if turn) == {"started": 1, "queued": MANY - 1}
        await invariants.check(bus, runs)


async def test_reject_all_but_one(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, AGENTS, coordinators=2, keeper=True) as all_:
        runs = await start(all_, "t", "reject", seconds=1.5)
        found = await ended(all_, runs)
        statuses = Counter(record.status for record in found.values())
        assert statuses == {Status.COMPLETED: 1, Status.REJECTED: MANY - 1}
        (winner,) = (record.id for record in found.values() if record.status is Status.COMPLETED)
        for record in found.values():
            if record.id != winner:
                assert record.turn is not None
                assert (record.turn.did, record.turn.met, record.attempt) == ("rejected", winner, 0)
                assert record.error is not None
                assert record.error.code == "thread_busy"
        assert pairs(await said(all_, "t")) == [winner]
        assert await idle(all_, "t") == 1
        await invariants.check(bus, runs)


@pytest.mark.parametrize(("policy", "status"), [("interrupt", Status.INTERRUPTED), ("rollback", Status.ROLLED_BACK)])
async def test_each_replaces_the_one_before(settings: BrokerSettings, bus: Bus, policy: str, status: Status) -> None:
    """Only the last one works to its end; what a rolled back one has said is gone."""
    async with company(settings, bus, AGENTS, coordinators=2, keeper=True) as all_:
        first = await all_.submit("talker", 30, thread="t")
        await all_.reaches(first, Status.RUNNING)
        await eventually(lambda: said(all_, "t"))
        waits = await all_.submit("talker", 0, thread="t")
        runs = await start(all_, "t", policy, seconds=0.5)
        found = await ended(all_, [first, *runs])
        assert found[first].status is status
        completed = [run for run in runs if found[run].status is Status.COMPLETED]
        assert len(completed) == 1
        assert {found[run].status for run in runs} == {Status.COMPLETED, status}
        assert (await all_.ended(waits)).status is Status.COMPLETED, "who was enqueued keeps its place behind"
        heard = await said(all_, "t")
        assert heard[-4:] == [completed[0]] * 2 + [waits] * 2
        assert (first in heard) is (policy == "interrupt")
        assert all(found[run].attempt or run not in heard for run in runs)
        last = found[completed[0]].turn
        assert last is not None
        assert last.did == ("interrupted" if policy == "interrupt" else "rolled_back")
        await idle(all_, "t")
        await invariants.check(bus, [first, waits, *runs])


async def test_fork_each_in_a_thread_of_its_own(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, AGENTS, coordinators=2, keeper=True) as all_:
        base = await all_.run("talker", 0, thread="t")
        await idle(all_, "t")
        busy = await all_.submit("talker", 3, thread="t")
        await eventually(lambda: _speaks(all_, "t", busy))
        replies = await asyncio.gather(
            *(
                all_.submitter.submit(TaskRequest(agent="talker", thread="t", policy="fork"), msgspec.json.encode(0.1))
                for _ in range(MANY)
            )
        )
        runs = [reply.run or "" for reply in replies]
        found = await ended(all_, runs)
        assert {record.status for record in found.values()} == {Status.COMPLETED}
        threads = [reply.thread or "" for reply in replies]
        assert len(set(threads) | {"t"}) == MANY + 1
        for run, thread, reply in zip(runs, threads, replies, strict=True):
            assert reply.turn is not None
            assert (reply.turn.did, reply.turn.met, reply.turn.origin) == ("forked", busy, "t")
            assert found[run].thread == thread
            assert await said(all_, thread) == [base.id] * 2 + [run] * 2
            after = await all_.run("talker", 0, thread=thread)
            assert await said(all_, thread) == [base.id] * 2 + [run] * 2 + [after.id] * 2
            break
        assert (await all_.ended(busy)).status is Status.COMPLETED
        assert pairs(await said(all_, "t")) == [base.id, busy]
        await invariants.check(bus, [busy, *runs])


async def _speaks(all_: Company, thread: str, run: str) -> bool:
    return run in await said(all_, thread)


async def test_optimistic_the_first_to_end_is_kept(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, AGENTS, coordinators=2, keeper=True, concurrency=MANY) as all_:
        base = await all_.run("talker", 0, thread="t")
        await idle(all_, "t")
        runs = await start(all_, "t", "optimistic", seconds=1.0)
        found = await ended(all_, runs)
        statuses = Counter(record.status for record in found.values())
        assert statuses == {Status.COMPLETED: 1, Status.FAILED: MANY - 1}
        (winner,) = (record.id for record in found.values() if record.status is Status.COMPLETED)
        assert await idle(all_, "t") == 2
        assert pairs(await said(all_, "t")) == [base.id, winner]
        for record in found.values():
            if record.id != winner:
                assert record.error is not None
                assert record.error.code == "thread_conflict"
                details = record.error.details or {}
                assert (details["expected"], details["found"]) == (1, 2)
                assert await said(all_, record.id) == [base.id] * 2 + [record.id] * 2, "the branch keeps what it said"
        await invariants.check(bus, runs)


async def test_optimistic_behind_one_that_has_completed_and_has_a_child_at_work(
    settings: BrokerSettings, bus: Bus
) -> None:
    """The thread is the first one's until its child has ended; that the second one is too late is known at once."""
    async with company(settings, bus, AGENTS) as all_:
        late = await all_.submit("talker", 1.0, thread="t", policy="optimistic")
        first = await all_.run("parent", 30.0, thread="t", policy="optimistic")
        assert first.status is Status.COMPLETED
        record = await all_.ended(late, 10)
        assert record.status is Status.FAILED
        assert record.error is not None
        assert record.error.code == "thread_conflict"
        await all_.submitter.cancel(first.id)


async def test_optimistic_about_to_be_kept_and_then_lost(settings: BrokerSettings, bus: Bus) -> None:
    """As when coordinator and worker die between the room that was made for it in the thread and its end: others do not
    wait for its next attempt, and do not end it; and that one finds out that it comes too late."""
    async with company(settings, bus, AGENTS, keeper=True) as all_:
        run = await all_.submit("talker", 4.0, thread="t", policy="optimistic")
        await all_.reaches(run, Status.RUNNING)
        commands = all_.members[0].actor._commands
        kept = await commands._carrier.threads.commit(Outcome(run=run, attempt=1, kind="completed"))
        order = (await Threads(bus).head("t")).order
        assert (kept.kind, order.active and order.active.run) == ("completed", run)
        await commands.lost(run, (await all_.record(run)).worker)
        first = await all_.run("talker", 0.0, 5, thread="t", policy="rollback")
        assert first.status is Status.COMPLETED
        record = await all_.record(run)
        assert (record.status, record.attempt, record.cancel) == (Status.RUNNING, 2, None)
        record = await all_.ended(run)
        assert record.error is not None
        assert record.error.code == "thread_conflict"


async def test_optimistic_beside_another_one(settings: BrokerSettings, bus: Bus) -> None:
    """Kept when the other one has been rolled back meanwhile; a conflict while it is at work."""
    async with company(settings, bus, AGENTS, coordinators=2, keeper=True) as all_:
        busy = await all_.submit("talker", 30, thread="t")
        await eventually(lambda: _speaks(all_, "t", busy))
        lost = await all_.run("talker", 0, thread="t", policy="optimistic")
        assert lost.error is not None
        assert (lost.error.details or {})["active"] == busy
        slow = await all_.submit("talker", 2, thread="t", policy="optimistic")
        await all_.submitter.cancel(busy, action="rollback")
        kept = await all_.ended(slow)
        assert kept.status is Status.COMPLETED
        assert kept.turn is not None
        assert (kept.turn.did, kept.turn.met) == ("alongside", busy)
        await idle(all_, "t")
        assert await said(all_, "t") == [slow, slow]


async def test_all_policies_at_once_never_mix(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, AGENTS, coordinators=2, keeper=True, concurrency=16) as all_:
        policies = ("enqueue", "reject", "interrupt", "rollback", "optimistic")
        runs = [run for each in await asyncio.gather(*(start(all_, "t", one, 6) for one in policies)) for run in each]
        found = await ended(all_, runs)
        version = await idle(all_, "t")
        heard = await said(all_, "t")
        seen = list(dict.fromkeys(heard))
        assert heard == sorted(heard, key=seen.index), f"two runs mix: {heard}"
        assert {found[run].status for run in seen} <= {Status.COMPLETED, Status.INTERRUPTED}
        completed = {run for run, one in found.items() if one.status is Status.COMPLETED}
        assert completed <= set(seen)
        assert len(completed) <= version
        await invariants.check(bus, runs)


async def test_canceled_while_it_waits(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, AGENTS, coordinators=2, keeper=True) as all_:
        first = await all_.submit("talker", 2, thread="t")
        waiting = await start(all_, "t", None, 3, 0)
        record = await all_.record(waiting[1])
        assert (record.status, record.reason) == (Status.QUEUED, f"waits for run {first} in thread t")
        ended_, _ = await all_.submitter.cancel(waiting[1])
        assert ended_.status is Status.CANCELED
        found = await ended(all_, [first, waiting[0], waiting[2]])
        assert {one.status for one in found.values()} == {Status.COMPLETED}
        assert waiting[1] not in await said(all_, "t")
        await idle(all_, "t")


async def test_a_full_queue_refuses(settings: BrokerSettings, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.actors.coordinator.turns.MOST_WAITING", 3)
    async with company(settings, bus, AGENTS, coordinators=2, keeper=True) as all_:
        runs = await start(all_, "t", None, 8, 1)
        found = await ended(all_, runs)
        statuses = Counter(record.status for record in found.values())
        assert statuses == {Status.COMPLETED: 4, Status.REJECTED: 4}


async def test_a_child_belongs_to_its_parent_s_turn(settings: BrokerSettings, bus: Bus) -> None:
    """Also when the parent has ended: then the next one waits for the child. Another thread has its own order."""
    async with company(settings, bus, AGENTS, coordinators=2, keeper=True) as all_:
        called = await all_.submit("caller", {"seconds": 0.5}, thread="t")
        left = await all_.submit("parent", 1.0, thread="t")
        last = await all_.submit("talker", 0, thread="t")
        found = await ended(all_, [called, left, last])
        assert {one.status for one in found.values()} == {Status.COMPLETED}
        roots = [run.partition("~")[0] for run in await said(all_, "t")]
        assert roots == [called] * 2 + [left] * 2 + [last] * 2
        busy = await all_.submit("talker", 1.5, thread="other")
        refused = await all_.run("caller", {"thread": "other", "policy": "reject"}, thread="t")
        assert refused.status is Status.FAILED
        waited = await all_.run("caller", {"thread": "other"}, thread="t")
        assert waited.status is Status.COMPLETED
        assert [run.partition("~")[0] for run in await said(all_, "other")] == [busy] * 2 + [waited.id] * 2
        forked = await all_.run("caller", {"policy": "fork"}, thread="t")
        assert forked.status is Status.COMPLETED
        assert await said(all_, "t") == [one for one in await said(all_, "t") if one.partition("~")[0] != forked.id]


async def test_a_child_that_has_outlived_its_parent_is_replaced_with_it(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, AGENTS, coordinators=2, keeper=True) as all_:
        left = await all_.run("parent", 30.0, thread="t")
        assert left.status is Status.COMPLETED
        last = await all_.run("talker", 0, thread="t", policy="interrupt")
        assert last.status is Status.COMPLETED
        (child,) = [one for one in await all_.log.tree(left.id) if one.parent]
        assert child.status is Status.INTERRUPTED
        assert (await said(all_, "t"))[-2:] == [last.id] * 2
        await idle(all_, "t")


async def test_a_run_that_has_had_its_turn_does_not_come_again(settings: BrokerSettings, bus: Bus) -> None:
    """Tasks that are delivered again, requests and sweeps that are repeated: one turn, one version."""
    async with company(settings, bus, AGENTS, coordinators=2, keeper=True) as all_:
        request = TaskRequest(agent="talker", thread="t", run="again")
        for _ in range(3):
            await asyncio.gather(*(all_.submitter.submit(request, b"0.05") for _ in range(10)))
            for verb in ("sweep", "sweep"):
                await all_.submitter.command("again", verb)
        assert (await all_.ended("again")).status is Status.COMPLETED
        assert await idle(all_, "t") == 1
        assert await said(all_, "t") == ["again", "again"]


async def test_a_rolled_back_tree_takes_back_what_its_children_said(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, AGENTS, coordinators=2, keeper=True) as all_:
        await all_.worker(family)
        run = await all_.submit("family", None, thread="t")
        await eventually(lambda: _count(all_, "t", 2))
        await asyncio.sleep(0.3)
        await all_.submitter.cancel(run, action="rollback")
        assert (await all_.ended(run)).status is Status.ROLLED_BACK
        assert await idle(all_, "t") == 0
        assert await said(all_, "t") == []


async def _count(all_: Company, thread: str, number: int) -> bool:
    return len(await said(all_, thread)) >= number


@agent("family")
async def family(ctx: Context, _: Any) -> None:
    """A child that speaks and ends, and then a long wait."""
    await ctx.call("talker", 0.0, returns=int)
    await ctx.step(asyncio.sleep, 30)


async def test_a_policy_needs_a_thread(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, coordinators=1) as all_:
        with pytest.raises(InvalidInput, match="name the thread"):
            await all_.submit("talker", 0, policy="fork")


async def test_delayed_runs_take_their_turn_when_they_are_due(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, AGENTS, coordinators=2, keeper=True) as all_:
        late = await all_.submit("talker", 0, thread="t", run_at=1.0)
        first = await all_.submit("talker", 2, thread="t")
        found = await ended(all_, [late, first])
        assert {one.status for one in found.values()} == {Status.COMPLETED}
        assert pairs(await said(all_, "t")) == [first, late]


async def test_whoever_comes_next_carries_on_what_a_coordinator_left(settings: BrokerSettings, bus: Bus) -> None:
    """The head names a run that has ended, and one behind it whose record was not told: a look mends both."""
    async with company(settings, bus, AGENTS, keeper=True) as all_:
        first = await all_.submit("talker", 1, thread="t")
        second = await all_.submit("talker", 0, thread="t")
        coordinator = all_.members[0]
        await all_.reaches(first, Status.RUNNING)
        await coordinator.kill()
        await all_.coordinator()
        third = await all_.submit("talker", 0, thread="t")
        found = await ended(all_, [first, second, third])
        assert {one.status for one in found.values()} == {Status.COMPLETED}
        assert pairs(await said(all_, "t")) == [first, second, third]
        await invariants.check(bus, [first, second, third])


@pytest.mark.parametrize("policy", ["interrupt", "rollback"])
async def test_a_tree_that_is_canceled_and_replaced_at_once_ends(
    settings: BrokerSettings, bus: Bus, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever replaced the run has died behind its entry in the thread: the cancel of the tree finds it there when the
    child leaves the thread, in the middle of its look at the tree."""
    looked, dead = ThreadTurns.look, True

    async def look(self: ThreadTurns, thread: str, ended: str | None = None) -> None:
        if not dead:
            await looked(self, thread, ended)

    async with company(settings, bus, [keeper, sleeper, talker], patience_s=0.05) as all_:
        run = await all_.submit("keeper", thread="t")
        await all_.reaches(child_run_id(run, "0"), Status.WAITING)
        monkeypatch.setattr(ThreadTurns, "look", look)
        next_ = await all_.submit("talker", 0.0, thread="t", policy=policy)
        assert (await all_.record(run)).status is Status.WAITING
        dead = False
        await all_.submitter.cancel(run)
        assert (await all_.ended(run)).terminal
        assert (await all_.ended(next_)).status is Status.COMPLETED
        await invariants.check(bus)
