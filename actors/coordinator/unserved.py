"""Queues whose work nobody takes: noticed after a while, and noted for people; noted again when somebody comes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from ...store.attention import Attention
from ...topics import units
from ...topics.bus import Bus
from ...topics.errors import CallboardError

log = logging.getLogger(__name__)

_PERIOD_S = 5.0
_HEARD_S = 5.0
"""An agent is served while one of its workers was heard within this time."""


class Unserved:
    """Looks every few seconds. `heard(agent)`: seconds since a worker of it was heard, None for never.

    `after_s`: how long work must lie unserved before it is noted."""

    def __init__(self, bus: Bus, heard: Callable[[str], float | None], after_s: float) -> None:
        self._bus, self._heard, self._after = bus, heard, timedelta(seconds=after_s)
        self._attention = Attention(bus)
        self._since: dict[str, datetime] = {}

    async def watch(self) -> None:
        """Runs until cancelled."""
        period_s = min(_PERIOD_S, max(0.2, self._after.total_seconds() / 4))
        while True:
            await asyncio.sleep(period_s)
            try:
                if self._bus.is_up:
                    await self.look()
            except CallboardError as error:
                log.info("unserved queues are looked at again: %s", error)

    async def look(self, now: datetime | None = None) -> None:
        """One look. Several coordinators may look at once: a notice is written once."""
        moment = now or units.now()
        queues = await self._queues()
        unserved = {queue: runs for queue, runs in queues.items() if not self._is_served(queue)}
        self._since = {queue: self._since.get(queue, moment) for queue in unserved}
        due = {queue: since for queue, since in self._since.items() if moment - since >= self._after}
        noted = await self._attention.queues()
        for queue, since in due.items():
            if queue not in noted and await self._attention.unserved(queue, since, unserved[queue]):
                log.warning("nobody takes the work of %s; %d message(s) wait", queue, unserved[queue])
        for queue in noted:
            if queue not in queues:
                await self._attention.served(queue, "no work waits any more")
            elif self._is_served(queue):
                await self._attention.served(queue, "a worker takes it")

    def _is_served(self, queue: str) -> bool:
        heard = None if queue.startswith("@") else self._heard(queue)
        return heard is not None and heard < _HEARD_S

    async def _queues(self) -> dict[str, int]:
        """The queues that hold work messages, with how many; those under way count too."""
        subjects, found, offset = self._bus.subjects, dict[str, int](), 0
        while True:
            body: dict[str, Any] = {"subjects_filter": f"{subjects.work}.*", "offset": offset}
            info = await self._bus.api(f"STREAM.INFO.{subjects.work_stream}", body) or {}
            page = info.get("state", {}).get("subjects") or {}
            found |= {subject[len(subjects.work) + 1 :]: int(count) for subject, count in page.items()}
            offset += len(page)
            if not page or offset >= int(info.get("total", 0)):
                return found
