"""Runs that start from the original input in place of one whose checkpoint no migration leads on from."""

from __future__ import annotations

from ...store.log import Loaded
from ...topics import units
from ...topics.messages import RunRecord
from . import first_record, placing
from .carrier import Carrier
from .ledger import Ledger
from .routing import Routing
from .tracing import RunTracing


class Successors:
    """Makes them. Idempotent: the run that has ended names the one that comes in its place."""

    def __init__(self, ledger: Ledger, carrier: Carrier, routing: Routing, tracing: RunTracing) -> None:
        self._ledger, self._carrier, self._routing, self._tracing = ledger, carrier, routing, tracing

    async def begin(self, before: RunRecord) -> None:
        """Sees to it that the successor of `before` is there. Raises as `Bus.write` does."""
        name = before.successor
        if name is not None and await self._ledger.load(name) is None:
            await self._carrier.settle(await self._created(before, name))

    async def _created(self, before: RunRecord, name: str) -> Loaded:
        info, trace = self._routing.agent(before.agent), self._tracing.came_with(before)
        first = first_record.of_successor(before, name, info, trace, units.now())
        return (await self._ledger.create(self._tracing.placed(placing.ensured(first))))[1]
