"""Graphs on workers: each superstep is a checkpoint, and what was finished is not done again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import pytest

from callboard.actors.agent import Retry, Retryable, agent
from callboard.actors.audit import audit
from callboard.actors.engine import Context
from callboard.actors.graph import END, START, Graph, Send, add, append
from callboard.actors.graph.ground import Durability
from callboard.store.blobs import Blobs
from callboard.store.checkpoints import Checkpoints, Saved
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import Status
from tests.actors.company import Company, company, result_of
from tests.actors.graphs import World, serve

SOON = Retry(max_attempts=5, initial=timedelta(milliseconds=10), on=(Retryable,))


class Counted(TypedDict, total=False):
    i: int
    log: Annotated[list[str], append]


def counting(world: World, n: int) -> Graph[Any]:
    """A loop of `n` supersteps."""
    graph = Graph(Counted)

    @graph.node
    async def work(state: Counted) -> dict[str, Any]:
        i = state.get("i", 0)
        return {"i": i + 1, "log": [world.act(f"step {i}")]}

    graph.edge(START, "work")
    graph.branch("work", lambda state: "work" if state["i"] < n else END, ["work", END])
    return graph


async def history(all_: Company, run: str, namespace: str = "") -> list[Saved]:
    return await Checkpoints(all_.bus, Blobs(all_.bus)).history(run, limit=999, namespace=namespace)


async def clean(bus: Bus) -> None:
    report = await audit(bus, wait_s=1.0, blobs=True)
    assert report.clean, report.findings


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_graph_runs_to_its_end(settings: BrokerSettings, bus: Bus, durability: Durability) -> None:
    world = World()
    async with company(settings, bus, [serve(counting(world, 20), "counting", durability)]) as all_:
        record = await all_.run("counting", {})
        assert result_of(record) == {"i": 20, "log": [f"step {i}" for i in range(20)]}
        saved = await history(all_, record.id)
        if durability == "exit":
            assert [one.checkpoint.step for one in saved] == [20]
        else:
            assert [one.checkpoint.step for one in saved] == [*range(20, -1, -1)]
            assert [one.checkpoint.ran for one in saved[:-1]] == [["work"]] * 20
            assert saved[-1].checkpoint.source == "input"
            assert [one.parent for one in saved] == [*[one.id for one in saved[1:]], None]
        state = await Checkpoints(bus, Blobs(bus)).load(record.id)
        assert state is not None
        assert state.values == result_of(record)
        await clean(bus)


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_supersteps_are_not_done_again(settings: BrokerSettings, bus: Bus, durability: Durability) -> None:
    """The node that failed is the only one that runs again, in whatever attempt."""
    world = World(fails={"step 0", "step 3", "step 7"})
    async with company(settings, bus, [serve(counting(world, 10), "counting", durability, SOON)]) as all_:
        record = await all_.run("counting", {"log": ["begin"]})
        assert result_of(record)["log"] == ["begin", *[f"step {i}" for i in range(10)]]
        assert record.attempt == 4
        assert world.done == {f"step {i}": 2 if i in (0, 3, 7) else 1 for i in range(10)}
        await clean(bus)


async def test_with_exit_a_failure_loses_nothing_either(settings: BrokerSettings, bus: Bus) -> None:
    """The state is saved before the attempt ends; only a crash begins again."""
    world = World(fails={"step 5"})
    async with company(settings, bus, [serve(counting(world, 10), "counting", "exit", SOON)]) as all_:
        record = await all_.run("counting", {})
        assert world.done == {f"step {i}": 2 if i == 5 else 1 for i in range(10)}
        assert [one.checkpoint.step for one in await history(all_, record.id)] == [10, 5]
        await clean(bus)


class Wide(TypedDict, total=False):
    names: list[str]
    found: Annotated[list[str], append]
    total: Annotated[int, add]


def fanned(world: World) -> Graph[Any]:
    graph = Graph(Wide)

    @graph.node(goes=["look"])
    async def plan(state: Wide) -> dict[str, Any]:
        world.act("plan")
        return {}

    @graph.node
    async def look(name: str) -> dict[str, Any]:
        await asyncio.sleep(0.05 if name in world.fails else 0)
        return {"found": [world.act(name)], "total": 1}

    @graph.node
    async def gather(state: Wide) -> dict[str, Any]:
        world.act("gather")
        return {}

    graph.edge(START, "plan")
    graph.branch("plan", lambda state: [Send("look", name) for name in state["names"]], ["look"])
    graph.edge("look", "gather").edge("gather", END)
    return graph


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_finished_nodes_of_a_failed_superstep_are_kept(
    settings: BrokerSettings, bus: Bus, durability: Durability
) -> None:
    names = [f"name {number}" for number in range(8)]
    world = World(fails={"name 2", "name 5"})
    async with company(settings, bus, [serve(fanned(world), "fan", durability, SOON)]) as all_:
        record = await all_.run("fan", {"names": names})
        assert result_of(record) == {"names": names, "found": names, "total": 8}
        assert record.attempt == 2
        twice = {"name 2", "name 5"}
        assert world.done == {"plan": 1, "gather": 1} | {name: 1 + (name in twice) for name in names}
        await clean(bus)


async def test_a_retry_of_the_run_goes_on_from_its_newest_checkpoint(settings: BrokerSettings, bus: Bus) -> None:
    world = World(fails={"name 1"})
    once = Retry(max_attempts=1)
    async with company(settings, bus, [serve(fanned(world), "fan", "sync", once)]) as all_:
        first = await all_.run("fan", {"names": ["name 0", "name 1", "name 2"]})
        assert first.status is Status.FAILED
        second = await all_.ended((await all_.submitter.command(first.id, "retry")).id)
        assert result_of(second)["found"] == ["name 0", "name 1", "name 2"]
        assert world.done == {"plan": 1, "gather": 1, "name 0": 1, "name 1": 2, "name 2": 1}
        saved = await history(all_, second.id)
        assert [one.checkpoint.step for one in saved] == [3, 2]
        await clean(bus)


async def test_steps_inside_a_node_are_remembered(settings: BrokerSettings, bus: Bus) -> None:
    world = World(fails={"second"})
    graph = Graph(Counted)

    @graph.node
    async def work(state: Counted, ctx: Context) -> dict[str, Any]:
        one = await ctx.step(world.act, "first")
        two = world.act("second")
        return {"log": [one, two]}

    graph.edge(START, "work").edge("work", END)
    async with company(settings, bus, [serve(graph, "stepping", "sync", SOON)]) as all_:
        record = await all_.run("stepping", {})
        assert result_of(record)["log"] == ["first", "second"]
        assert world.done == {"first": 1, "second": 2}
        assert [step.at for step in await all_.steps(record.id)] == ["1/work:0"]
        await clean(bus)


async def test_a_subgraph_goes_on_inside(settings: BrokerSettings, bus: Bus) -> None:
    """What the subgraph has finished is not done again; each time its node runs it begins anew."""
    world = World(fails={"inner 1", "inner 4"})
    inner = Graph(Counted)

    @inner.node
    async def one(state: Counted) -> dict[str, Any]:
        return {"log": [world.act(f"inner {len(state['log'])}")]}

    @inner.node
    async def two(state: Counted) -> dict[str, Any]:
        return {"log": [world.act(f"inner {len(state['log'])}")], "i": state.get("i", 0) + 1}

    inner.chain(START, "one", "two", END)
    outer = Graph(Counted)
    outer.node("part", inner)
    outer.edge(START, "part")
    outer.branch("part", lambda state: "part" if state["i"] < 3 else END, ["part", END])
    async with company(settings, bus, [serve(outer, "outer", "sync", SOON)]) as all_:
        record = await all_.run("outer", {"log": []})
        assert result_of(record)["i"] == 3
        assert result_of(record)["log"] == [f"inner {i}" for i in range(6)]
        assert world.done == {f"inner {i}": 1 + (i in (1, 4)) for i in range(6)}
        inside = await history(all_, record.id, "part")
        assert {one.checkpoint.scope for one in inside} == {"3/part"}
        await clean(bus)


async def test_nodes_that_are_agents_are_child_runs_and_hold_no_worker(settings: BrokerSettings, bus: Bus) -> None:
    world = World()
    gate = asyncio.Event()

    @agent("child")
    async def child(ctx: Context, names: Any) -> dict[str, Any]:
        await gate.wait()
        return {"found": [world.act("child")]}

    graph = Graph(Wide)
    graph.node("ask", child)

    @graph.node
    async def beside(state: Wide) -> dict[str, Any]:
        return {"found": [world.act("beside")]}

    graph.edge(START, "ask").edge(START, "beside").edge("ask", END).edge("beside", END)
    async with company(settings, bus, [serve(graph, "parent"), child], patience_s=0.1) as all_:
        run = await all_.submit("parent", {"names": []})
        await all_.reaches(run, Status.WAITING)
        gate.set()
        record = await all_.ended(run)
        assert result_of(record)["found"] == ["child", "beside"]
        assert world.done == {"child": 1, "beside": 1}
        assert record.attempt == 2
        await clean(bus)


async def test_a_node_that_works_is_not_stopped_because_another_one_waits(settings: BrokerSettings, bus: Bus) -> None:
    world = World()

    @agent("slow")
    async def slow(ctx: Context, names: Any) -> dict[str, Any]:
        await asyncio.sleep(0.6)
        return {"found": ["slow"]}

    graph = Graph(Wide)
    graph.node("ask", slow)

    @graph.node
    async def busy(state: Wide) -> dict[str, Any]:
        world.act("busy begins")
        await asyncio.sleep(0.5)
        return {"found": [world.act("busy ends")]}

    graph.edge(START, "ask").edge(START, "busy").edge("ask", END).edge("busy", END)
    async with company(settings, bus, [serve(graph, "parent"), slow], patience_s=0.05) as all_:
        record = await all_.run("parent", {"names": []})
        assert result_of(record)["found"] == ["slow", "busy ends"]
        assert world.done == {"busy begins": 1, "busy ends": 1}


async def test_a_state_that_grows_costs_what_it_grows_by(settings: BrokerSettings, bus: Bus) -> None:
    """200 supersteps of 200 bytes: at most a kilobyte each, and so at the end."""
    graph = Graph(Counted)

    @graph.node
    async def work(state: Counted) -> dict[str, Any]:
        return {"i": state.get("i", 0) + 1, "log": ["x" * 197]}

    graph.edge(START, "work")
    graph.branch("work", lambda state: "work" if state["i"] < 200 else END, ["work", END])
    async with company(settings, bus, [serve(graph, "grows")]) as all_:
        record = await all_.run("grows", {"log": []}, within_s=30)
        assert record.status is Status.COMPLETED
        saved = await history(all_, record.id)
        info = await bus.api(f"STREAM.INFO.OBJ_{bus.subjects.blobs}", missing_ok=True)
        stored = sum(one.size_bytes for one in saved) + (info["state"]["bytes"] if info else 0)
        assert stored / 200 <= 1024, stored / 200
