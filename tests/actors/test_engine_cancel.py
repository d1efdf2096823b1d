"""Cancels that an agent asks for, and siblings that end with the first failure."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from callboard.actors.agent import Agent, Retry, agent
from callboard.actors.engine import ChildFailed, Context
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import InvalidInput
from callboard.topics.ids import child_run_id
from callboard.topics.messages import Status
from tests.actors.company import company, result_of

ONCE = Retry(max_attempts=1)


@agent("endless")
async def endless(ctx: Context) -> None:
    """Ends only when it is canceled."""
    await ctx.sleep(3600)


@agent("parent")
async def parent(ctx: Context) -> None:
    """Has an endless child."""
    await ctx.call("endless")


@agent("quick")
async def quick(ctx: Context) -> int:
    """Ends at once."""
    return 1


@agent("failing", retries=ONCE)
async def failing(ctx: Context) -> None:
    """Fails at once."""
    raise ValueError("no")


async def test_an_agent_cancels_a_child_with_all_below_it_once(settings: BrokerSettings, bus: Bus) -> None:
    executed: Counter[str] = Counter()

    @agent("lead")
    async def lead(ctx: Context) -> list[Any]:
        child, other, done = await ctx.start("parent"), await ctx.start("endless"), await ctx.start("quick")
        await done.result()
        executed["begun"] += 1
        found = [await child.cancel(reason="enough"), await ctx.cancel(other.id, action="interrupt")]
        found.append(await done.cancel())  # it has ended: nothing to end, and no error
        ended = await ctx.gather(child.result(), other.result(), return_exceptions=True)
        if ctx.run.attempt == 1:
            raise ConnectionError("once more")
        return [*found, *(one.status for one in ended)]

    async with company(settings, bus, [lead, parent, endless, quick]) as all_:
        run = await all_.submit("lead")
        record = await all_.ended(run)
        found = result_of(record)
        assert found[0] in ("cancel_requested", "canceled")
        assert found[1] in ("cancel_requested", "interrupted")
        assert found[2:] == ["completed", "canceled", "interrupted"]
        tree = {one.id: one for one in await all_.log.tree(run)}
        assert (tree[child_run_id(run, "0")].reason or "").startswith("enough")
        assert f"canceled by run {run}" in (tree[child_run_id(run, "1")].reason or "")
        below = tree[child_run_id(child_run_id(run, "0"), "0")]
        assert below.status is Status.CANCELED
        cancels = [one for one in await all_.steps(run) if one.name.startswith("cancel:")]
        assert len(cancels) == 3, "the second attempt remembers"
        assert executed["begun"] == 2


@pytest.mark.parametrize("first", ["leaf", "children of the middle", "leaf's time"])
async def test_a_tree_ends_when_the_last_of_it_ends_whoever_had_canceled_that(
    settings: BrokerSettings, bus: Bus, first: str
) -> None:
    """The last one alive is two below the root, what is between has ended, and the word to end was not the root's."""
    begun, let_go = asyncio.Event(), asyncio.Event()
    limit = timedelta(seconds=1) if first == "leaf's time" else None

    @agent("stubborn", retries=ONCE, deadline=limit)
    async def stubborn(ctx: Context) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await let_go.wait()

    @agent("middle")
    async def middle(ctx: Context) -> None:
        await ctx.call("stubborn")

    @agent("root")
    async def root(ctx: Context) -> None:
        await ctx.call("middle")

    async with company(settings, bus, [root, middle, stubborn], patience_s=0.05) as all_:
        run = await all_.submit("root")
        await begun.wait()
        between = child_run_id(run, "0")
        leaf = child_run_id(between, "0")
        for one in (run, between):
            await all_.reaches(one, Status.WAITING)
        if first == "leaf":
            await all_.submitter.cancel(leaf)
        elif first == "children of the middle":
            await all_.submitter.cancel(between, scope="children")
        await all_.reaches(leaf, Status.CANCEL_REQUESTED)
        _, alive = await all_.submitter.cancel(run)
        assert leaf in {one.run for one in alive}
        await all_.reaches(between, Status.CANCELED)
        assert (await all_.record(run)).status is Status.CANCEL_REQUESTED
        let_go.set()
        assert (await all_.ended(run, 5)).status is Status.CANCELED


async def test_a_run_that_cancels_itself_ends_there(settings: BrokerSettings, bus: Bus) -> None:
    after: list[str] = []

    @agent("quits")
    async def quits(ctx: Context) -> None:
        await ctx.start("endless")
        await ctx.cancel(ctx.run.id, action="rollback")
        after.append("went on")

    async with company(settings, bus, [quits, endless]) as all_:
        record = await all_.run("quits")
        assert record.status is Status.ROLLED_BACK
        assert record.reason == "canceled by itself"
        assert {one.status for one in await all_.log.tree(record.id)} == {Status.ROLLED_BACK}
        assert after == []


async def test_children_of_its_own_run_alone(settings: BrokerSettings, bus: Bus) -> None:
    @agent("clears")
    async def clears(ctx: Context) -> str:
        child = await ctx.start("endless")
        await ctx.cancel(ctx.run.id, scope="children")
        with pytest.raises(ChildFailed) as found:
            await child.result()
        return str(found.value.facts["status"])

    async with company(settings, bus, [clears, endless]) as all_:
        assert result_of(await all_.run("clears")) == "canceled"


async def test_without_fail_fast_the_siblings_of_a_failed_child_go_on(settings: BrokerSettings, bus: Bus) -> None:
    @agent("patient")
    async def patient(ctx: Context) -> list[str]:
        other = ctx.call("slow")
        with pytest.raises(ChildFailed):
            await ctx.gather(ctx.call("failing"), other)
        return ["went on"]

    @agent("slow")
    async def slow(ctx: Context) -> int:
        await asyncio.sleep(0.3)
        return 3

    async with company(settings, bus, [patient, slow, failing]) as all_:
        record = await all_.run("patient")
        assert result_of(record) == ["went on"]
        sibling = await all_.ended(child_run_id(record.id, "0"))
        assert sibling.status is Status.COMPLETED


async def test_with_fail_fast_the_first_failure_ends_the_runs_of_the_others(settings: BrokerSettings, bus: Bus) -> None:
    seen: list[str] = []
    alive: set[str] = set()
    both_live = asyncio.Event()

    @agent("endless")
    async def endless(ctx: Context) -> None:
        alive.add(ctx.run.id)
        if len(alive) == 2:
            both_live.set()
        await ctx.sleep(3600)

    @agent("failing", retries=ONCE)
    async def failing(ctx: Context) -> None:
        """Fails when the sibling, and the child of the other sibling, have begun."""
        await both_live.wait()
        raise ValueError("no")

    @agent("hasty")
    async def hasty(ctx: Context) -> str:
        with pytest.raises(InvalidInput):
            await ctx.gather(fail_fast=True, return_exceptions=True)
        try:
            await ctx.gather(
                ctx.call("parent"), ctx.call("quick"), ctx.call("failing"), ctx.call("endless"), fail_fast=True
            )
        except ChildFailed as error:
            seen.append(str(error.facts["agent"]))
        if ctx.run.attempt == 1:
            raise ConnectionError("once more")
        return f"{await ctx.gather(ctx.call('quick'), fail_fast=True)}"

    agents: list[Agent[Any]] = [hasty, parent, quick, failing, endless]
    async with company(settings, bus, agents, concurrency=2, patience_s=0.05) as all_:
        record = await all_.run("hasty")
        assert result_of(record) == "[1]"
        assert set(seen) == {"failing"}
        tree = await all_.log.tree(record.id)
        ended = [await all_.ended(one.id) for one in tree]
        found = Counter((one.agent, str(one.status)) for one in ended)
        assert found == {
            ("hasty", "completed"): 1, ("parent", "canceled"): 1, ("endless", "canceled"): 2,
            ("failing", "failed"): 1, ("quick", "completed"): 2,
        }  # fmt: skip
