"""Retries: a run that ended without a result is taken up by a new one, which goes on from its journal.

A terminal run stays as it is. The new run counts its attempts on, and begins with the error of the old one: what the
engine makes of that is what it makes of any further attempt, so finished steps are not executed again.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...store.log import EventLog, Loaded
from ...topics import units
from ...topics.bus import Bus
from ...topics.errors import IllegalTransition, NotFound
from ...topics.ids import derived_run_id, require_run_id
from ...topics.messages import RunRecord, Status
from ...topics.versions import require_version
from . import first_record, placing
from .carrier import Carrier
from .ledger import Ledger
from .routing import Routing
from .tracing import RunTracing

RETRYABLE = frozenset({Status.FAILED, Status.TIMED_OUT, Status.ORPHANED, Status.CANCELED, Status.INTERRUPTED})
"""What a run can be retried from. A rolled back one has nothing left to go on from."""


def going_on(record: RunRecord, before: RunRecord) -> RunRecord:
    """`record`, which has not begun, as the run that goes on from `before`."""
    return replace(record, retry_of=before.id, attempt=before.attempt, error=before.error, steps=before.steps)


async def taken_up(log: EventLog, record: RunRecord, before: str | None) -> RunRecord:
    """What becomes of a child that a retried run had started before, as `before`: that one itself, when it has a result
    or lives on; else `record`, which goes on from where it ended."""
    loaded = None if before is None else await log.load(require_run_id(before))
    if loaded is None:
        return record
    known = loaded.record
    if known.status is Status.COMPLETED or not known.terminal:
        return known
    return going_on(record, known) if known.status in RETRYABLE else record


class Retrying:
    """Makes the runs that retry others. Idempotent: a run is retried by one other, whoever asks how often."""

    def __init__(self, bus: Bus, ledger: Ledger, carrier: Carrier, routing: Routing, tracing: RunTracing) -> None:
        self._bus, self._ledger, self._carrier = bus, ledger, carrier
        self._routing, self._tracing = routing, tracing

    async def retry(self, run: str, version: str = "") -> RunRecord:
        """The run that goes on from `run`, which is durable; pinned to `version`, if one is given. Raises NotFound;
        IllegalTransition when there is nothing to retry, or while something that it has started still lives."""
        loaded = await self._ledger.load(run)
        if loaded is None:
            raise NotFound(f"there is no run {run}", run=run)
        before = loaded.record
        if before.status not in RETRYABLE:
            raise IllegalTransition(
                f"run {run} is {before.status}: only a run that ended without a result is retried"
                + ("" if before.terminal else "; cancel it first, or wait for its end"),
                run=run,
                status=str(before.status),
            )
        if before.successor is not None:
            raise IllegalTransition(
                f"run {before.successor} has started in the place of run {run}: there is nothing left to retry",
                run=run,
                successor=before.successor,
            )
        ended = before.ended_at or before.updated_at
        name = derived_run_id(self._bus.salt, int(ended.timestamp() * 1000), "retry", run)
        found = await self._ledger.load(name)
        if found is None:
            await self._require_nobody_below(run)
            found = await self._created(before, name, require_version(version))
        await self._carrier.settle(found)
        return found.record

    async def _require_nobody_below(self, run: str) -> None:
        alive = [one.id for one in await self._carrier.family.below(run) if not one.terminal]
        if alive:
            raise IllegalTransition(
                f"{len(alive)} run{'s' if len(alive) != 1 else ''} that {run} has started still live, such as "
                f"{alive[0]}: wait for their end, or cancel them (scope children), then retry",
                run=run,
                alive=alive[:20],
            )

    async def _created(self, before: RunRecord, name: str, version: str) -> Loaded:
        if version:
            before = replace(before, version=version, pin=True)
        info = self._routing.agent(before.agent, before.version if before.pin else None)
        trace = self._tracing.came_with(before)
        record = first_record.of_retry(before, name, info, trace, units.now())
        first = placing.ensured(going_on(record, before))
        return (await self._ledger.create(self._tracing.placed(first)))[1]
