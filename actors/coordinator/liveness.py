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
from ...topics.errors import CallboardError, NoResponders, Unavailable
from ...topics.messages import WorkerInfo

log = logging.getLogger(__name__)

_PERIOD_S = 0.25
_CONFIRM_S = 0.15
_SETTLED_S = 4.0
"""After a reconnect workers get this long to come back too."""
_SILENT_S = 60.0


class Liveness:
    """Watches the workers that hold runs. `lost(run, worker)` is called for every run of a worker that is gone."""

    def __init__(self, bus: Bus, lost: Callable[[str, str], Awaitable[None]]) -> None:
        self._bus, self._lost = bus, lost
        self._held: dict[str, set[str]] = {}
        self._heard: dict[str, float] = {}
        self._loop = asyncio.get_running_loop()
        self._quiet_until = 0.0

    def granted(self, worker: str, run: str) -> None:
        """The worker holds the run from now on."""
        self._held.setdefault(worker, set()).add(run)
        self._heard.setdefault(worker, self._loop.time())

    def ended(self, worker: str | None, run: str) -> None:
        """The worker holds the run no longer."""
        if worker is not None:
            self._held.get(worker, set()).discard(run)

    def beat(self, message: Message) -> None:
        """A heartbeat came in: it names all runs that the worker holds."""
        try:
            info = msgspec.json.decode(message.data, type=WorkerInfo)
        except msgspec.MsgspecError as error:
            log.warning("heartbeat on %s not understood: %s", message.subject, error)
            return
        if info.agents:
            self._held.setdefault(info.id, set()).update(info.running)
            self._heard[info.id] = self._loop.time()

    def reconnected(self) -> None:
        """The broker was away: nobody is declared lost until all had time to reconnect."""
        self._quiet_until = self._loop.time() + _SETTLED_S

    async def watch(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            if not self._bus.is_up or self._loop.time() < self._quiet_until:
                continue
            workers = [worker for worker, runs in self._held.items() if runs]
            gone = [w for w, dead in zip(workers, await asyncio.gather(*map(self._gone, workers)), strict=True) if dead]
            for worker in gone:
                await self._declare(worker)
            self._drop_idle()

    async def _gone(self, worker: str) -> bool:
        """Whether nobody answers for the worker, asked twice."""
        for pause in (_CONFIRM_S, 0.0):
            try:
                await self._bus.request(f"{self._bus.subjects.worker}.{worker}", timeout_s=1.0)
                return False
            except NoResponders:
                await asyncio.sleep(pause)
            except Unavailable:
                return False
        return self._bus.is_up and self._loop.time() >= self._quiet_until

    async def _declare(self, worker: str) -> None:
        runs = sorted(self._held.pop(worker, set()))
        self._heard.pop(worker, None)
        log.warning("worker %s is gone; %d run(s) that it may have held are dispatched anew", worker, len(runs))
        for run in runs:
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
