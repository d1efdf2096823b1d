"""Finds attempts that go on although their run has moved on, so that they do not keep their slot for nothing.

The fence keeps out what such an attempt writes, and the refused write ends it. But code that only sleeps or computes
writes nothing: after a stall in which its run was taken over, or a lost cancel notice, it would not learn of that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from ...store.log import EventLog
from ...topics.bus import Bus
from ...topics.errors import CallboardError
from ...topics.messages import RunRecord, Status
from ..engine import Attempt

log = logging.getLogger(__name__)

_DOUBT_S = 1.0


class Lookout:
    """Compares the attempts in `running` with the log, once every `every_s` seconds and all in one request; every
    second those whose lease is in doubt."""

    def __init__(self, bus: Bus, running: Mapping[str, Attempt], every_s: float) -> None:
        self._log, self._running, self._every_s = EventLog(bus), running, every_s

    async def watch(self) -> None:
        """Runs until cancelled."""
        before: set[Attempt] = set()
        loop = asyncio.get_running_loop()
        due = loop.time() + self._every_s
        while True:
            await asyncio.sleep(min(_DOUBT_S, self._every_s))
            now = set(self._running.values())
            await self._try({one for one in now if not one.tenure.sure()})
            if loop.time() >= due:
                await self._try(now & before)
                before, due = now, loop.time() + self._every_s

    async def _try(self, attempts: set[Attempt]) -> None:
        try:
            await self._look(attempts)
        except CallboardError as error:
            log.debug("attempts not compared with the log: %s", error)

    async def _look(self, attempts: set[Attempt]) -> None:
        if not attempts:
            return
        records = await self._log.load_many(attempt.record.id for attempt in attempts)
        for attempt in attempts:
            record = records.get(attempt.record.id)
            if record is not None and _moved_on(record, attempt.record):
                attempt.interrupt("stopped" if _canceled(record, attempt.record) else "lost")


def _moved_on(record: RunRecord, claimed: RunRecord) -> bool:
    """Whether the record is from after the attempt. A late replica may answer: what is older says nothing."""
    if record.attempt != claimed.attempt:
        return record.attempt > claimed.attempt
    return record.rev > claimed.rev and record.status is not claimed.status


def _canceled(record: RunRecord, claimed: RunRecord) -> bool:
    return record.attempt == claimed.attempt and record.status is Status.CANCEL_REQUESTED
