"""Children that are written while their parent is being canceled: the cancel may not have seen them, and they get it
here.

Two looks make sure that none of them begins: the coordinator that writes a child looks at its parent after that; and
should it die or stand still in between, whoever grants the child's first claim looks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable

from ...store.log import Loaded
from ...topics.messages import CancelOrder, RunRecord
from .ledger import Ledger
from .run_commands import Cancel

_REMEMBERED = 8192


class Latecomers:
    """Remembers the children that this coordinator has written and looked after: of those nothing is asked again."""

    def __init__(self, ledger: Ledger, settle: Callable[[Loaded], Awaitable[None]]) -> None:
        self._ledger, self._settle = ledger, settle
        self._vouched: OrderedDict[str, None] = OrderedDict()

    async def written(self, parent: str, children: Iterable[RunRecord]) -> None:
        """These were just written, or found: if the parent has been canceled meanwhile, they are as well."""
        order = await self._order_of(parent)
        for child in children:
            if order is None:
                self._vouched[child.id] = None
            elif not child.detached:
                await self._cancel(child.id, order)
        while len(self._vouched) > _REMEMBERED:
            self._vouched.popitem(last=False)

    async def begins(self, run: str) -> None:
        """A child is about to be granted to a worker: if it has never begun, and has missed a cancel, it gets it now.

        Raises Unavailable when the broker does not answer."""
        if run in self._vouched:
            del self._vouched[run]
            return
        record = self._ledger.known(run)
        if record is None:
            loaded = await self._ledger.load(run)
            record = loaded.record if loaded else None
        if record is None or record.parent is None or record.detached or record.attempt or record.terminal:
            return
        order = await self._order_of(record.parent)
        if order is not None:
            await self._cancel(run, order)

    async def _cancel(self, run: str, order: CancelOrder) -> None:
        applied = await self._ledger.apply(run, Cancel("its parent was canceled", order))
        if applied.loaded is not None:
            await self._settle(applied.loaded)

    async def _order_of(self, parent: str) -> CancelOrder | None:
        """What the children of a canceled run are told; None: they may go on."""
        loaded = await self._ledger.load(parent)
        order = loaded.record.cancel if loaded else None
        if order is None or not (order.by or order.scope == "tree"):
            return None
        return CancelOrder(action=order.passed_on, by=order.by or parent)
