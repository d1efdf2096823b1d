"""Retries of ended runs: a new run goes on from the old one's journal, and finished steps are not executed again."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from callboard import Context, Retry, agent
from callboard.actors.audit import audit
from callboard.store.artifacts import Artifacts
from callboard.store.attention import Attention
from callboard.store.blobs import Blobs
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import IllegalTransition, NotFound
from callboard.topics.messages import RunRecord, Status

from .company import Company, company, eventually, result_of

ONCE = Retry(max_attempts=1)


class World:
    """What steps do outside, and what fails there."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.broken: set[str] = set()

    async def act(self, what: str) -> str:
        self.done[what] += 1
        if what in self.broken:
            raise ValueError(f"{what} is broken")
        return what.upper()


async def retried(found: Company, run: str) -> RunRecord:
    """The ended retry of a run."""
    record = await found.submitter.command(run, "retry")
    assert record.retry_of == run
    return await found.ended(record.id)


async def test_a_retry_goes_on_from_the_failed_step(settings: BrokerSettings, bus: Bus) -> None:
    world = World()
    world.broken = {"c"}

    @agent("letters", retries=ONCE)
    async def letters(ctx: Context, word: str) -> list[Any]:
        number = await ctx.random()
        moment = await ctx.now()
        first = [await ctx.step(world.act, letter) for letter in word]
        await ctx.artifact("word.txt", word)
        return [*first, number, moment.isoformat(), await ctx.step(world.act, str(await ctx.random()))]

    async with company(settings, bus, [letters]) as found:
        run = await found.submit("letters", "abcd", thread="t1", metadata={"who": "x"})
        failed = await found.ended(run)
        assert failed.status is Status.FAILED
        again = await retried(found, run)
        assert again.status is Status.FAILED, "still broken"
        assert world.done == {"a": 1, "b": 1, "c": 2}
        assert (again.attempt, again.thread, again.metadata, again.root) == (2, "t1", {"who": "x"}, again.id)
        world.broken.clear()
        last = await retried(found, again.id)
        values = result_of(last)
        assert values[:4] == ["A", "B", "C", "D"]
        assert {what: count for what, count in world.done.items() if len(what) == 1} == {"a": 1, "b": 1, "c": 3, "d": 1}
        assert last.attempt == 3
        assert [one.name for one in await Artifacts(bus, Blobs(bus)).list(last.id)] == ["word.txt"]
        assert (await found.log.require(run)).record == failed, "what has ended stays as it is"


async def test_chance_and_time_stay_what_they_were(settings: BrokerSettings, bus: Bus) -> None:
    seen: list[Any] = []
    broken = [True]

    async def note(*values: Any) -> None:
        seen.append(values)
        if broken[0]:
            raise ValueError("not yet")

    @agent("chance", retries=ONCE)
    async def chance(ctx: Context, _: Any) -> None:
        await ctx.step(note, await ctx.random(), str(await ctx.uuid()), (await ctx.now()).isoformat())

    async with company(settings, bus, [chance]) as found:
        run = await found.submit("chance")
        await found.ended(run)
        second = await retried(found, run)
        broken.clear()
        broken.append(False)
        third = await retried(found, second.id)
        assert third.status is Status.COMPLETED
        assert len(seen) == 3
        assert len(set(seen)) == 1


async def test_a_retry_is_one_run_however_often_it_is_asked_for(settings: BrokerSettings, bus: Bus) -> None:
    world = World()
    world.broken = {"x"}

    @agent("one", retries=ONCE)
    async def one(ctx: Context, what: str) -> str:
        return await ctx.step(world.act, what)

    async with company(settings, bus, [one], coordinators=2) as found:
        run = await found.submit("one", "x")
        await found.ended(run)
        world.broken.clear()
        records = await asyncio.gather(*(found.submitter.command(run, "retry") for _ in range(10)))
        assert len({record.id for record in records}) == 1
        assert result_of(await found.ended(records[0].id)) == "X"
        assert world.done == {"x": 2}


async def test_what_cannot_be_retried_is_refused(settings: BrokerSettings, bus: Bus) -> None:
    @agent("fine")
    async def fine(ctx: Context, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async with company(settings, bus, [fine]) as found:
        completed, live = await found.submit("fine", 0), await found.submit("fine", 30)
        await found.ended(completed)
        for run in (completed, live):
            with pytest.raises(IllegalTransition):
                await found.submitter.command(run, "retry")
        with pytest.raises(NotFound):
            await found.submitter.command("nowhere", "retry")
        await found.submitter.cancel(live)
        await found.ended(live)
        assert (await found.submitter.command(live, "retry")).retry_of == live, (
            "what was canceled can be taken up again"
        )


async def test_children_that_completed_are_not_started_again_and_failed_ones_go_on(
    settings: BrokerSettings, bus: Bus
) -> None:
    world = World()
    world.broken = {"bad 2"}

    @agent("leaf", retries=ONCE)
    async def leaf(ctx: Context, name: str) -> str:
        first = await ctx.step(world.act, f"{name} 1")
        return first + await ctx.step(world.act, f"{name} 2")

    @agent("parent", retries=ONCE)
    async def parent(ctx: Context, names: list[str]) -> list[str]:
        return list(await ctx.gather(*(ctx.call(leaf, name) for name in names)))

    async with company(settings, bus, [leaf, parent]) as found:
        run = await found.submit("parent", ["good", "bad", "fine"])
        assert (await found.ended(run)).status is Status.FAILED
        await eventually(lambda: world.done["fine 2"] == 1)

        async def noted() -> bool:
            return bool(await Attention(bus).items())

        await eventually(noted)
        await asyncio.sleep(0.2)
        assert [item.id for item in await Attention(bus).items()] == [run], "a child's failure is its parent's affair"
        world.broken.clear()
        record = await retried(found, run)
        assert result_of(record) == ["GOOD 1GOOD 2", "BAD 1BAD 2", "FINE 1FINE 2"]
        assert world.done == {"good 1": 1, "good 2": 1, "bad 1": 1, "bad 2": 2, "fine 1": 1, "fine 2": 1}
        found_wrong = (await audit(bus)).findings
        assert not [one for one in found_wrong if one.severity != "note"], found_wrong
        tree = await found.log.tree(record.id)
        assert [one.retry_of is not None for one in tree] == [True, True], "the parent, and the child that had failed"


async def test_a_retry_waits_until_nothing_of_the_old_run_lives(settings: BrokerSettings, bus: Bus) -> None:
    @agent("slow")
    async def slow(ctx: Context, _: Any) -> None:
        await asyncio.sleep(30)

    @agent("careless", retries=ONCE)
    async def careless(ctx: Context, _: Any) -> None:
        await ctx.start(slow)
        raise ValueError("gone")

    async with company(settings, bus, [slow, careless]) as found:
        run = await found.submit("careless")
        await found.ended(run)
        with pytest.raises(IllegalTransition, match="still live"):
            await found.submitter.command(run, "retry")
        await found.submitter.cancel(run, scope="children")
        for one in await found.log.tree(run):
            await found.ended(one.id)
        assert (await found.submitter.command(run, "retry")).retry_of == run


async def test_a_detached_child_that_lives_on_is_not_started_twice(settings: BrokerSettings, bus: Bus) -> None:
    started: list[str] = []
    broken, release = [True], asyncio.Event()

    @agent("long")
    async def long(ctx: Context, _: Any) -> str:
        started.append(ctx.run.id)
        await release.wait()
        return "at last"

    @agent("launcher", retries=ONCE)
    async def launcher(ctx: Context, _: Any) -> str:
        child = await ctx.start(long, detached=True)
        if broken:
            raise ValueError("not yet")
        return str(await child.result())

    async with company(settings, bus, [long, launcher], patience_s=0.1) as found:
        run = await found.submit("launcher")
        await found.ended(run)
        await eventually(lambda: len(started) == 1)
        broken.clear()
        record = await found.submitter.command(run, "retry")
        await asyncio.sleep(0.5)
        release.set()
        assert result_of(await found.ended(record.id)) == "at last"
        assert len(started) == 1


async def test_a_durable_sleep_that_is_over_is_not_slept_again(settings: BrokerSettings, bus: Bus) -> None:
    broken = [True]

    @agent("napping", retries=ONCE)
    async def napping(ctx: Context, _: Any) -> str:
        await ctx.sleep(timedelta(seconds=1.5))
        if broken:
            raise ValueError("not yet")
        return "awake"

    async with company(settings, bus, [napping]) as found:
        run = await found.submit("napping")
        await found.ended(run)
        broken.clear()
        record = await retried(found, run)
        assert record.started_at is not None
        assert record.ended_at is not None
        assert (record.ended_at - record.started_at).total_seconds() < 1


async def test_a_retry_survives_the_coordinator_that_made_it(settings: BrokerSettings, bus: Bus) -> None:
    """The first state is durable before the work message and the word on the old run are: a sweep makes up for both."""
    world = World()
    world.broken = {"x"}

    @agent("lonely", retries=ONCE)
    async def lonely(ctx: Context, what: str) -> str:
        return await ctx.step(world.act, what)

    async with company(settings, bus, [lonely]) as found:
        run = await found.submit("lonely", "x")
        await found.ended(run)
        world.broken.clear()
        actor = found.members[0].actor
        real = actor._carrier.settle

        async def dies(loaded: Any) -> None:
            raise NotFound("the coordinator dies here")

        actor._carrier.settle = dies
        with pytest.raises(NotFound):
            await found.submitter.command(run, "retry")
        actor._carrier.settle = real
        (record,) = [one for one in [await found.submitter.command(run, "retry")] if one.retry_of == run]
        assert result_of(await found.ended(record.id)) == "X"

        async def dropped() -> bool:
            return not await Attention(bus).items()

        await eventually(dropped)
