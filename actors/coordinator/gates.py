"""The gates of the agents with limits: what waits is stored, let through in turn, and handed to the workers' queue.

    owed dispatch ─→ entry on cb.work.{agent}.{priority}.{key} ─→ holder in cb.gate.{agent} ─→ cb.work.{agent}

An agent has one gate for all its versions: runs that are pinned to one pass it with the others, and go on to the queue
of their version, `cb.work.{agent}@{version}`.

Each arrow is one write, and each may be done again: an entry is removed only after its work message is stored, and
one whose dispatch is a holder already only gets that message again. So a crash in between loses no attempt. The gate is
written under a fence: two coordinators cannot give the same slot twice. A look at a gate that another coordinator
should have taken is taken by all, every two seconds.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from typing import NamedTuple, cast

import msgspec

from ...store.log import EventLog
from ...topics import crash, reads
from ...topics.bus import Bus, fence
from ...topics.errors import BrokerError, CallboardError, StaleFence
from ...topics.messages import Gate, Holder, Limits, Priority, RunRecord, Status, Work, encode
from ...topics.versions import versioned
from . import gate as rules
from .gate import Turn
from .routing import Routing
from .work_message import work_message

log = logging.getLogger(__name__)

_LOOK_S = 2.0
_AGAIN_S = 0.5
_PER_HOLDER_S = 0.005
_TRIES = 20
_REMEMBERED = 5000

_decode_gate = msgspec.json.Decoder(Gate).decode
_decode_work = msgspec.json.Decoder(Work).decode


class _Entry(NamedTuple):
    """A dispatch that waits, and the sequence of the message that says so."""

    turn: Turn
    holder: Holder
    sequence: int
    queue: str
    """Where its work message goes."""


class Gates:
    """Lets the attempts of agents with limits through. Any number of coordinators may do so at once."""

    def __init__(self, bus: Bus, event_log: EventLog, routing: Routing) -> None:
        self._bus, self._log, self._routing = bus, event_log, routing
        self._turns: dict[str, asyncio.Task[None]] = {}
        self._poked: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._released: dict[str, dict[str, int]] = {}
        self._looked: dict[str, float] = {}
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def limits(self, agent: str) -> Limits | None:
        """The limits of an agent, as it is registered now."""
        info = self._routing.agent(agent)
        return None if info is None else info.limits

    async def takes(self, record: RunRecord) -> bool:
        """Puts the present dispatch of a run before its agent's gate; False when it may go to the workers at once.

        So may what undoes the effects of a canceled run. Raises as `Bus.store` does; do it again then."""
        limits = self.limits(record.agent)
        if limits is None or record.undo:
            return False
        queue = f"{record.agent}.{record.priority}.{rules.key_of(limits, record)}"
        await self._bus.store(*work_message(self._bus.subjects, queue, _entry_of(record, record.dispatch)))
        self.poke(record.agent)
        return True

    def settled(self, record: RunRecord) -> None:
        """A record of an agent with limits was written: it may say that a slot is free."""
        if self.limits(record.agent) is None:
            return
        over = record.dispatch - rules.holds(record, record.dispatch)
        released = self._released.setdefault(record.agent, {})
        released[record.id] = max(over, released.get(record.id, -1))
        if len(released) > _REMEMBERED:
            released.clear()  # the records themselves tell
        if over == record.dispatch:
            self.poke(record.agent)

    async def knows(self, record: RunRecord) -> bool:
        """Whether the present dispatch of a run waits at its agent's gate or was let through."""
        current, _ = await self._read(record.agent)
        if any((one.run, one.dispatch) == (record.id, record.dispatch) for one in current.holders):
            return True
        subjects = self._bus.subjects
        mark = encode(_entry_of(record, record.dispatch))
        async for page in reads.read(self._bus, subjects.work_stream, f"{subjects.work}.{record.agent}.*.*"):
            if any(one.data == mark for one in page):
                return True
        return False

    # -- when to look ---------------------------------------------------------------------------------------------

    def poke(self, agent: str) -> None:
        """Has the gate looked at: now, or once more when that is being done."""
        if self._closed:
            return
        self._poked.add(agent)
        if agent not in self._turns:
            task = self._turns[agent] = asyncio.create_task(self._look(agent), name=f"gate-{agent}")
            task.add_done_callback(lambda _: self._looked_at(agent))

    def _looked_at(self, agent: str) -> None:
        self._turns.pop(agent, None)
        if agent in self._poked:
            self.poke(agent)

    def _later(self, agent: str, seconds: float) -> None:
        timer = self._timers.pop(agent, None)
        if timer is not None:
            timer.cancel()
        self._timers[agent] = self._loop.call_later(seconds, self.poke, agent)

    async def watch(self) -> None:
        """Looks at every gate before which something waits, now and then. Runs until cancelled."""
        try:
            while True:
                await asyncio.sleep(_LOOK_S)
                try:
                    for agent in await self._gated():
                        self.poke(agent)
                except CallboardError as error:
                    log.info("the gates could not be looked at: %s", error)
        finally:
            self._closed = True
            for timer in self._timers.values():
                timer.cancel()
            for task in list(self._turns.values()):
                task.cancel()

    async def _gated(self) -> set[str]:
        found, _ = await self._counts("*")
        return {subject.split(".")[-3] for subject in found}

    # -- one look -------------------------------------------------------------------------------------------------

    async def _look(self, agent: str) -> None:
        try:
            for _ in range(_TRIES):
                self._poked.discard(agent)
                if await self._turn(agent):
                    return
        except CallboardError as error:
            log.info("gate of agent %s: %s; looked at again soon", agent, error)
        except Exception:
            log.exception("gate of agent %s: looked at again soon", agent)
        self._later(agent, _AGAIN_S)

    async def _turn(self, agent: str) -> bool:
        """Lets through who may pass. False: the gate has changed meanwhile, or an entry was out of date."""
        counts, now = await self._counts(agent)
        if not counts:
            return True
        waiting = {_turn_of(subject): count for subject, count in counts.items()}
        limits = self.limits(agent)
        current, sequence = await self._read(agent)
        released = dict(self._released.get(agent, {}))
        current = rules.without(current, released)
        chosen = rules.turns(current, limits, waiting, now)
        pause = rules.next_token_s(current, limits, now)
        if not chosen and pause is None and self._may_check(agent, current):
            current = rules.without(current, await self._over(agent, current))
            chosen = rules.turns(current, limits, waiting, now)
        if not chosen:
            self._later(agent, pause or _pause_s(current))
            return True
        entries, idle = await self._entries(agent, chosen)
        known = {(one.run, one.dispatch) for one in current.holders}
        passed = {(one.holder.run, one.holder.dispatch): one for one in entries}
        fresh = [(one.turn, one.holder) for what, one in passed.items() if what not in known]
        if fresh:
            current = rules.let_through(current, limits, fresh, now)
            try:
                await self._bus.write(self._bus.subjects.gate(agent), encode(current), fence(sequence))
            except StaleFence:
                return False
            crash.point("coordinator.after-gate")
            self._drop(agent, released, current)
        await asyncio.gather(*(self._hand_over(one) for one in passed.values()))
        crash.point("coordinator.after-hand-over")
        await asyncio.gather(*(self.forget(one) for one in [*(entry.sequence for entry in entries), *idle]))
        if (pause := rules.next_token_s(current, limits, now)) is not None:
            self._later(agent, pause)
        return not idle and len(fresh) == len(chosen) < rules.AT_ONCE

    def _drop(self, agent: str, known: dict[str, int], current: Gate) -> None:
        """Forgets releases that the gate has taken in."""
        released, there = self._released.get(agent, {}), {one.run for one in current.holders}
        for run, dispatch in known.items():
            if run not in there and released.get(run) == dispatch:
                del released[run]

    # -- holders --------------------------------------------------------------------------------------------------

    def _may_check(self, agent: str, current: Gate) -> bool:
        """Whether to look at the holders' records: not all the time, as it reads them all."""
        now = self._loop.time()
        if now - self._looked.get(agent, -_LOOK_S) < _pause_s(current):
            return False
        self._looked[agent] = now
        return True

    async def _over(self, agent: str, current: Gate) -> dict[str, int]:
        """The holders that hold nothing any more, by their own records: with the last dispatch that is over."""
        records = await self._log.load_many({one.run for one in current.holders})
        found: dict[str, int] = {}
        unsent: dict[str, dict[bytes, str]] = {}
        for one in current.holders:
            record = records.get(one.run) or await self._at_the_leader(one.run)
            if record is None or not rules.holds(record, one.dispatch):
                found[one.run] = max(one.dispatch, found.get(one.run, 0))
            elif record.status is Status.QUEUED:
                subject = f"{self._bus.subjects.work}.{agent}.{record.priority}.{one.key}"
                unsent.setdefault(subject, {})[encode(_entry_of(record, one.dispatch))] = record.queue
        await asyncio.gather(*(self._send_again(subject, queues) for subject, queues in unsent.items()))
        return found

    async def _at_the_leader(self, run: str) -> RunRecord | None:
        loaded = await self._log.load_current(run)
        return loaded.record if loaded else None

    async def _send_again(self, subject: str, queues: dict[bytes, str]) -> None:
        """Those that were let through and have their entry still: a crash may have come before their work message."""
        async for page in reads.read(self._bus, self._bus.subjects.work_stream, subject):
            for stored in page:
                if (queue := queues.get(stored.data)) is not None:
                    await self._bus.store(f"{self._bus.subjects.work}.{queue}", stored.data)
                    await self.forget(stored.sequence)

    # -- entries --------------------------------------------------------------------------------------------------

    async def _counts(self, agent: str) -> tuple[dict[str, int], datetime]:
        """What waits, by subject, and the broker's time: the same clock for all coordinators."""
        subjects = self._bus.subjects
        body = {"subjects_filter": f"{subjects.work}.{agent}.*.*"}
        info = await self._bus.api(f"STREAM.INFO.{subjects.work_stream}", body)
        assert info is not None
        return (info["state"].get("subjects") or {}), datetime.fromisoformat(info["ts"][:26].rstrip("Z") + "Z")

    async def _read(self, agent: str) -> tuple[Gate, int]:
        subjects = self._bus.subjects
        stored = await reads.last_from_leader(self._bus, subjects.actors, subjects.gate(agent))
        if stored is None:
            return Gate(agent=agent), 0
        try:
            return _decode_gate(stored.data), stored.sequence
        except msgspec.MsgspecError as error:
            log.warning("message %d on %s is not a gate: %s; begun anew", stored.sequence, stored.subject, error)
            return Gate(agent=agent), stored.sequence

    async def _entries(self, agent: str, chosen: list[Turn]) -> tuple[list[_Entry], list[int]]:
        """The oldest entries of those whose turn it is, in their order; and the sequences of those that are over."""
        subjects = self._bus.subjects
        wanted = {turn: chosen.count(turn) for turn in dict.fromkeys(chosen)}
        pages = await asyncio.gather(
            *(
                reads.page_after(
                    self._bus, subjects.work_stream, f"{subjects.work}.{agent}.{turn.priority}.{turn.key}", 0, count
                )
                for turn, count in wanted.items()
            )
        )
        found: dict[Turn, list[_Entry]] = {}
        idle: list[int] = []
        for turn, (page, _) in zip(wanted, pages, strict=True):
            for stored in page:
                try:
                    work = _decode_work(stored.data)
                except (msgspec.MsgspecError, RecursionError) as error:
                    log.warning("message %d on %s is no work: %s", stored.sequence, stored.subject, error)
                    idle.append(stored.sequence)
                    continue
                queue = versioned(agent, work.version) if work.version else agent
                holder = Holder(work.run, work.dispatch, turn.key)
                found.setdefault(turn, []).append(_Entry(turn, holder, stored.sequence, queue))
        return await self._needed([found[turn].pop(0) for turn in chosen if found.get(turn)], idle)

    async def _needed(self, entries: list[_Entry], idle: list[int]) -> tuple[list[_Entry], list[int]]:
        records = await self._log.load_many({one.holder.run for one in entries})
        needed = []
        for one in entries:
            record = records.get(one.holder.run)
            if record is None or rules.waits(record, one.holder.dispatch):
                needed.append(one)
            else:
                idle.append(one.sequence)
        return needed, idle

    async def _hand_over(self, entry: _Entry) -> None:
        work = Work(run=entry.holder.run, dispatch=entry.holder.dispatch)
        await self._bus.store(*work_message(self._bus.subjects, entry.queue, work))

    async def forget(self, sequence: int) -> None:
        """Takes a message out of the queue. Raises as `Bus.api` does if that should be tried again."""
        body = {"seq": sequence, "no_erase": True}
        try:
            await self._bus.api(f"STREAM.MSG.DELETE.{self._bus.subjects.work_stream}", body)
        except BrokerError as error:
            if error.retryable:
                raise
            log.debug("entry %d is gone: %s", sequence, error)  # another coordinator was faster


def _entry_of(record: RunRecord, dispatch: int) -> Work:
    return Work(run=record.id, dispatch=dispatch, version=record.version if record.pin else "")


def _pause_s(current: Gate) -> float:
    """How long the records of the holders are left alone after a look at all of them, in seconds."""
    return _AGAIN_S + _PER_HOLDER_S * len(current.holders)


def _turn_of(subject: str) -> Turn:
    _, priority, key = subject.rsplit(".", 2)
    return Turn(cast(Priority, priority), key)
