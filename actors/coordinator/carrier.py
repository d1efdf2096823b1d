"""Carries out what a run owes: work messages, timers, words to parents, looks at children."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import assert_never

from ...store.attention import Attention
from ...store.log import EventLog, Loaded
from ...store.threads import Threads
from ...topics import crash, units
from ...topics.bus import Bus
from ...topics.client import head_bytes
from ...topics.messages import Command, RunRecord, Work, encode
from .effects import (
    AskAgents,
    AskTurn,
    CancelBelow,
    CheckChildren,
    CheckWords,
    Dispatch,
    DropTimers,
    Effect,
    LeaveTurn,
    MarkThread,
    Notify,
    Park,
    Retried,
    StartAnew,
    TellParent,
    Timer,
    owed,
)
from .family import Family
from .gates import Gates
from .interrupts import Interrupts
from .ledger import Ledger
from .threads import ThreadTurns
from .words import Words
from .work_message import WorkMessage, work_message
from .work_queue import WorkQueue

log = logging.getLogger(__name__)

_KNOWN_AGAIN = timedelta(seconds=60)
"""The broker's two minutes, and room for clocks, and for a message that came before the record."""


class Carrier:
    """The hands of the coordinator. Every method may be called again after any failure."""

    def __init__(self, bus: Bus, event_log: EventLog, ledger: Ledger, cancel_grace_s: float, gates: Gates) -> None:
        self._bus, self._log, self._ledger = bus, event_log, ledger
        self._cancel_grace_s = cancel_grace_s
        self.gates, self.queue = gates, WorkQueue(bus, gates)
        self.start_anew: Callable[[RunRecord], Awaitable[None]]
        """Set by whoever makes new runs."""
        self.family = Family(bus, event_log, ledger, self.settle)
        self.threads = ThreadTurns(bus, ledger, self.family, partial(self.settle, apart=True))
        self.words = Words(bus, event_log, ledger, self.settle)
        self.interrupts = Interrupts(bus, event_log, ledger, self.words, self.settle)

    async def settle(self, loaded: Loaded, *, apart: bool = False, again: bool = False) -> None:
        """Carries out all that the run's present status asks for. Raises as `Bus.write` does; give it again then.

        `again`: all of it has perhaps been done before. For a while the broker knows the work message again; after that
        another one is written only if it is not there any more. `apart`: for those who may be part of a look at the
        run's own tree, and cannot wait for the next one. What is below a run that is being canceled is left to a
        command."""
        crash.point("coordinator.before-effects", loaded.record.status)
        for effect in owed(loaded.record, self._cancel_grace_s):
            if apart and isinstance(effect, CancelBelow):
                await self._look_later(effect.run)
            elif not (isinstance(effect, Dispatch) and await self._goes_without(loaded.record, again)):
                await self._carry(effect)
        self.gates.settled(loaded.record)

    async def _goes_without(self, record: RunRecord, again: bool) -> bool:
        """Whether no work message is to be written: it is there, or it stands before its agent's gate now."""
        there = again and units.now() - record.updated_at > _KNOWN_AGAIN and not await self.queue.lacks(record)
        return there or await self.gates.takes(record)

    async def _carry(self, effect: Effect) -> None:
        match effect:
            case Dispatch():
                await self._dispatch(effect)
            case Timer() | DropTimers():
                await self._clock(effect)
            case CheckChildren() | CheckWords() | AskAgents():
                await self._look(effect)
            case TellParent():
                command = Command(child=effect.child)
                await self._bus.store(self._bus.subjects.command(effect.parent, "child"), encode(command))
            case CancelBelow():
                await self.family.look(effect.run)
            case MarkThread():
                await Threads(self._bus).roll_back(effect.thread, effect.run)
            case AskTurn() | LeaveTurn():
                await self._turn(effect)
            case Notify():
                self._notify(effect.worker, Command(run=effect.run, verb="cancel", epoch=effect.epoch))
            case Park() | Retried() | StartAnew():
                await self._follow_up(effect)
            case _:
                assert_never(effect)

    async def _look(self, effect: CheckChildren | CheckWords | AskAgents) -> None:
        match effect:
            case CheckChildren():
                await self._check_children(effect.run)
            case CheckWords():
                await self.words.look(effect.run)
            case AskAgents():
                await self.interrupts.ask_agents(effect.run)

    async def _turn(self, effect: AskTurn | LeaveTurn) -> None:
        if isinstance(effect, AskTurn):
            await self.threads.ask(effect.run)
        else:
            await self.threads.look(effect.thread, effect.run)

    async def _follow_up(self, effect: Park | Retried | StartAnew) -> None:
        match effect:
            case Park():
                await Attention(self._bus).park(effect.record)
            case StartAnew():
                await self.start_anew(effect.record)
            case Retried():
                before = await self._log.load(effect.run)
                if before is not None:
                    await Attention(self._bus).resolve(before.record, f"retried as {effect.by}")

    def _notify(self, worker: str, notice: Command) -> None:
        self._bus.publish(f"{self._bus.subjects.worker}.{worker}.notice", encode(notice))

    def begin_dispatch(self, effect: Dispatch) -> asyncio.Future[int]:
        """Publishes a work message; the future is done when it is stored."""
        return self._bus.write(*self._work(effect))

    async def _dispatch(self, effect: Dispatch) -> None:
        await self._bus.store(*self._work(effect))

    def _work(self, effect: Dispatch) -> WorkMessage:
        return work_message(self._bus.subjects, effect.queue, Work(run=effect.run, dispatch=effect.dispatch))

    async def _clock(self, effect: Timer | DropTimers) -> None:
        match effect:
            case Timer():
                await self._schedule(effect)
            case DropTimers():
                await self._drop_timers(effect.run)

    async def _schedule(self, timer: Timer) -> None:
        subjects = self._bus.subjects
        head = head_bytes(
            {
                "Nats-Schedule": units.schedule_at(timer.at),
                "Nats-Schedule-Target": subjects.command(timer.run, timer.verb),
            }
        )
        await self._bus.store(f"{subjects.timer}.{timer.run}.{timer.verb}", encode(timer.command), head)

    async def _drop_timers(self, run: str) -> None:
        subjects = self._bus.subjects
        await self._bus.api(f"STREAM.PURGE.{subjects.inbox}", {"filter": f"{subjects.timer}.{run}.*"})

    async def _check_children(self, run: str) -> None:
        ended = await self.family.look(run)
        if not ended and self._bus.replicas > 1:  # read from a replica that may be late: look again soon
            await self._look_later(run)

    async def _look_later(self, run: str) -> None:
        """Leaves the look at what is below a run to a command."""
        await self._bus.store(self._bus.subjects.command(run, "child"), encode(Command()))
