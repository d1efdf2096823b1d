"""Graphs as runs on a worker: supersteps a second beside LangGraph with its SQLite saver in the same run, what a step
stores, what loading costs, and how soon an answered run goes on."""

from __future__ import annotations

import asyncio
import importlib
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from callboard.store.blobs import Blobs
from callboard.store.checkpoints import Checkpoints, Saved
from callboard.store.log import EventLog
from callboard.store.submit import Submitter
from callboard.topics import reads
from callboard.topics.messages import NOTHING, Answer, Checkpoint, Payload, RunRecord, Status, TaskRequest
from callboard.topics.units import now
from tests.bench.client import Client
from tests.bench.figure import Figure, at_least, at_most, reported
from tests.bench.graphs_local import Theirs, work
from tests.bench.installation import Installation, installation

STEPS = 200
LONG = 1000
LOADS = 200


async def _run(client: Client, steps: int) -> tuple[str, float]:
    began = time.perf_counter()
    run = await client.finish("grower", {"until": steps})
    return run, time.perf_counter() - began


async def _theirs(steps: int) -> float | None:
    """Seconds of LangGraph's loop with AsyncSqliteSaver on a file, durable each step; None if it is not installed."""
    try:
        library = importlib.import_module("langgraph.graph")
        saver = importlib.import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver
    except ImportError:
        return None
    graph = library.StateGraph(Theirs)
    graph.add_node("work", work)
    graph.add_edge(library.START, "work")
    graph.add_conditional_edges(
        "work", lambda state: "work" if state["n"] < steps else library.END, ["work", library.END]
    )
    with TemporaryDirectory() as folder:
        async with saver.from_conn_string(str(Path(folder) / "their.db")) as kept:
            compiled = graph.compile(checkpointer=kept)
            began = time.perf_counter()
            config = {"configurable": {"thread_id": "1"}, "recursion_limit": steps + 10}
            await compiled.ainvoke({"n": 0, "log": []}, config, durability="sync")
            return time.perf_counter() - began


async def graphs_durable(rounds: int) -> list[Figure]:
    """All figures of durable graphs."""
    async with installation() as found:
        client = await Client.open(found.bus)
        await _run(client, 50)
        figures = await _beside(client, rounds)
        figures += await _stored(found, client, rounds)
        await client.close()
        figures += await _loads(found, rounds)
        figures += await _answers(found, rounds)
    return figures


async def _beside(client: Client, rounds: int) -> list[Figure]:
    rates, ratios, others = [], [], []
    for _ in range(rounds):
        rates.append(STEPS / (await _run(client, STEPS))[1])
        theirs = await _theirs(STEPS)
        if theirs is not None:
            others.append(STEPS / theirs)
            ratios.append(rates[-1] / others[-1])
    figures = [reported("graph_durable_steps_per_s", rates, f"supersteps/s, a run of {STEPS} on a worker")]
    if ratios:
        note = f"LangGraph in process in the same run: {min(others):.0f} to {max(others):.0f} supersteps/s"
        figures.append(at_least("graph_durable_ratio", ratios, "× LangGraph with AsyncSqliteSaver", 3, note))
    return figures


async def _stored(found: Installation, client: Client, rounds: int) -> list[Figure]:
    """Bytes a step, by the sizes of the stored messages and blobs; and whether later steps take longer."""
    sizes: dict[int, float] = {}
    growth = []
    for steps in (STEPS, *[LONG] * rounds):
        before = await _blob_bytes(found)
        run, _ = await _run(client, steps)
        history = await Checkpoints(found.bus, Blobs(found.bus)).history(run, limit=steps + 1)
        stored = sum(saved.size_bytes for saved in history) + await _blob_bytes(found) - before
        sizes[steps] = stored / steps
        if steps == LONG:
            growth.append(_pace(history[:50]) / _pace(history[-60:-10]))
    return [
        at_most("graph_bytes_per_step_200", [sizes[STEPS]], "bytes a step of 200 new ones, 200 steps", 1024),
        at_most("graph_bytes_per_step_1000", [sizes[LONG]], "bytes a step of 200 new ones, 1,000 steps", 1024),
        at_most("graph_step_growth", growth, "× the time a step, the last 50 of 1,000 against steps 10 to 60", 1.2),
    ]


def _pace(history: list[Saved]) -> float:
    return (history[0].time - history[-1].time).total_seconds() / (len(history) - 1)


async def _blob_bytes(found: Installation) -> int:
    info = await found.bus.api(f"STREAM.INFO.OBJ_{found.bus.subjects.blobs}", missing_ok=True)
    return int(info["state"]["bytes"]) if info else 0


async def _loads(found: Installation, rounds: int) -> list[Figure]:
    """The newest state of a run with 10 and with 10,000 checkpoints, of one size: a counter, and four texts of which
    the last step has changed one."""
    short, long = await _chain(found, 10), await _chain(found, 10_000)
    store, ratios, gets = Checkpoints(found.bus, Blobs(found.bus)), [], []
    for _ in range(rounds):
        first, second, get = await _medians_s(
            lambda: store.load(short), lambda: store.load(long), lambda: _newest(found, long)
        )
        ratios.append(second / first)
        gets.append(second / get)
    return [
        at_most("state_load_growth", ratios, "× the time to load the newest state, 10,000 steps against 10", 1.2),
        at_most("state_load_gets", gets, "× one direct get, to load the newest state after 10,000 steps", 10),
    ]


async def _medians_s(*calls: Callable[[], Awaitable[Any]]) -> list[float]:
    """The median time of each, called in turn, so that what else the machine does is the same for all."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(LOADS):
        for call, known in zip(calls, times, strict=True):
            began = time.perf_counter()
            await call()
            known.append(time.perf_counter() - began)
    return [statistics.median(known) for known in times]


async def _newest(found: Installation, run: str) -> None:
    subjects = found.bus.subjects
    await reads.last(found.bus, subjects.events, subjects.event(run, "checkpoint"))


async def _chain(found: Installation, steps: int) -> str:
    """A run whose checkpoints are written here, as an attempt writes them."""
    log, run = EventLog(found.bus), f"chain-{steps}"
    record = RunRecord(
        id=run, root=run, agent="a", status=Status.COMPLETED, input=NOTHING, created_at=now(), updated_at=now()
    )  # fmt: skip
    owner = await log.append_state(record, 0)

    async def nothing() -> None: ...

    scribe = Checkpoints(found.bus, Blobs(found.bus)).scribe(nothing)
    values: dict[str, Any] = {f"text_{number}": "x" * 200 for number in range(4)}
    for step in range(steps):
        values |= {"n": step, f"text_{step % 4}": f"{step:0200}"}
        frame = Checkpoint(attempt=1, n=step + 1, source="loop", agent="a", step=step)
        raws = {name: msgspec.json.encode(value) for name, value in values.items()}
        sheet = await scribe.sheet(frame, raws.keys(), raws.__getitem__)
        sheet.written(await log.append(run, "checkpoint", sheet.body(), owner))
    return run


async def _answers(found: Installation, rounds: int) -> list[Figure]:
    """From an answer to the next superstep's checkpoint, through the queue and the worker, in turn with trivial runs:
    what else the machine does slows both."""
    client = await Client.open(found.bus)
    times: dict[int, list[float]] = {5: [], 50: [], 500: []}
    trivial = []
    for _ in range(rounds * 5):
        for step, known in times.items():
            known.append(await _answered_s(found, step))
            began = time.perf_counter()
            await client.finish("trivial", {"n": 1})
            trivial.append(time.perf_counter() - began)
    await client.close()
    medians = {step: statistics.median(known) for step, known in times.items()}
    note = ", ".join(f"{step}: {median * 1000:.2f} ms" for step, median in medians.items())
    note += f"; a trivial run {statistics.median(trivial) * 1000:.2f} ms"
    slowest, quickest = max(medians.values()), min(medians.values())
    ratio = slowest / statistics.median(trivial)
    return [
        at_most("graph_resume_p50", [slowest * 1000], "ms from an answer to the next step", 8, note),
        at_most("graph_resume_ratio", [ratio], "× a trivial run in turn (8 ms against 3.0 on a quiet machine)", 2.6),
        at_most("graph_resume_growth", [slowest / quickest], "× after 5, 50 and 500 steps, slowest to quickest", 1.2),
    ]


async def _answered_s(found: Installation, step: int) -> float:
    bus, submitter = found.bus, Submitter(found.bus, Blobs(found.bus))
    run = await _asked(found, submitter, step)
    ended = asyncio.Event()
    subject = bus.subjects.live_of(bus.subjects.event(run, "checkpoint"))
    seen = await bus.subscribe(subject, lambda _: ended.set())
    await bus.client.flush()
    began = time.perf_counter()
    await submitter.resume(run, [Answer(value=Payload(json=msgspec.Raw(b'"go on"')))])
    async with asyncio.timeout(10):
        await ended.wait()
    took = time.perf_counter() - began
    await seen.close()
    return took


async def _asked(found: Installation, submitter: Submitter, step: int) -> str:
    """A run that waits for an answer after so many supersteps."""
    reply = await submitter.submit(TaskRequest(agent="pauser"), msgspec.json.encode({"until": step}))
    assert reply.run is not None
    log = EventLog(found.bus)
    async with asyncio.timeout(30):
        while (loaded := await log.load(reply.run)) is None or loaded.record.status is not Status.INPUT_REQUIRED:
            await asyncio.sleep(0.01)
    return reply.run
