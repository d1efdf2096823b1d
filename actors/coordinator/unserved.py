"""Queues whose work nobody takes: noticed after a while, and noted for people; noted again when somebody comes.

A run that is pinned to a version of its agent which no worker has is also told so itself: its reason says who is
missing, as other workers of the agent may well be there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ...store.attention import Attention, nobody
from ...topics import reads, units
from ...topics.bus import Bus
from ...topics.errors import CallboardError, InvalidRunId
from ...topics.ids import require_run_id
from ...topics.messages import Work
from ...topics.versions import split
from .run_commands import Unattended

log = logging.getLogger(__name__)

_PERIOD_S = 5.0
_HEARD_S = 5.0
"""An agent is served while one of its workers was heard within this time."""
_TOLD_AT_ONCE = 200
_decode = msgspec.json.Decoder(Work).decode
Tell = Callable[[str, Unattended], Awaitable[object]]


class Unserved:
    """Looks every few seconds. `heard(queue)`: seconds since a worker of the agent, or of that version of it, was
    heard, None for never. `tell(run, command)` applies a command to a run.

    `after_s`: how long work must lie unserved before it is noted."""

    def __init__(self, bus: Bus, heard: Callable[[str], float | None], after_s: float, tell: Tell) -> None:
        self._bus, self._heard, self._after, self._tell = bus, heard, timedelta(seconds=after_s), tell
        self._told: dict[str, int] = {}
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
            await self._explain(queue)
        self._told = {queue: self._told[queue] for queue in due if queue in self._told}
        for queue in noted:
            if queue not in queues:
                await self._attention.served(queue, "no work waits any more")
            elif self._is_served(queue):
                await self._attention.served(queue, "a worker takes it")

    async def _explain(self, queue: str) -> None:
        """Tells the runs of a version that came since the last look why they wait, at most some hundred a look."""
        if split(queue)[1] is None:
            return
        subject, after = f"{self._bus.subjects.work}.{queue}", self._told.get(queue, 0)
        page, _ = await reads.page_after(self._bus, self._bus.subjects.work_stream, subject, after, _TOLD_AT_ONCE)
        for stored in page:
            self._told[queue] = stored.sequence
            try:
                work = _decode(stored.data)
                await self._tell(require_run_id(work.run), Unattended(work.dispatch, nobody(queue)))
            except (msgspec.MsgspecError, RecursionError, InvalidRunId) as error:
                log.debug("message %d on %s is no work: %s", stored.sequence, subject, error)

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
