"""Which workers are alive, and which runs they hold: a killed worker's runs go on elsewhere within a second.

The coordinator knows the runs that it granted, and from the workers' heartbeats those that other coordinators
granted. It asks each worker that holds a run, several times a second, on the worker's own subject. A killed process
has lost its connection, and the broker says "no responders" at once. A process that is stopped answers nothing: its
lease decides. A false alarm is harmless, because the claim of the next worker fences the old attempt out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from ...topics.bus import Bus
from ...topics.client import Message
from ...topics.errors import CallboardError, InvalidSubject, NoResponders, Unavailable
from ...topics.ids import is_run_id
from ...topics.messages import WorkerInfo
from ...topics.subjects import require_token
from ...topics.versions import versioned

log = logging.getLogger(__name__)

_PERIOD_S = 0.25
_CONFIRM_S = 0.15
_SETTLED_S = 4.0
"""After a reconnect workers get this long to come back too."""
_SILENT_S = 60.0
_PING_S = 0.5
_AT_ONCE = 64
_RECENT_S = 5.0
"""A heartbeat may have been composed this long before it comes, by a process that is busy."""


class Liveness:
    """Watches the workers that hold runs. `lost(run, worker)` is called for every run of a worker that is gone."""

    def __init__(self, bus: Bus, lost: Callable[[str, str], Awaitable[None]]) -> None:
        self._bus, self._lost = bus, lost
        self._held: dict[str, dict[str, float]] = {}
        self._heard: dict[str, float] = {}
        self._agents: dict[str, float] = {}
        self._loop = asyncio.get_running_loop()
        self._quiet_until = 0.0

    def granted(self, worker: str, run: str) -> None:
        """The worker holds the run from now on."""
        self._held.setdefault(worker, {})[run] = self._loop.time()
        self._heard.setdefault(worker, self._loop.time())

    def ended(self, worker: str | None, run: str) -> None:
        """The worker holds the run no longer."""
        if worker is not None:
            self._held.get(worker, {}).pop(run, None)

    def beat(self, message: Message) -> None:
        """A heartbeat came in: it names all runs that the worker holds. Those granted a moment ago may not be in it
        yet; others have ended, and another coordinator was told."""
        try:
            info = msgspec.json.decode(message.data, type=WorkerInfo)
            require_token("worker", info.id)
        except (msgspec.MsgspecError, InvalidSubject) as error:
            log.warning("heartbeat on %s not understood: %s", message.subject, error)
            return
        if info.agents:
            now = self._loop.time()
            recent = {run: at for run, at in self._held.get(info.id, {}).items() if now - at < _RECENT_S}
            self._held[info.id] = dict.fromkeys(filter(is_run_id, info.running), 0.0) | recent
            self._heard[info.id] = now
            self._agents.update(dict.fromkeys(info.agents, now))
            self._agents.update((versioned(agent, version), now) for agent, version in info.versions.items())

    def served(self, agent: str) -> float | None:
        """Seconds since a worker of the agent, or of one version of it (`agent@version`), was heard; None: never, by
        this coordinator."""
        heard = self._agents.get(agent)
        return None if heard is None else self._loop.time() - heard

    def reconnected(self) -> None:
        """The broker was away: nobody is declared lost until all had time to reconnect."""
        self._quiet_until = self._loop.time() + _SETTLED_S

    async def watch(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            if not self._bus.is_up or self._loop.time() < self._quiet_until:
                continue
            await asyncio.gather(*[self._check(worker) for worker, runs in self._held.items() if runs])
            self._drop_idle()

    async def _check(self, worker: str) -> None:
        if await self._gone(worker):
            await self._declare(worker)

    async def _gone(self, worker: str) -> bool:
        """Whether nobody answers for the worker, asked twice."""
        for pause in (_CONFIRM_S, 0.0):
            try:
                await self._bus.request(f"{self._bus.subjects.worker}.{worker}", timeout_s=_PING_S)
                return False
            except NoResponders:
                await asyncio.sleep(pause)
            except Unavailable:
                return False
        return self._bus.is_up and self._loop.time() >= self._quiet_until

    async def _declare(self, worker: str) -> None:
        runs = sorted(self._held.pop(worker, {}))
        self._heard.pop(worker, None)
        log.warning("worker %s is gone; %d run(s) that it may have held are dispatched anew", worker, len(runs))
        gate = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(*(self._declare_run(run, worker, gate) for run in runs))

    async def _declare_run(self, run: str, worker: str, gate: asyncio.Semaphore) -> None:
        async with gate:
            try:
                await self._lost(run, worker)
            except CallboardError as error:
                log.warning("run %s of worker %s: %s; its lease will decide", run, worker, error)

    def _drop_idle(self) -> None:
        now = self._loop.time()
        idle = [
            worker for worker, runs in self._held.items() if not runs and now - self._heard.get(worker, 0) > _SILENT_S
        ]
        for worker in idle:
            del self._held[worker]
            self._heard.pop(worker, None)
