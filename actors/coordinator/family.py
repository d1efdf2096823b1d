"""Parents and children: a child's word of its end becomes a notice to a running parent, or wakes a waiting one.

A parent of a thousand children gets a thousand words. Those that come while its children are looked at share the next
look, and a look first asks for a child that was not finished at the last one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from ...store.log import EventLog, Loaded
from ...topics import crash, reads
from ...topics.bus import Bus
from ...topics.errors import CallboardError, Unavailable
from ...topics.ids import root_of
from ...topics.messages import ASKING, CancelOrder, Command, RunRecord, Status, encode
from .canceling import FINAL, weaker
from .ledger import Ledger
from .run_commands import Cancel, Settled, Wake

log = logging.getLogger(__name__)

_REMEMBERED = 4096
_AT_ONCE = 64
_LAG_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


class _Look:
    """A look at the children of one run that has not begun."""

    def __init__(self) -> None:
        self.named: set[str] = set()
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()


class Family:
    """Knows nothing for sure: every look reads the log."""

    def __init__(
        self, bus: Bus, event_log: EventLog, ledger: Ledger, settle: Callable[[Loaded], Awaitable[None]]
    ) -> None:
        self._bus, self._log, self._ledger, self._settle = bus, event_log, ledger, settle
        self._next: dict[str, _Look] = {}
        self._turns: dict[str, asyncio.Task[None]] = {}
        self._unfinished: OrderedDict[str, str] = OrderedDict()

    async def look(self, run: str, child: str | None = None) -> bool:
        """Wakes the run if one of the groups that it waits for has ended as a whole; tells it, if it is running, that
        `child` has ended. False: it still waits. Raises as the ledger does."""
        look = self._next.get(run)
        if look is None:
            look = self._next[run] = _Look()
            self._turns[run] = asyncio.create_task(self._turn(run, self._turns.get(run)))
        if child is not None:
            look.named.add(child)
        return await asyncio.shield(look.done)

    async def _turn(self, run: str, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait((before,))
        look = self._next.pop(run)
        try:
            ended = await self._look_at(run, look.named)
        except CallboardError as error:
            look.done.set_exception(error)
            look.done.exception()
        except BaseException:
            look.done.cancel()
            raise
        else:
            look.done.set_result(ended)
        finally:
            if self._turns.get(run) is asyncio.current_task():
                del self._turns[run]

    async def _look_at(self, run: str, named: set[str]) -> bool:
        loaded = await self._ledger.load(run)
        if loaded is None:
            return True
        record = loaded.record
        if record.status is Status.CANCEL_REQUESTED:
            return record.undo == "due" or await self.cancel_below(record)
        if record.terminal and named:
            await self._pass_on(record)
        if record.status is Status.RUNNING and record.worker:
            for child in named:
                notice = Command(run=run, verb="child", child=child)
                self._bus.publish(f"{self._bus.subjects.worker}.{record.worker}.notice", encode(notice))
        if record.status not in (Status.WAITING, *ASKING) or not record.waits:
            self._unfinished.pop(run, None)
            return True
        if not await self._group_ended(record, named):
            return False
        self._unfinished.pop(run, None)
        applied = await self._ledger.apply(run, Wake(reason="child runs have ended"))
        if applied.verdict == "changed" and applied.loaded is not None:
            await self._settle(applied.loaded)
        return True

    async def _pass_on(self, record: RunRecord) -> None:
        """A child has outlived a run that has ended: whoever is above, and ends with all below it, hears of it."""
        if record.parent is None or record.detached:
            return
        above = await self._ledger.load(record.parent)
        if above is not None and (above.record.terminal or above.record.status is Status.CANCEL_REQUESTED):
            word = Command(child=record.id)
            await self._bus.store(self._bus.subjects.command(record.parent, "child"), encode(word))

    # -- cancel -------------------------------------------------------------------------------------------------

    async def below(self, run: str, rev: int = 0) -> list[RunRecord]:
        """The run's descendants as the log has them now, without detached ones and what is below those.

        `rev`: the revision of the run that the answer must have seen: a canceled run starts no children any more, so
        all of them stand before it. Raises Unavailable while every replica that answers is behind."""
        records: dict[str, RunRecord] = {}
        for pause in (*_LAG_S, None):
            records = await self._tree(root_of(run))
            if rev == 0 or (run in records and records[run].rev >= rev):
                break
            if pause is None:
                raise Unavailable(f"what is below run {run} is not known yet: the replicas are behind", run=run)
            await asyncio.sleep(pause)
        children: dict[str | None, list[RunRecord]] = {}
        for record in records.values():
            children.setdefault(record.parent, []).append(record)
        found: list[RunRecord] = []
        parents = [run]
        while parents:
            kept = [record for record in children.get(parents.pop(), ()) if not record.detached]
            found += kept
            parents += [record.id for record in kept]
        return found

    async def _tree(self, root: str) -> dict[str, RunRecord]:
        return {record.id: record for record in await self._log.newest_tree(root)}

    async def cancel_below(
        self, record: RunRecord, order: CancelOrder | None = None, reason: str | None = None
    ) -> bool:
        """Gives each live descendant its cancel, and ends the run once all have ended. Safe to do again.

        `order`, `reason`: of a run that itself goes on, or has ended before. False: a replica that may be late is to be
        asked again."""
        wanted = order or record.cancel or CancelOrder()
        deep = order is not None or wanted.scope == "tree"
        alive = [one for one in await self.below(record.id, record.rev) if not one.terminal] if deep else []
        mine = CancelOrder(action=wanted.passed_on, scope="run", by=record.id)
        unordered = [one for one in alive if one.status is not Status.CANCEL_REQUESTED or weaker(one.cancel, mine)]
        if order is None and record.reason not in FINAL.values():
            reason = record.reason
        gate = asyncio.Semaphore(_AT_ONCE)
        ended = await asyncio.gather(*(self._order(one.id, mine, reason, gate) for one in unordered))
        if len(alive) > sum(ended):
            return self._bus.replicas == 1
        if order is None and record.worker is None:
            crash.point("coordinator.before-root-ends")
            effects = bool(record.undo) and await self._has_effects(record)
            applied = await self._ledger.apply(record.id, Settled(record.epoch, effects))
            if applied.loaded is not None and (applied.loaded.record.terminal or applied.loaded.record.undo == "due"):
                await self._settle(applied.loaded)
        return True

    async def _has_effects(self, record: RunRecord) -> bool:
        """Whether the run may have any: asked of the leader, after its state has fenced every attempt off. What a run
        goes on from may have some, too."""
        if record.retry_of is not None:
            return True
        subject = self._bus.subjects.event(record.id, "effect")
        return await reads.last_from_leader(self._bus, self._bus.subjects.events, subject) is not None

    async def _order(self, run: str, order: CancelOrder, reason: str | None, gate: asyncio.Semaphore) -> bool:
        """Whether the descendant has ended with the order: it was not running."""
        async with gate:
            crash.point("coordinator.cancel-one")
            applied = await self._ledger.apply(run, Cancel(reason, order))
            if applied.loaded is None:
                return False
            record = applied.loaded.record
            if not record.terminal or record.status is Status.ROLLED_BACK:
                await self._settle(applied.loaded)
            if record.undo and not record.terminal:  # it may have ended with that: it had no effects
                now = await self._ledger.load(run)
                return now is not None and now.record.terminal
            return record.terminal

    # -- waiting ------------------------------------------------------------------------------------------------

    async def _group_ended(self, record: RunRecord, named: set[str]) -> bool:
        root = root_of(record.id)
        groups = [[f"{root}~{child}" for child in group] for group in record.waits or ()]
        ended = set(named)
        unfinished = await self._still_unfinished(record.id, ended)
        for group in groups:
            open_ = [child for child in group if child not in ended]
            if unfinished in open_:
                continue
            records = await self._log.load_many(open_)
            ended.update(child for child, one in records.items() if one.terminal)
            left = [child for child in open_ if child not in ended]
            if not left:
                return True
            self._remember(record.id, left[-1])
        return False

    async def _still_unfinished(self, run: str, ended: set[str]) -> str | None:
        child = self._unfinished.get(run)
        if child is None or child in ended:
            return None
        loaded = await self._log.load(child)
        if loaded is None or not loaded.record.terminal:
            return child
        ended.add(child)
        return None

    def _remember(self, run: str, child: str) -> None:
        self._unfinished[run] = child
        self._unfinished.move_to_end(run)
        if len(self._unfinished) > _REMEMBERED:
            self._unfinished.popitem(last=False)
