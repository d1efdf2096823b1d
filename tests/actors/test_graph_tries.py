"""Tries of a node: what one of them has finished is not done again by the next, in the same attempt or another one."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from datetime import timedelta
from typing import Annotated, Any, TypedDict

from callboard.actors.agent import Retry, Retryable, agent
from callboard.actors.engine import ChildFailed, Context
from callboard.actors.graph import END, START, Graph, append
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from tests.actors.company import company, result_of
from tests.actors.graphs import World

SOON = Retry(max_attempts=4, initial=timedelta(milliseconds=1), on=(Exception,))
AGAIN = Retry(max_attempts=2, initial=timedelta(milliseconds=1), on=(Retryable,))


class Told(TypedDict, total=False):
    log: Annotated[list[Any], append]


def graph_of(node: Any, retries: Retry = SOON) -> Graph[Any]:
    graph = Graph(Told)
    graph.node("work", node, retries=retries)
    return graph.chain(START, "work", END)


async def test_operations_that_are_finished_are_remembered_by_the_next_try(settings: BrokerSettings, bus: Bus) -> None:
    world = World(fails={"child bad", "step", "node"})
    ids: set[uuid.UUID] = set()

    @agent("helper", retries=Retry(max_attempts=1))
    async def helper(ctx: Context, name: str) -> str:
        return world.act(f"child {name}")

    async def work(state: Told, ctx: Context) -> dict[str, Any]:
        ids.add(await ctx.uuid())
        world.done["tries"] += 1
        first = await ctx.step(world.act, "first")
        sent = await ctx.effect("send", world.act, "effect")
        both = await asyncio.gather(ctx.step(world.act, "left"), ctx.step(world.act, "right"))
        good = await ctx.call("helper", "good")
        try:
            bad = await ctx.call("helper", "bad")
        except ChildFailed as error:
            raise Retryable("the child failed") from error
        step = await ctx.step(world.act, "step")
        return {"log": [first, sent, *both, good, bad, step, world.act("node")]}

    async with company(settings, bus, [helper, graph_of(work).agent("graph")]) as all_:
        record = await all_.run("graph", {})
        log = ["first", "effect", "left", "right", "child good", "child bad", "step", "node"]
        assert result_of(record) == {"log": log}
        assert record.attempt == 1
    assert world.done == {
        "tries": 4, "first": 1, "effect": 1, "left": 1, "right": 1, "child good": 1, "child bad": 2, "step": 2,
        "node": 2,
    }  # fmt: skip
    assert len(ids) == 1


async def test_the_next_attempt_remembers_what_any_try_has_finished(settings: BrokerSettings, bus: Bus) -> None:
    """The first attempt fails once after `one`, then, in its second try, for good after `two`."""
    world = World(fails={"early"})

    async def work(state: Told, ctx: Context) -> dict[str, Any]:
        one = await ctx.step(world.act, "one")
        if world.done["tries"] == 0:
            world.done["tries"] += 1
            raise ValueError("early")
        two = await ctx.step(world.act, "two")
        world.done["tries"] += 1
        if world.done["tries"] == 2:
            raise Retryable("late")
        return {"log": [one, two]}

    only = Retry(max_attempts=3, initial=timedelta(0), on=(ValueError,), never=(Retryable,))
    async with company(settings, bus, [graph_of(work, only).agent("graph", retries=AGAIN)]) as all_:
        record = await all_.run("graph", {})
        assert result_of(record) == {"log": ["one", "two"]}
        assert record.attempt == 2
    assert world.done == {"one": 1, "two": 1, "tries": 3}


async def test_a_step_that_failed_in_every_try_is_due_in_the_first_try_of_the_next_attempt(
    settings: BrokerSettings, bus: Bus
) -> None:
    done: Counter[str] = Counter()

    def step() -> str:
        done["step"] += 1
        if done["step"] <= 2:
            raise Retryable("not yet")
        return "at last"

    async def work(state: Told, ctx: Context) -> dict[str, Any]:
        done["tries"] += 1
        return {"log": [await ctx.step(step)]}

    async with company(settings, bus, [graph_of(work, AGAIN).agent("graph", retries=AGAIN)]) as all_:
        record = await all_.run("graph", {})
        assert result_of(record) == {"log": ["at last"]}
        assert record.attempt == 2
    assert done == {"step": 3, "tries": 3}


async def test_in_process_it_is_the_same() -> None:
    world = World(fails={"second", "node"})

    async def work(state: Told, ctx: Any) -> dict[str, Any]:
        return {"log": [await ctx.step(world.act, "first"), await ctx.step(world.act, "second"), world.act("node")]}

    assert await graph_of(work).run({}) == {"log": ["first", "second", "node"]}
    assert world.done == {"first": 1, "second": 2, "node": 2}
