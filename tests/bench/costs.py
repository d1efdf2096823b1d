"""What the fence of a step costs, and what an effect costs that is claimed before it is called."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable

from msgspec import Raw

from callboard.store.log import EventLog
from callboard.topics.bus import Bus
from callboard.topics.messages import Payload, Step, encode
from tests.bench.agents import PAYLOAD
from tests.bench.client import Client
from tests.bench.figure import Figure, at_most, reported
from tests.bench.installation import installation

WRITES = 1000
COUNT = 500


async def costs(rounds: int) -> list[Figure]:
    """A write of a step with and without its fence, a whole step against that, and an effect against a step."""
    fences, steps, effects, seconds = [], [], [], []
    async with installation(4) as found:
        client = await Client.open(found.bus)
        for _ in range(rounds):
            bare, fenced = await _writes_s(client, found.bus)
            step, effect = await _each_s(client, "steps"), await _each_s(client, "effects")
            fences.append(fenced / bare)
            steps.append(step / bare)
            effects.append(effect / step)
            seconds.append(effect * 1e6)
        await client.close()
    return [
        at_most("fence_cost", fences, "times the same write without a fence", 1.25),
        at_most("step_cost", steps, "times the same write without a fence", 4),
        at_most("effect_cost", effects, "times a step", 3),
        reported("effect", seconds, "µs"),
    ]


async def _each_s(client: Client, agent: str) -> float:
    """Seconds of one of many, one after another; what the run itself takes is taken off."""
    times = []
    for count in (COUNT, 0):
        started = time.perf_counter()
        await client.finish(agent, count)
        times.append(time.perf_counter() - started)
    return (times[0] - times[1]) / COUNT


async def _writes_s(client: Client, bus: Bus) -> tuple[float, float]:
    """Median seconds of one acknowledged write of a step's body after another, without and with the fence.

    By turns, so that what disturbs the machine disturbs both."""
    run, log = await client.finish("trivial", {"n": 1}), EventLog(bus)
    state = await log.require(run)
    step = Step(at="1000", name="fill", attempt=1, n=1000, value=Payload(json=Raw(b'"%s"' % PAYLOAD.encode())), ms=0.02)
    subject, body = bus.subjects.event(run, "step"), encode(step)
    writes: tuple[Callable[[], Awaitable[int]], ...] = (
        lambda: bus.write(subject, body),
        lambda: log.append(run, "step", body, state.sequence),
    )
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(WRITES):
        for kept, write in zip(times, writes, strict=True):
            started = time.perf_counter()
            await write()
            kept.append(time.perf_counter() - started)
    return statistics.median(times[0]), statistics.median(times[1])
