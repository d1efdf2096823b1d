"""What live runs are owed, and whether it is there: one look, which may see what the next moment mends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from ...store.log import Loaded, decode_record
from ...topics import reads
from ...topics.bus import Bus
from ...topics.errors import InvalidMessage
from ...topics.ids import root_of
from ...topics.messages import RunRecord, Status
from ...topics.versions import split
from ..coordinator.effects import Dispatch, Timer, owed
from . import remedies
from .asking import unanswered
from .findings import Suspect, suspect
from .history import History
from .inbox import Inbox
from .queue import WorkQueue
from .workers import Workers

_PAGE = 500


async def load(bus: Bus, runs: Sequence[str]) -> AsyncIterator[list[Loaded]]:
    """The records of those of `runs` that exist, page by page. What cannot be read is left out: the pass over the log
    has found it."""
    for start in range(0, len(runs), _PAGE):
        subjects = [bus.subjects.state(run) for run in runs[start : start + _PAGE]]
        found = await reads.many_last(bus, bus.subjects.events, subjects)
        yield [one for stored in found.values() if (one := _loaded(stored)) is not None]


def _loaded(stored: reads.Stored) -> Loaded | None:
    try:
        return Loaded(decode_record(stored.data), stored.sequence)
    except (InvalidMessage, RecursionError):
        return None


class Look:
    """One look at the queues, and at some runs. Make it with `await Look.at(bus, history)`."""

    def __init__(self, bus: Bus, history: History, inbox: Inbox, work: WorkQueue) -> None:
        self._bus, self._history = bus, history
        self.inbox, self._work = inbox, work
        self._workers = Workers(bus)

    @classmethod
    async def at(cls, bus: Bus, history: History) -> Look:
        """Reads the queues. Raises NotFound without the streams, BrokerError when the broker does not answer."""
        return cls(bus, history, await Inbox.read(bus), await WorkQueue.read(bus))

    async def runs(self, runs: Sequence[str]) -> AsyncIterator[Suspect]:
        """Loads the runs, and gives those that lack something."""
        async for page in load(self._bus, runs):
            await self._workers.ask(record.worker for record, _ in page if record.worker and self._asks(record))
            children = await self._ended_children(record for record, _ in page)
            for record, sequence in page:
                if record.terminal or record.id in self.inbox.expected:
                    continue
                for one in self._lacks(record, sequence, children):
                    yield one
                async for one in self._canceled(record, sequence):
                    yield one
                async for one in unanswered(self._bus, record, sequence):
                    yield one

    def left(self) -> Iterator[Suspect]:
        """Timers of runs that have ended: no further look can change that."""
        left: dict[str, list[str]] = {}
        for run, verb in self.inbox.timers:
            if verb != "cancel_deadline" and self._history.ended(run):  # that one is over in seconds
                left.setdefault(run, []).append(verb)
        for run, verbs in left.items():
            yield suspect(
                "timer_left", run, f"it has ended, and has timers still ({', '.join(sorted(verbs))})",
                remedy=remedies.timers_of(self._bus.subjects, run),
            )  # fmt: skip

    async def schedules(self) -> AsyncIterator[Suspect]:
        """What schedules are owed and do not have."""
        async for one in self._history.timetable.suspects(self._bus, self.inbox, self.missing):
            yield one

    async def missing(self, runs: Sequence[str]) -> AsyncIterator[str]:
        """Those of `runs` that have no record, and no task in the INBOX that will give them one."""
        for start in range(0, len(runs), _PAGE):
            page = runs[start : start + _PAGE]
            there = {one.record.id async for found in load(self._bus, page) for one in found}
            for run in page:
                if run not in there and run not in self.inbox.expected:
                    yield run

    def _lacks(self, record: RunRecord, sequence: int, children: dict[str, bool]) -> Iterator[Suspect]:
        for effect in owed(record):
            if isinstance(effect, Dispatch):
                yield from self._dispatch(effect, sequence)
            elif isinstance(effect, Timer):
                yield from self._timer(effect, sequence)
        if record.status is Status.QUEUED and record.lease:  # the message of a worker that is gone goes on
            yield from self._dispatch(Dispatch(record.queue, record.id, record.dispatch), sequence)
        elif record.status is Status.WAITING:
            yield from self._waiting(record, sequence, children)
        elif _held(record):
            yield from self._running(record, sequence)

    async def _canceled(self, record: RunRecord, sequence: int) -> AsyncIterator[Suspect]:
        canceled, subjects = self._history.canceled, self._bus.subjects
        for one in canceled.survivor(record, sequence, subjects):
            yield one
        if record.status is Status.CANCEL_REQUESTED and not _owes(record, Dispatch):
            pages = [page async for page in load(self._bus, canceled.below.get(record.id, []))]
            live = [one for page in pages for one in page if not one.record.terminal]
            for one in canceled.unfinished(record, sequence, subjects, live):
                yield one

    # -- messages -----------------------------------------------------------------------------------------------

    def _dispatch(self, effect: Dispatch, sequence: int) -> Iterator[Suspect]:
        there = list(self._work.of(effect.run))
        # to the workers, or before the gate of an agent with limits
        queue, gate = effect.queue, f"{split(effect.queue)[0]}."
        if any(one.dispatch == effect.dispatch and (one.queue == queue or one.queue.startswith(gate)) for one in there):
            return
        others = ", ".join(f"dispatch {one.dispatch} on {one.queue}" for one in there)
        yield suspect(
            "work_missing", effect.run,
            f"it is queued without the work message of dispatch {effect.dispatch}"
            + (f"; there is {others}" if others else ""),
            expected=f"dispatch {effect.dispatch} on {self._bus.subjects.work}.{effect.queue}", sequence=sequence,
            remedy=remedies.dispatch(self._bus.subjects, effect),
        )  # fmt: skip

    def _timer(self, effect: Timer, sequence: int) -> Iterator[Suspect]:
        there = self.inbox.timers.get((effect.run, effect.verb))
        if there is not None and (there.dispatch, there.epoch) == (effect.dispatch, effect.epoch):
            return
        stale = "" if there is None else f"; there is one of dispatch {there.dispatch}, cancel epoch {there.epoch}"
        yield suspect(
            "timer_missing", effect.run, f"it has no timer for {effect.verb} at {effect.at.isoformat()}{stale}",
            expected=f"a schedule on {self._bus.subjects.timer}.{effect.run}.{effect.verb}", sequence=sequence,
            remedy=remedies.timer(self._bus.subjects, effect),
        )  # fmt: skip

    # -- running ------------------------------------------------------------------------------------------------

    def _asks(self, record: RunRecord) -> bool:
        return _held(record) and not self._leased(record)

    def _leased(self, record: RunRecord) -> bool:
        return any(one.sequence == record.lease for one in self._work.of(record.id))

    def _running(self, record: RunRecord, sequence: int) -> Iterator[Suspect]:
        if self._leased(record):
            return
        state = self._workers.state(record.worker, record.id) if record.worker else "gone"
        if state == "holds":
            return
        subjects = self._bus.subjects
        remedy = {
            "gone": remedies.sweep(subjects, record.id),
            "forgot": remedies.release(subjects, record),
        }.get(state)
        what = {
            "gone": "is gone", "forgot": "is alive and does not hold it", "silent": "does not answer",
        }[state]  # fmt: skip
        yield suspect(
            "work_unclaimed", record.id,
            f"attempt {record.attempt} is under way, its work message {record.lease} is not there any more, and its "
            f"worker {record.worker} {what}",
            sequence=sequence, remedy=remedy,
        )  # fmt: skip

    # -- waiting ------------------------------------------------------------------------------------------------

    async def _ended_children(self, records: Iterable[RunRecord]) -> dict[str, bool]:
        """Of each child that a waiting run waits for and that exists: whether it has ended."""
        wanted = {child for record in records for group in groups(record) for child in group}
        found = {child: True for child in wanted if self._history.ended(child)}
        async for page in load(self._bus, sorted(wanted - found.keys())):
            found.update((record.id, record.terminal) for record, _ in page)
        return found

    def _waiting(self, record: RunRecord, sequence: int, children: dict[str, bool]) -> Iterator[Suspect]:
        waits, subjects = groups(record), self._bus.subjects
        over = next((group for group in waits if all(children.get(child) for child in group)), None)
        absent = [child for group in waits for child in group if child not in children]
        if over is not None:
            names = ", ".join(over[:5]) + (f" and {len(over) - 5} more" if len(over) > 5 else "")
            yield suspect(
                "parent_forgotten", record.id, f"it waits for children that have all ended ({names})",
                expected="it is woken when they have ended", sequence=sequence,
                remedy=remedies.child(subjects, record.id),
            )  # fmt: skip
        elif absent:
            yield suspect(
                "wait_endless", record.id, f"it waits for a child that has no run ({absent[0]})", sequence=sequence,
                remedy=remedies.wake(subjects, record.id, "a child that it waits for does not exist"),
            )  # fmt: skip
        elif not waits and record.wake_at is None and not record.hears:
            yield suspect(
                "wait_endless", record.id, "it waits for nothing", sequence=sequence,
                remedy=remedies.wake(subjects, record.id, "there is nothing to wait for"),
            )  # fmt: skip


def _owes(record: RunRecord, kind: type[Dispatch | Timer]) -> bool:
    return any(isinstance(effect, kind) for effect in owed(record))


def _held(record: RunRecord) -> bool:
    """Whether a worker has the run, and nothing but its lease brings the run on."""
    if record.status is Status.CANCEL_REQUESTED:
        return record.worker is not None and not _owes(record, Timer)
    return record.status is Status.RUNNING


def groups(record: RunRecord) -> list[list[str]]:
    """The groups of children that a run waits for, by their ids; none unless it waits."""
    if record.status is not Status.WAITING:
        return []
    root = root_of(record.id)
    return [[f"{root}~{child}" for child in group] for group in record.waits or () if group]
