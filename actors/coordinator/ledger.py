"""The coordinator's hold on the records: apply a command to a run, whoever else writes to it at the same time.

Optimistic: the last known record is decided upon and appended under its sequence. If the broker refuses (another
coordinator was faster), the leader's record is loaded and the command decided again. A decision that changes nothing
is only believed on a record that was just loaded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from datetime import datetime
from typing import NamedTuple

from ...store.journal import has_result
from ...store.log import EventLog, Loaded
from ...topics import trace, units
from ...topics.errors import StaleFence, Unavailable, WriteInFlight
from ...topics.messages import RunRecord
from .run_commands import RunCommand, Verdict
from .tracing import RunTracing
from .transitions import decide

log = logging.getLogger(__name__)

_CACHE = 1024
"""Runs that another coordinator brought to their end stay until newer ones push them out."""
_TRIES = 12
_PAUSE_S = 0.02


class Applied(NamedTuple):
    """How a command went: the verdict, and the run after it (None: there is no such run)."""

    verdict: Verdict
    loaded: Loaded | None


class Ledger:
    """Records of the runs that this coordinator deals with, and the one way to change them."""

    def __init__(self, event_log: EventLog, tracing: RunTracing) -> None:
        self._log, self._tracing = event_log, tracing
        self._known: OrderedDict[str, Loaded] = OrderedDict()

    def remember(self, loaded: Loaded) -> None:
        """Keeps the newest known state of a run; ended runs are not kept."""
        run = loaded.record.id
        known = self._known.get(run)
        if known is not None and known.sequence > loaded.sequence:
            return
        if loaded.record.terminal:
            self._known.pop(run, None)
            return
        self._known[run] = loaded
        if len(self._known) > _CACHE:
            self._known.popitem(last=False)

    def known(self, run: str) -> RunRecord | None:
        """The newest record that is remembered, which may be old."""
        loaded = self._known.get(run)
        return loaded.record if loaded else None

    def forget_all(self) -> None:
        """After a lost connection: what was known may be old. (It would only cost a refused write each.)"""
        self._known.clear()

    async def load(self, run: str) -> Loaded | None:
        """The run as the leader has it now."""
        loaded = await self._log.load_current(run)
        if loaded is not None:
            self.remember(loaded)
        return loaded

    async def got_on(self, run: str) -> int:
        """The attempt under way, if it has left a result; 0: it has left none, or no process of the run has died
        before, so that it makes no difference."""
        known = self._known.get(run) or await self.load(run)
        if known is None or known.record.worker is None or not known.record.losses:
            return 0
        loaded = await self.load(run)  # another coordinator may have granted it since
        if loaded is None:
            return 0
        attempt = loaded.record.attempt
        return attempt if await has_result(self._log, run, attempt, loaded.sequence) else 0

    async def create(self, record: RunRecord) -> tuple[bool, Loaded]:
        """Writes the first state of a run. False with the existing run, if there is one. Raises as `Bus.write` does."""
        for _ in range(_TRIES):
            try:
                sequence = await self._log.append_state(record, 0)
            except StaleFence:
                existing = await self.load(record.id)
                if existing is not None:
                    return False, existing
            except (Unavailable, WriteInFlight) as error:
                log.debug("create %s again: %s", record.id, error)
            else:
                loaded = Loaded(record, sequence)
                self.remember(loaded)
                return True, loaded
            await asyncio.sleep(_PAUSE_S)
        raise Unavailable(f"run {record.id} could not be written: the broker does not settle; try again", run=record.id)

    async def apply(self, run: str, command: RunCommand, now: datetime | None = None) -> Applied:
        """Carries a command out against the run, whatever happens to it meanwhile.

        Raises Unavailable when the broker does not answer; the command may then have been applied, and giving it
        again is harmless."""
        loaded = self._known.get(run)
        fresh = loaded is None
        pause = _PAUSE_S
        for _ in range(_TRIES):
            if loaded is None:
                loaded = await self.load(run)
                fresh = True
                if loaded is None:
                    return Applied("later", None)
            decision = decide(loaded.record, command, now or units.now())
            if decision.record is None:
                if fresh:
                    return Applied(decision.verdict, loaded)
                loaded = None
                continue
            written = await self._write(decision.record, loaded)
            if written is not None:
                return Applied("changed", written)
            loaded = None
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.5)
        raise Unavailable(f"run {run} could not be written: the broker does not settle; try again", run=run)

    async def _write(self, record: RunRecord, before: Loaded) -> Loaded | None:
        try:
            sequence = await self._log.append_state(record, before.sequence)
        except (StaleFence, WriteInFlight) as error:
            log.debug("%s at %d: %s", record.id, before.sequence, error)
            self._known.pop(record.id, None)
            return None
        except Unavailable:
            self._known.pop(record.id, None)
            raise
        loaded = Loaded(record, sequence)
        self.remember(loaded)
        if record.terminal and trace.enabled():
            self._tracing.ended(record)
        return loaded
