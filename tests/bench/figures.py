"""The figures: each function measures one, in rounds, and gives a row of the table."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from typing import Any

from callboard.topics import reads
from tests.bench import fanout, raw
from tests.bench.asking import answers, asking_memory
from tests.bench.cancel import cancel
from tests.bench.client import Client
from tests.bench.costs import costs
from tests.bench.figure import Figure, at_least, at_most, reported, spread
from tests.bench.graphs_durable import graphs_durable
from tests.bench.graphs_local import graphs_local
from tests.bench.installation import Installation, installation
from tests.bench.takeover import takeover

IN_FLIGHT = 64


async def _runs_per_s(client: Client, count: int) -> float:
    async def lane() -> None:
        for number in range(count // IN_FLIGHT):
            await client.publish("trivial", {"n": number})

    started = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))
    return (count // IN_FLIGHT) * IN_FLIGHT / (time.perf_counter() - started)


async def throughput(rounds: int, *, projector: bool) -> list[Figure]:
    """Trivial runs, 64 in flight, everything durable, each role a process of its own."""
    ratios, rates, bare = [], [], []
    async with installation(projector=projector) as found:
        client = await Client.open(found.bus)
        await _runs_per_s(client, 1280)
        for _ in range(rounds):
            before = await raw.pipelined_per_s(found.url)
            rate = await _runs_per_s(client, 6400)
            reference = (before + await raw.pipelined_per_s(found.url)) / 2
            rates.append(rate)
            bare.append(reference)
            ratios.append(reference / rate)
        await client.close()
    name = "throughput_ratio_with_projector" if projector else "throughput_ratio"
    note = f"{statistics.median(rates):.0f} runs/s against {statistics.median(bare):.0f} publishes/s; {spread(ratios)}"
    return [at_most(name, ratios, "publishes a run", 28 if projector else 20, note)]


async def latency(rounds: int) -> list[Figure]:
    """One run at a time, from publish to seen completed."""
    ratios, tails, medians = [], [], []
    async with installation() as found:
        client = await Client.open(found.bus)
        for _ in range(rounds):
            reference = await raw.sequential_s(found.url)
            times = []
            for number in range(400):
                started = time.perf_counter()
                await client.publish("trivial", {"n": number})
                times.append(time.perf_counter() - started)
            times.sort()
            p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
            ratios.append(p50 / reference)
            tails.append(p99 / p50)
            medians.append(p50)
        await client.close()
    return [
        at_most(
            "latency_ratio",
            ratios,
            "acked publishes",
            24,
            f"p50 {statistics.median(medians) * 1000:.2f} ms; {spread(ratios)}",
        ),
        at_most("latency_p99_over_p50", tails, "×", 3),
    ]


async def long_run(rounds: int) -> list[Figure]:
    """One run of 1,000 steps with results of 200 bytes."""
    speeds, growth, stored = [], [], []
    async with installation(4) as found:
        client = await Client.open(found.bus)
        for _ in range(rounds):
            reference = await raw.sequential_s(found.url)
            before = await _stored_bytes(found)
            run = await client.finish("steps", 1000)
            after = await _stored_bytes(found)
            stamps = await _step_times(found, run)
            gaps = [later - earlier for earlier, later in itertools.pairwise(stamps)]
            speeds.append(reference / ((stamps[-1] - stamps[0]) / (len(stamps) - 1)))
            growth.append(statistics.median(gaps[-100:]) / statistics.median(gaps[:100]))
            stored.append((after - before) / 1000)
        await client.close()
    return [
        at_least("steps_speed", speeds, "of raw sequential publishes/s", 1 / 3),
        at_most("steps_growth", growth, "× time a step, last 100 against first 100", 1.2),
        at_most("steps_bytes", stored, "bytes stored a step", 600),
    ]


async def _step_times(found: Installation, run: str) -> list[float]:
    stamps: list[float] = []
    async for page in reads.read(found.bus, "cb_EVENTS", f"cb.run.{run}.{run}.step"):
        stamps += [stored.time.timestamp() for stored in page]
    return stamps


async def _stored_bytes(found: Installation) -> int:
    info = await found.bus.api("STREAM.INFO.cb_EVENTS")
    assert info is not None
    return int(info["state"]["bytes"])


async def resume(rounds: int) -> list[Figure]:
    """From the second attempt's beginning to the end of the run, after 10 and after 1,000 finished steps."""
    figures = []
    async with installation(4) as found:
        client = await Client.open(found.bus)
        for count in (10, 1000):
            times = []
            for _ in range(rounds):
                run = await client.finish("restarted", count)
                stamps = [
                    stored.time.timestamp()
                    async for page in reads.read(found.bus, "cb_EVENTS", f"cb.run.{run}.{run}.state")
                    for stored in page
                ]
                times.append((stamps[-1] - stamps[-2]) * 1000)
            figures.append(reported(f"resume_{count}_steps", times, "ms"))
        await client.close()
    return figures


async def fan_out(rounds: int) -> list[Figure]:
    """5,000 events of one run to 1 and to 50 SSE clients."""
    figures = []
    async with installation(4, gateway=True) as found:
        client = await Client.open(found.bus)
        run = await client.finish("talker", 5000)
        await client.close()
        for clients, limit in ((1, 10_000), (50, 30_000)):
            rates = [await fanout.deliveries_per_s(found.http, run, clients, 5000) for _ in range(rounds)]
            figures.append(at_least(f"sse_{clients}_clients", rates, "events/s delivered", limit))
    return figures


async def memory(_: int) -> list[Figure]:
    """Resident memory of each process after 2,000 and after 20,000 runs."""
    async with installation(projector=True, gateway=True) as found:
        client = await Client.open(found.bus)
        await _runs_per_s(client, 2048)
        await asyncio.sleep(2)
        early = found.memory_kb()
        await _runs_per_s(client, 18_000)
        await asyncio.sleep(2)
        late = found.memory_kb()
        await client.close()
    return [_memory(role, early[role], late[role]) for role in early]


def _memory(role: str, early: int, late: int) -> Figure:
    ratio = late / early
    note = f"{early / 1024:.0f} MB, then {late / 1024:.0f} MB"
    if role == "nats-server":
        return Figure(
            f"memory_{role}", ratio, "× from 2,000 to 20,000 runs", note=f"{note}; grows with the subjects kept"
        )
    return Figure(f"memory_{role}", ratio, "× from 2,000 to 20,000 runs", "≤ 1.2", ratio <= 1.2, note)


ALL: dict[str, Any] = {
    "throughput": lambda rounds: throughput(rounds, projector=False),
    "projector": lambda rounds: throughput(rounds, projector=True),
    "latency": latency,
    "steps": long_run,
    "resume": resume,
    "sse": fan_out,
    "memory": memory,
    "cancel": cancel,
    "takeover": takeover,
    "answers": answers,
    "asking-memory": asking_memory,
    "costs": costs,
    "graphs-local": graphs_local,
    "graphs-durable": graphs_durable,
}
