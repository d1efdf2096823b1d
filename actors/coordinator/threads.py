"""The turns of the runs in their threads: who is at work, who waits, who is replaced, and what is kept.

The record of a run comes first: it is queued, and held back without a work message. Then the run is written into the
thread's head, under its fence, and the place there decides between runs that start at the same time. The record follows
the head: it gets its turn, waits, or is rejected. When the active run has ended it leaves the head, and the next one is
dispatched. Every step follows from records and head alone, so that whoever comes next can carry it on: the run's own
settling, the end of another, a new start in the thread, or the sweep of the run that waits.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from msgspec.structs import replace

from ...store.log import Loaded
from ...store.threads import Head, Threads
from ...topics import crash, reads
from ...topics.bus import Bus
from ...topics.errors import Conflict, StaleFence, Unavailable, WriteInFlight
from ...topics.messages import (
    Entry,
    ErrorInfo,
    Origin,
    Outcome,
    RunRecord,
    Status,
    ThreadHead,
    Tip,
    Turn,
    encode,
)
from . import turns
from .family import Family
from .ledger import Ledger
from .run_commands import Cancel, TakeTurn

log = logging.getLogger(__name__)

_TRIES = 60
_PAUSE_S = 0.01
_PAUSE_MAX_S = 0.5


class ThreadTurns:
    """Knows nothing for sure: every decision is made on the head as the leader has it, and written under its fence.

    A look at a thread may be part of a look at the tree of a run in it: a run below that one has ended, and leaves the
    thread. So `settle` must not wait for looks at trees."""

    def __init__(self, bus: Bus, ledger: Ledger, family: Family, settle: Callable[[Loaded], Awaitable[None]]) -> None:
        self._bus, self._ledger, self._family, self._settle = bus, ledger, family, settle
        self._threads = Threads(bus)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._looks: dict[str, set[str]] = {}

    # -- a run asks ---------------------------------------------------------------------------------------------

    async def ask(self, run: str) -> None:
        """Gives a run that is held back its place in its thread, and brings the thread on. Any number of times.

        Raises as the ledger does."""
        loaded = await self._ledger.load(run)
        if loaded is None or loaded.record.thread is None:
            return
        record, turn = loaded.record, loaded.record.turn
        if turn is None or not turns.is_held(record):
            return
        if turn.policy in ("fork", "optimistic"):
            await self._tell(run, await self._apart(record, turn))
        elif await self._own_tree_waits(record):
            why = f"run {record.id} would wait in thread {record.thread} for a run above it that waits for its end"
            await self._tell(run, turns.refused(turn, why))
        else:
            await self._in_order(record, turn)

    async def _in_order(self, record: RunRecord, turn: Turn) -> None:
        thread = record.thread or ""
        await self.look(thread)  # the run that is met may have ended, and whoever was to say so died
        joined, head = await self._join(thread, record, turn)
        crash.point("coordinator.after-join")
        word = _answer(joined, head.order, turn, thread)
        await self._tell(record.id, word)
        if word.turn.state == "waiting":
            await self.look(thread)

    async def _join(self, thread: str, record: RunRecord, turn: Turn) -> tuple[turns.Joined, Head]:
        """Written only if the run is still held back once the head is known: one that has had its turn, through
        another coordinator, has left the head before that, and does not come into it again."""
        limit, run, begins = self._bus.inline_limit, record.id, turns.begins(record)

        async def held() -> bool:
            loaded = await self._ledger.load(run)
            return loaded is not None and turns.is_held(loaded.record)

        def joined(order: ThreadHead) -> turns.Joined:
            found = turns.join(order, run, turn.policy, begins)
            if found.place == "waiting" and found.head is not order and len(encode(found.head)) > limit:
                return turns.Joined(order, "full", found.entry)
            return found

        async with self._lock(thread):
            head = await self._change(thread, lambda order: joined(order).head, held)
        return joined(head.order), head

    async def _apart(self, record: RunRecord, turn: Turn) -> TakeTurn:
        """A thread of the run's own, with what was left in the other one by runs that have ended."""
        fork = turn.policy == "fork"
        source = (turn.origin if fork else record.thread) or ""
        own = (record.thread if fork else record.id) or ""
        try:
            made = await self._threads.fork(own, _shared(await self._threads.point(source), record, fork))
        except Conflict as error:
            return turns.refused(turn, error.message)
        origin = made.origin
        assert origin is not None
        if not fork:
            return turns.apart(turn, origin, own)
        try:
            active = Entry(record.id, "fork", begins=turns.begins(record))
            order = ThreadHead(version=origin.version, active=active, tip=origin.tip)
            await self._threads.put_head(own, order, 0)
        except StaleFence:
            log.debug("fork %s has its head", own)
        return turns.apart(turn, origin)

    async def _own_tree_waits(self, record: RunRecord) -> bool:
        """Whether a run above this one is at work in its thread, and would wait for it."""
        if record.parent is None or record.detached:
            return False
        active = (await self._threads.head(record.thread or "")).order.active
        above: str | None = record.parent
        while active is not None and above is not None:
            if active.run == above:
                return True
            loaded = await self._ledger.load(above)
            above = loaded.record.parent if loaded and not loaded.record.detached else None
        return False

    # -- the thread goes on -------------------------------------------------------------------------------------

    async def look(self, thread: str, ended: str | None = None) -> None:
        """Brings the thread to where its head and its records say that it should be: who has ended leaves, who is
        replaced is canceled, who comes next is dispatched. `ended`: a run that may have to leave.

        One look at a time: what is learned during one is seen to by it, before it ends."""
        under_way = self._looks.get(thread)
        if under_way is not None:
            under_way.add(ended or "")
            return
        wanted = self._looks[thread] = {ended or ""}
        try:
            while wanted:
                named = {run for run in wanted if run}
                wanted.clear()
                if await self._looked(thread, named):
                    wanted.add("")
        finally:
            del self._looks[thread]

    async def _looked(self, thread: str, named: set[str]) -> bool:
        """One look; whether another one is needed."""
        head = await self._threads.head(thread)
        active = head.order.active
        if active is None:
            return False
        if active.attempt and await self._has_let_go(active):
            async with self._lock(thread):
                await self._change(thread, lambda order: turns.let_go(order, active))
            return True
        await self._replace(thread, head.order)
        ended: dict[str, Loaded | None] = {}
        known = {active.run} | {entry.run for entry in head.order.waiting}
        for run in {active.run, *(entry.run for entry, _, _ in turns.doomed(head.order)), *named} & known:
            loaded = await self._ledger.load(run)
            if loaded is None:
                ended[run] = None  # its records have aged away
            elif loaded.record.terminal:
                if await self._finished(thread, loaded.record, run == active.run):
                    ended[run] = loaded
            elif run == active.run:
                await self._begin(loaded.record, active, head.order)
        if not ended:
            return False
        left = {run for run, loaded in ended.items() if loaded and turns.leaves_something(loaded.record)}
        tips = {active.run: await self._tip(loaded.record)} if (loaded := ended.get(active.run)) else {}
        async with self._lock(thread):
            await self._change(thread, lambda order: turns.leave(order, ended.keys(), left, tips))
        crash.point("coordinator.after-leave")
        return True

    async def _has_let_go(self, entry: Entry) -> bool:
        """Whether the attempt of an optimistic run that was about to be kept has been taken for something else: it was
        lost, or canceled, before the coordinator that had made room for it could write its end."""
        loaded = await self._ledger.load(entry.run)
        if loaded is None or loaded.record.terminal:
            return False
        return loaded.record.status is not Status.RUNNING or loaded.record.attempt != entry.attempt

    async def _tip(self, record: RunRecord) -> Tip | None:
        """What a run that was interrupted has left stands in its log: its worker may have been lost."""
        checkpoint = record.checkpoint
        if record.status is Status.INTERRUPTED:
            subject = self._bus.subjects.event(record.id, "checkpoint")
            stored = await reads.last_from_leader(self._bus, self._bus.subjects.events, subject)
            checkpoint = stored.sequence if stored is not None else 0
        return turns.tip_of(record, checkpoint)

    async def _begin(self, record: RunRecord, entry: Entry, order: ThreadHead) -> None:
        if record.turn is not None and turns.is_held(record):
            await self._tell(record.id, turns.taken(record.turn, entry, order))

    async def _replace(self, thread: str, order: ThreadHead) -> None:
        """Cancels who is replaced. Again and again, until they have left."""
        for entry, how, by in turns.doomed(order):
            why = f"run {by.run} takes its place in thread {thread}"
            applied = await self._ledger.apply(entry.run, Cancel(why, how))
            if applied.loaded is None:
                continue
            record = applied.loaded.record
            if not record.terminal or applied.verdict == "changed" or entry != order.active:
                await self._settle(applied.loaded)
            elif record.attempt:  # it has ended already: what it left behind is in the way
                await self._family.cancel_below(record, how, why)

    async def _finished(self, thread: str, record: RunRecord, active: bool) -> bool:
        """Sees to what has to be there before the next run begins. False while something of the run still lives."""
        turn = record.turn
        if record.attempt == 0 or turn is None:
            return True
        for child in await self._family.below(record.id, record.rev):
            if not child.terminal and child.turn is not None and child.turn.holder == record.id:
                now = await self._ledger.load(child.id)
                if now is not None and not now.record.terminal:
                    return False
        if record.status is Status.ROLLED_BACK:
            await self._threads.roll_back(thread, record.id)
        if active and turn.branch is not None and record.status is Status.COMPLETED:
            await self._threads.keep(thread, turn.branch, record.id)
        return True

    # -- optimistic ---------------------------------------------------------------------------------------------

    async def commit(self, outcome: Outcome) -> Outcome:
        """The outcome of a run that has completed: of an optimistic one as it is only if the thread has not changed
        since it began, and then the thread is the run's until its messages stand there; else the conflict.

        Raises Unavailable while another one's messages are being written."""
        known = self._ledger.known(outcome.run)
        if known is not None and not _optimistic(known):
            return outcome
        loaded = await self._ledger.load(outcome.run)
        if loaded is None or not _optimistic(loaded.record):
            return outcome
        record = loaded.record
        if record.status is not Status.RUNNING or record.attempt != outcome.attempt:
            return outcome
        thread, base = record.thread or "", (record.turn and record.turn.base) or 0
        await self.look(thread)

        def claimed(order: ThreadHead) -> ThreadHead:
            free = order.active is None and order.version == base
            mine = Entry(record.id, "optimistic", begins=turns.begins(record), attempt=record.attempt)
            return replace(order, active=mine) if free else order

        async with self._lock(thread):
            order = (await self._change(thread, claimed)).order
        if order.active is not None and order.active.run == record.id:
            return outcome
        if order.version == base and order.active is not None and order.active.policy == "optimistic":
            first = await self._ledger.load(order.active.run)
            if first is None or first.record.status is not Status.COMPLETED:  # else it leaves a new version for sure
                busy = f"thread {thread} is being written by run {order.active.run}: try again"
                raise Unavailable(busy, thread=thread)
        return _conflict(outcome, thread, base, order)

    # -- writing ------------------------------------------------------------------------------------------------

    async def _tell(self, run: str, word: TakeTurn) -> None:
        applied = await self._ledger.apply(run, word)
        if applied.loaded is not None and not (applied.loaded.record.turn and applied.loaded.record.turn.held):
            await self._settle(applied.loaded)

    def _lock(self, thread: str) -> asyncio.Lock:
        """Runs of this coordinator take turns at the head: only other coordinators can be faster."""
        lock = self._locks.get(thread)
        if lock is None:
            lock = self._locks[thread] = asyncio.Lock()
        return lock

    async def _change(
        self, thread: str, change: Callable[[ThreadHead], ThreadHead], may: Callable[[], Awaitable[bool]] | None = None
    ) -> Head:
        """Writes the head after a change, on whatever others have made of it. The same object means: no change. `may`
        is asked between the reading and the writing."""
        pause = _PAUSE_S
        for _ in range(_TRIES):
            head = await self._threads.head(thread)
            order = change(head.order)
            if order is head.order or (may is not None and not await may()):
                return head
            try:
                return await self._threads.put_head(thread, order, head.sequence)
            except (StaleFence, WriteInFlight) as error:
                log.debug("head of thread %s: %s", thread, error)
            await asyncio.sleep(pause * random.random())
            pause = min(pause * 2, _PAUSE_MAX_S)
        raise Unavailable(f"the head of thread {thread} could not be written: try again", thread=thread)


def _answer(joined: turns.Joined, order: ThreadHead, turn: Turn, thread: str) -> TakeTurn:
    """What the place of a run means for it."""
    met = joined.entry.met
    match joined.place:
        case "taken":
            return turns.taken(turn, joined.entry, order)
        case "waiting":
            return turns.waits(turn, joined.entry, thread)
        case "busy":
            return turns.refused(turn, f"thread {thread} is busy with run {met}", met)
        case "full":
            why = f"{len(order.waiting)} runs wait in thread {thread} already: try again when fewer do"
            return turns.refused(turn, why, met)


def _shared(point: Origin, record: RunRecord, fork: bool) -> Origin:
    """What a thread of the run's own shares with the one it comes from: of a run that begins from a checkpoint what was
    there at that time, which that run itself may have said."""
    if record.forked_from is None or not fork:
        return point
    own = point.without == record.forked_from.run
    return replace(point, at=min(point.at, record.forked_from.checkpoint), without=None if own else point.without)


def _optimistic(record: RunRecord) -> bool:
    return record.turn is not None and record.turn.policy == "optimistic" and record.turn.holder is None


def _conflict(outcome: Outcome, thread: str, base: int, order: ThreadHead) -> Outcome:
    active = order.active.run if order.active is not None else None
    found = order.version + (active is not None)
    by = f", which run {active} writes" if active else ""
    error = ErrorInfo(
        code="thread_conflict",
        message=f"thread {thread} was at version {base} when run {outcome.run} began, and is at version {found}{by}: "
        f"nothing of it is kept there; what it said is in thread {outcome.run}",
        details={"thread": thread, "expected": base, "found": found} | ({"active": active} if active else {}),
    )
    return replace(outcome, kind="failed", value=None, error=error)
