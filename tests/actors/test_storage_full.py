"""Streams without room: whoever publishes hears it at once, what is done waits to be written down, and all that was
acknowledged ends once there is room again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from callboard.actors.agent import agent
from callboard.actors.engine import Context, context
from callboard.actors.engine.errors import StepFailed
from callboard.store.artifacts import Artifacts
from callboard.store.blobs import Blobs
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import StorageFull
from callboard.topics.ids import new_run_id
from callboard.topics.messages import Artifact, Event, Status
from tests.actors.company import Company, company, eventually, result_of
from tests.support.invariants import check
from tests.support.storage import full

AT_ONCE_S = 1.0
LARGE = "x" * 300_000


class Stage:
    """Where the agents of a test wait for it, and what they have executed."""

    def __init__(self) -> None:
        self.go, self.arrived = asyncio.Event(), asyncio.Event()
        self.executed: Counter[str] = Counter()

    async def here(self, what: str) -> str:
        self.executed[what] += 1
        self.arrived.set()
        await self.go.wait()
        return what


stage: Stage


@agent("worker")
async def worker(ctx: Context, asked: dict[str, Any]) -> Any:
    """A step that ends when the test says so, and then whatever `then` asks for."""
    await ctx.step(stage.here, "step", name="step")
    match asked.get("then"):
        case "told":
            await ctx.emit("news", {"n": 1})
            await ctx.stream("a piece of text")
            await ctx.artifact("report", asked.get("content", "short"))
        case "children":
            return await ctx.gather(*(ctx.call("child", n) for n in range(3)))
        case "sleep":
            await ctx.sleep(timedelta(seconds=0.05))
        case "large":
            return await ctx.step(lambda: LARGE, name="large", returns=str)
    return await ctx.step(lambda: "done", name="last", returns=str)


@agent("child", topics=["jobs"])
async def child(ctx: Context, n: int) -> int:
    stage.executed[f"child {n}"] += 1
    return n


@agent("speaker")
async def speaker(ctx: Context, text: str) -> str:
    try:
        await ctx.publish("news", text, key="k")
    except StepFailed as failed:
        return failed.error.code
    return "published"


AGENTS = (worker, child, speaker)


@pytest.fixture
async def firm(settings: BrokerSettings, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Company]:
    global stage
    monkeypatch.setattr(context, "_SHORT_S", 0.0)  # every sleep is a durable timer
    stage = Stage()
    async with company(settings, bus, AGENTS, coordinators=2, patience_s=0.0) as found:
        yield found


async def refused(call: Any) -> None:
    """It is told at once, by the error that says so."""
    began = time.monotonic()
    with pytest.raises(StorageFull) as caught:
        await call
    assert time.monotonic() - began < AT_ONCE_S
    assert caught.value.code == "storage_full"
    assert caught.value.retryable


async def all_ended(firm: Company, *runs: str) -> None:
    for run in runs:
        await firm.ended(run)
    await check(firm.bus, runs)


async def at_the_step(firm: Company, **asked: Any) -> str:
    """A run whose step is being executed."""
    stage.arrived.clear()
    run = await firm.submit("worker", asked)
    await stage.arrived.wait()
    return run


async def test_without_room_in_the_log_submits_and_cancels_are_refused_and_tasks_are_kept(
    firm: Company, bus: Bus
) -> None:
    run, held = new_run_id(), await at_the_step(firm)
    async with full(bus, bus.subjects.events):
        await refused(firm.submit("child", 1, run=run))
        await refused(firm.submitter.cancel(held))
        task = new_run_id()
        await firm.submitter.publish("jobs", b"2", run=task)
    assert await firm.log.load(run) is None
    assert await firm.submit("child", 1, run=run) == run
    await firm.submitter.cancel(held)
    stage.go.set()
    await all_ended(firm, run, held, task)
    assert stage.executed == {"step": 1, "child 1": 1, "child 2": 1}


@pytest.mark.parametrize("then", ["", "told", "children", "sleep"])
async def test_what_a_run_has_done_waits_for_room_in_the_log(firm: Company, bus: Bus, then: str) -> None:
    """Its step has ended, and cannot be written down; nor can anything that comes after it."""
    run = await at_the_step(firm, then=then)
    async with full(bus, bus.subjects.events):
        stage.go.set()
        await asyncio.sleep(0.3)
        record = await firm.record(run)
        assert (record.status, record.attempt, record.failures) == (Status.RUNNING, 1, 0)
    record = await firm.ended(run)
    assert result_of(record) == ([0, 1, 2] if then == "children" else "done")
    assert record.failures == record.losses == 0
    assert set(stage.executed.values()) == {1}
    told = await firm.told(run)
    if then == "told":
        assert [type(one) for one in told if not hasattr(one, "status")] == [Event, Event, Artifact]
    await check(bus, [run])


async def test_an_outcome_waits_for_room_in_the_log(firm: Company, bus: Bus) -> None:
    stage.go.set()
    runs = [await firm.submit("worker", {"then": "sleep"}) for _ in range(5)]
    await eventually(lambda: stage.executed["step"] == 5)
    async with full(bus, bus.subjects.events):
        await asyncio.sleep(0.3)
    await all_ended(firm, *runs)
    assert stage.executed == {"step": 5}


@pytest.mark.parametrize("then", ["children", "sleep"])
async def test_without_room_for_work_runs_wait_for_it(firm: Company, bus: Bus, then: str) -> None:
    """Children that cannot be dispatched, a timer that cannot bring its run back; and a submit is refused, although its
    run exists: asked again it is the same."""
    run, other = await at_the_step(firm, then=then), new_run_id()
    async with full(bus, bus.subjects.work_stream):
        stage.go.set()
        await refused(firm.submit("child", 7, run=other))
        task = new_run_id()
        await firm.submitter.publish("jobs", b"8", run=task)
        await asyncio.sleep(0.3)
        if then == "children":  # else the end of the run's own work message has made the room it needs
            assert not (await firm.record(run)).terminal
    assert await firm.submit("child", 7, run=other) == other
    await all_ended(firm, run, other, task)
    assert set(stage.executed.values()) == {1}


async def test_without_room_for_topics_the_agent_hears_it(firm: Company, bus: Bus) -> None:
    async with full(bus, bus.subjects.topics):
        assert result_of(await firm.run("speaker", "a")) == "storage_full"
    assert result_of(await firm.run("speaker", "b")) == "published"
    assert await firm.waiting_messages(bus.subjects.topics) == 1


async def test_without_room_for_blobs_large_values_wait_and_large_inputs_are_refused(firm: Company, bus: Bus) -> None:
    blobs = Blobs(bus)
    await blobs.ensure()
    runs = [await at_the_step(firm, then="large"), await at_the_step(firm, then="told", content=LARGE[:1])]
    large = await firm.submit("worker", {"then": "told", "content": LARGE})
    async with full(bus, f"OBJ_{blobs.bucket}"):
        stage.go.set()
        await refused(firm.submit("worker", {"then": LARGE + "y"}))
        await firm.ended(runs[1])
        await asyncio.sleep(0.2)
        assert (await firm.record(runs[0])).status is Status.RUNNING
    await all_ended(firm, *runs, large)
    result = (await firm.record(runs[0])).result
    assert result is not None
    assert msgspec.json.decode(await blobs.value(result)) == LARGE
    assert (await Artifacts(bus, blobs).read(large, "report"))[1] == LARGE.encode()
    assert stage.executed == {"step": 3}
