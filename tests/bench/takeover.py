"""How soon the runs of a worker that was killed, or that stands still, go on with the other one."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence

import msgspec

from callboard.topics.bus import Bus
from callboard.topics.client import Message
from callboard.topics.messages import Command, RunRecord, Status, encode
from tests.bench.client import submit
from tests.bench.figure import Figure, at_most, spread
from tests.bench.installation import Installation, installation

RUNS = 64
LEASE_S = 2.0
WITHIN_S = 60.0

_decode = msgspec.json.Decoder(RunRecord).decode


class Attempts:
    """When each attempt began, and where: by run and number."""

    def __init__(self) -> None:
        self.begun: dict[tuple[str, int], tuple[float, str]] = {}
        self._changed = asyncio.Event()

    def heard(self, message: Message) -> None:
        """A state came in."""
        record = _decode(message.data)
        if record.status is Status.RUNNING:
            self.begun.setdefault((record.id, record.attempt), (time.perf_counter(), record.worker or ""))
            self._changed.set()

    async def all(self, runs: Sequence[str], attempt: int) -> None:
        """Waits until this attempt of all these runs has begun."""
        async with asyncio.timeout(WITHIN_S):
            while not all((run, attempt) in self.begun for run in runs):
                self._changed.clear()
                await self._changed.wait()


async def takeover(rounds: int) -> list[Figure]:
    """From the kill of a worker to the next attempt of each of its runs; the same for one that is stopped."""
    killed, stalled = [], []
    async with installation(workers=2) as found:
        for number in range(rounds):
            name = f"worker-{number % 2 + 1}"
            killed += await _taken(found, name, signal.SIGKILL)
            await found.stop(name)
            await found.start_worker(name, 64)
            await found.ready()
    async with installation(workers=2, CALLBOARD_LEASE_S=str(LEASE_S)) as found:
        for number in range(rounds):
            name = f"worker-{number % 2 + 1}"
            stalled += await _taken(found, name, signal.SIGSTOP)
            found.signal(name, signal.SIGCONT)
            await found.ready()
    note = f"lease {LEASE_S:g} s; {spread(stalled)}"
    return [
        at_most("takeover_after_kill", killed, "s, p50", 1.0, f"{len(killed)} runs; {spread(killed)}"),
        at_most("takeover_after_stall", [max(stalled)], "s, the slowest", LEASE_S + 1.0, note),
    ]


async def _taken(found: Installation, name: str, harm: signal.Signals) -> list[float]:
    """Seconds to the second attempt of each run that the process held."""
    attempts = Attempts()
    subscription = await found.bus.subscribe("cb.live.run.*.*.state", attempts.heard)
    ids = await found.workers()
    while not (held := await _held(found.bus, attempts, ids[name])):
        pass  # the other worker was faster with all of them
    harmed_at = time.perf_counter()
    found.signal(name, harm)
    await attempts.all(held, 2)
    await subscription.close()
    await asyncio.gather(*(_cancel(found.bus, run) for run, attempt in attempts.begun if attempt == 1))
    return [attempts.begun[run, 2][0] - harmed_at for run in held]


async def _cancel(bus: Bus, run: str) -> None:
    """Those that are still there make room; the others have ended, and refuse."""
    await bus.request("cb.rpc.command", encode(Command(run=run, verb="cancel")), timeout_s=WITHIN_S)


async def _held(bus: Bus, attempts: Attempts, worker: str) -> list[str]:
    runs = await asyncio.gather(*(submit(bus, "patient", None) for _ in range(RUNS)))
    await attempts.all(runs, 1)
    return [run for run in runs if attempts.begun[run, 1][1] == worker]
