"""The faults of a chaos run: which, when, to whom and for how long all follow from the seed."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import time
from collections import Counter
from typing import NamedTuple

from tests.chaos.stage import COORDINATORS, GATEWAYS, LEASE_S, WORKERS, Slot, Stage

log = logging.getLogger(__name__)

_BETWEEN_S = 0.9
"""Mean time between two faults."""
_RECOVERY_S = 90.0
_TARGETS = {
    "worker": [f"worker-{index}" for index in range(WORKERS)],
    "coordinator": [f"coordinator-{index}" for index in range(COORDINATORS)],
    "gateway": [f"gateway-{index}" for index in range(GATEWAYS)],
    "server": ["0", "1", "2"],
}
_KINDS: dict[tuple[str, str], tuple[int, float, float]] = {
    ("kill", "worker"): (16, 0.0, 3.0),
    ("kill", "coordinator"): (12, 0.0, 3.0),
    ("kill", "gateway"): (6, 0.0, 3.0),
    ("stall", "worker"): (10, LEASE_S * 0.5, LEASE_S * 2.5),
    ("stall", "coordinator"): (5, 0.5, 5.0),
    ("stall", "gateway"): (2, 0.5, 5.0),
    ("kill", "server"): (5, 0.2, 3.0),
    ("stall", "server"): (3, 0.5, 4.0),
    ("drop", "server"): (6, 0.0, 0.0),
    ("refuse", "server"): (3, 0.5, 3.0),
    ("hold", "server"): (4, 0.5, 8.0),
    ("kill all", "coordinator"): (2, 0.0, 2.0),
    ("kill all", "worker"): (2, 0.0, 2.0),
    ("delay", "server"): (5, 1.0, 6.0),
}
"""Kind and role: weight, and the shortest and longest time for which it lasts."""


class Fault(NamedTuple):
    """One fault: `at` seconds after the beginning, for `lasts` seconds."""

    at: float
    kind: str
    role: str
    target: str
    lasts: float

    def __str__(self) -> str:
        return f"{self.at:7.2f} s  {self.kind:8} {self.role} {self.target} for {self.lasts:.2f} s"


def plan(seed: int, seconds: float) -> list[Fault]:
    """The faults of a run: the same for the same seed."""
    rng = random.Random(f"faults {seed}")
    kinds, weights = list(_KINDS), [weight for weight, _, _ in _KINDS.values()]
    found: list[Fault] = []
    at = 1.0
    while (at := at + rng.expovariate(1 / _BETWEEN_S)) < seconds:
        kind, role = rng.choices(kinds, weights)[0]
        _, shortest, longest = _KINDS[kind, role]
        found.append(Fault(at, kind, role, rng.choice(_TARGETS[role]), rng.uniform(shortest, longest)))
    return found


class Faults:
    """Carries a plan out. A fault whose target is not whole at its time is passed over, and counted as that."""

    def __init__(self, stage: Stage, planned: list[Fault]) -> None:
        self._stage, self._plan = stage, planned
        self.done: Counter[str] = Counter()
        self.passed_over = 0

    async def run(self) -> None:
        """Until the last fault is over."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for fault in self._plan:
                await asyncio.sleep(max(0.0, began + fault.at - loop.time()))
                group.create_task(self._carry_out(fault))

    async def _carry_out(self, fault: Fault) -> None:
        if fault.role == "server":
            happened = await self._on_server(fault)
        elif fault.kind == "kill all":
            every = [fault._replace(kind="kill", target=target) for target in _TARGETS[fault.role]]
            happened = any(await asyncio.gather(*map(self._on_process, every)))
        else:
            happened = await self._on_process(fault)
        if happened:
            self.done[f"{fault.kind} {fault.role}"] += 1
        else:
            self.passed_over += 1

    async def _on_process(self, fault: Fault) -> bool:
        slot: Slot = self._stage.slots[fault.target]
        if not slot.runs or not slot.settled:
            return False
        log.info("%s", fault)
        if fault.kind == "kill":
            self._stage.kill(slot)
            await asyncio.sleep(fault.lasts)
            self._stage.start(slot)
        else:
            self._stage.pause(slot)
            await asyncio.sleep(fault.lasts)
            self._stage.go_on(slot)
        return True

    async def _on_server(self, fault: Fault) -> bool:
        """One server at a time is away or silent; resets and delays may come at any time."""
        index = int(fault.target)
        proxy = self._stage.proxies[index]
        if fault.kind == "drop":
            log.info("%s", fault)
            proxy.drop()
            return True
        if self._stage.server_turn.locked():
            return False
        async with self._stage.server_turn:
            log.info("%s", fault)
            match fault.kind:
                case "kill":
                    await self._server_killed(index, fault.lasts)
                case "stall":
                    await self._server_stalled(index, fault.lasts)
                case "refuse":
                    proxy.refuse()
                case "hold":
                    proxy.hold()
                case "delay":
                    proxy.delay(0.02 + fault.lasts / 20)
            if fault.kind in ("refuse", "hold", "delay"):
                await asyncio.sleep(fault.lasts)
                proxy.heal()
        return True

    async def _server_killed(self, index: int, lasts: float) -> None:
        cluster = self._stage.cluster
        await asyncio.to_thread(cluster.kill, index)
        await asyncio.sleep(lasts)
        await asyncio.to_thread(cluster.nodes[index].start)
        await self._recovered(index)

    async def _server_stalled(self, index: int, lasts: float) -> None:
        cluster = self._stage.cluster
        pid = cluster.nodes[index].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(lasts)
        finally:
            os.kill(pid, signal.SIGCONT)
        await self._recovered(index)

    async def _recovered(self, index: int) -> None:
        """The next server is attacked once this one has caught up. How long that takes is the server's affair and the
        machine's: one that takes too long is told of, and what was promised must hold even so."""
        cluster, deadline = self._stage.cluster, time.monotonic() + _RECOVERY_S
        while not await asyncio.to_thread(cluster.formed):
            if time.monotonic() > deadline:
                log.warning("server %d has not caught up after %g s", index, _RECOVERY_S)
                return
            await asyncio.sleep(0.1)
