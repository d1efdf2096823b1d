"""Interrupts: how soon a run goes on behind an answer, whatever it has done before, and what runs that ask cost."""

from __future__ import annotations

import asyncio
import statistics
import time

import msgspec

from callboard.store.blobs import Blobs
from callboard.store.submit import Submitter
from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.client import Message
from callboard.topics.messages import Answer, Payload
from tests.bench.client import submit
from tests.bench.figure import Figure, at_most, reported
from tests.bench.installation import Installation, installation

DEPTHS = (5, 50, 500)
"""Steps before the interrupt, each with a checkpoint."""
SAMPLES = 30
ASKING = 10_000
ANSWER = Answer(id="go", value=Payload(json=msgspec.Raw(b"1")))


class Watch:
    """Waits for the next event of a run that holds a text."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._wanted: dict[str, tuple[bytes, asyncio.Future[None]]] = {}

    async def open(self) -> None:
        """Begins to follow."""
        for kind in ("state", "step"):
            await self._bus.subscribe(f"{self._bus.subjects.live}.run.*.*.{kind}", self._heard)

    def _heard(self, message: Message) -> None:
        text, future = self._wanted.get(message.subject.split(".")[4], (b"\0", None))
        if future is not None and text in message.data and not future.done():
            future.set_result(None)

    def expect(self, run: str, text: bytes) -> asyncio.Future[None]:
        """Done when an event of the run holds the text."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted[run] = (text, future)
        return future


async def _asking(found: Installation, watch: Watch, agent: str, depth: int) -> str:
    run = await submit(found.bus, agent, depth)
    if b'"status":"input_required"' not in await _last(found.bus, run):
        future = watch.expect(run, b'"status":"input_required"')
        if b'"status":"input_required"' not in await _last(found.bus, run):
            await future
    return run


async def _last(bus: Bus, run: str) -> bytes:
    stored = await reads.last(bus, bus.subjects.events, bus.subjects.state(run))
    return stored.data if stored else b""


async def _answered_ms(found: Installation, watch: Watch, agent: str, depth: int) -> list[float]:
    """From the answer to the result of the next step, of some runs one after another."""
    submitter, times = Submitter(found.bus, Blobs(found.bus)), []
    for _ in range(SAMPLES):
        run = await _asking(found, watch, agent, depth)
        await asyncio.sleep(0.01)
        future = watch.expect(run, b'"name":"after"')
        began = time.perf_counter()
        await submitter.resume(run, [ANSWER])
        await future
        times.append((time.perf_counter() - began) * 1000)
    return sorted(times)


async def answers(rounds: int) -> list[Figure]:
    """Resume to next step done, through the coordinator, the queue and a worker."""
    medians: dict[int, list[float]] = {depth: [] for depth in DEPTHS}
    journals: list[float] = []
    async with installation() as found:
        watch = Watch(found.bus)
        await watch.open()
        for _ in range(rounds):
            for depth in DEPTHS:
                medians[depth].append(statistics.median(await _answered_ms(found, watch, "asks", depth)))
            journals.append(statistics.median(await _answered_ms(found, watch, "asks_journal", 500)))
    ratios = [b / a for a, b in zip(medians[5], medians[500], strict=True)]
    return [
        *(at_most(f"answer_to_next_step_{depth}", medians[depth], "ms p50", 8) for depth in DEPTHS),
        at_most("answer_500_over_5", ratios, "×", 1.2),
        reported("answer_without_checkpoints_500", journals, "ms p50"),
    ]


async def asking_memory(_: int) -> list[Figure]:
    """What runs that ask leave in the processes that have dealt with them."""
    async with installation() as found:
        watch = Watch(found.bus)
        await watch.open()
        await _many(found, watch, ASKING)  # what an interpreter keeps for itself has been taken by then
        before = found.memory_kb()
        await _many(found, watch, ASKING)
        after = found.memory_kb()
    roles = [role for role in before if role != "nats-server"]
    return [
        at_most(
            f"asking_memory_{role}", [(after[role] - before[role]) / 1024], f"MB for {ASKING} runs", 4,
            f"{before[role] / 1024:.1f} MB, then {after[role] / 1024:.1f} MB",
        )
        for role in roles
    ]  # fmt: skip


async def _many(found: Installation, watch: Watch, count: int) -> None:
    async def lane() -> None:
        for _ in range(count // 32):
            await _asking(found, watch, "asks", 0)

    await asyncio.gather(*(lane() for _ in range(32)))
    await asyncio.sleep(1)
