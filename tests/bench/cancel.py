"""How long a cancel takes to end a tree of 1,000 runs that are all being carried out."""

from __future__ import annotations

import asyncio
import time

import msgspec

from callboard.topics.bus import Bus
from callboard.topics.client import Message
from callboard.topics.ids import new_run_id
from callboard.topics.messages import TERMINAL, Command, RunRecord, Status, encode
from tests.bench import raw
from tests.bench.client import submit
from tests.bench.figure import Figure, at_most, reported
from tests.bench.installation import installation

RUNS = 1000
SHAPE = [37, 26]
"""1 + 37 + 37 · 26 runs."""
WITHIN_S = 120.0

_decode = msgspec.json.Decoder(RunRecord).decode


class Tree:
    """Follows the runs of one root."""

    def __init__(self) -> None:
        self._statuses: dict[str, Status] = {}
        self._changed = asyncio.Event()

    def heard(self, message: Message) -> None:
        """A state came in."""
        record = _decode(message.data)
        self._statuses[record.id] = record.status
        self._changed.set()

    async def all(self, *statuses: Status) -> None:
        """Waits until 1,000 runs have one of these."""
        async with asyncio.timeout(WITHIN_S):
            while sum(status in statuses for status in self._statuses.values()) < RUNS:
                self._changed.clear()
                await self._changed.wait()


async def cancel(rounds: int) -> list[Figure]:
    """A tree of 1,000 live runs on two workers, from the request to the last terminal state."""
    ratios, seconds = [], []
    async with installation(RUNS, workers=2) as found:
        for _ in range(rounds):
            reference = await raw.pipelined_per_s(found.url)
            elapsed = await _one(found.bus)
            reference = (reference + await raw.pipelined_per_s(found.url)) / 2
            ratios.append(elapsed * reference / RUNS)
            seconds.append(elapsed)
    return [
        at_most("cancel_tree_ratio", ratios, "times 1,000 acked publishes", 60),
        reported("cancel_tree", seconds, "s"),
    ]


async def _one(bus: Bus) -> float:
    tree, root = Tree(), new_run_id()
    subscription = await bus.subscribe(f"cb.live.run.{root}.*.state", tree.heard)
    await submit(bus, "branch", SHAPE, root)
    await tree.all(Status.RUNNING)
    started = time.perf_counter()
    command = encode(Command(run=root, verb="cancel"))
    request = asyncio.create_task(bus.request("cb.rpc.command", command, timeout_s=WITHIN_S))
    await tree.all(*TERMINAL)
    elapsed = time.perf_counter() - started
    await request
    await subscription.close()
    return elapsed
