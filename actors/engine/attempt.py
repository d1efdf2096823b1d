"""One attempt at a run, from its grant to its outcome."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from functools import partial
from typing import Any

from ...store.errors import naming
from ...store.journal import Journal
from ...store.lineage import Beginning, load_beginning
from ...store.log import Loaded
from ...topics import codec, trace
from ...topics.errors import CallboardError, StaleFence
from ...topics.messages import CancelOrder, ErrorInfo, Grant, Interrupt, Outcome, Payload, Status, UnknownEffect
from ..agent import Agent, Terminal
from .answers import carried_out
from .asking import Asking
from .caller import Caller, quitting
from .children import Children
from .context import Context
from .effects import EffectCalls
from .errors import AttemptEnded
from .hold import Hold
from .inbox import Inbox
from .isolation import Isolation
from .memory import Memory
from .parts import Parts
from .place import Places
from .steps import Steps, ended_by, failure
from .tenure import Lease, Tenure
from .tether import Tether
from .tracing import attempt_ended, attempt_span
from .undo import Undo, current
from .workplace import Workplace
from .writer import Writer

log = logging.getLogger(__name__)

_STOP_S = 5.0
"""How long an agent's code may take to end after its attempt was ended; after that it is left behind, fenced off."""
_FLUSH_S = 2.0


class Attempt:
    """Carries out one granted run. `execute()` gives its outcome, or None when the run belongs to somebody else now."""

    def __init__(self, workplace: Workplace, agent: Agent[Any], grant: Grant, lease: Lease) -> None:
        assert grant.record is not None
        self.record = record = grant.record
        self._workplace, self._agent, self._fence = workplace, agent, grant.fence
        self._bus, self._blobs, self._log = workplace.bus, workplace.blobs, workplace.log
        self._interrupted: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        """Why the attempt is ended before its time; None when its code has ended by itself."""
        self._tether = tether = Tether(record.id, record.attempt, self.interrupt)
        self._refused = partial(workplace.refusals.note, run=record.id, attempt=record.attempt)
        limit = self._bus.inline_limit * 2
        self._writer = Writer(self._log, record.id, grant.fence, limit, tether.lost, self._refused)
        self._hold = Hold(workplace.patience, tether.suspend)
        fields = {"run_id": record.id, "attempt": record.attempt, "agent": record.agent}
        self._title = f"run {record.id} of agent {record.agent}"
        self._logger = logging.LoggerAdapter(logging.getLogger(f"callboard.agent.{record.agent}"), fields)
        self.tenure = Tenure(lease, self._log, record.id, grant.fence, tether.lost)
        self._call = Caller(workplace.threads, self.tenure, record.id)
        self._isolation = Isolation(workplace.processes, self._logger, self.tenure)
        self._children = Children(self._bus, self._log, record, self._hold, tether.lost, self._refused)
        self._parts: Parts | None = None
        self._work_task: asyncio.Task[Outcome | None] | None = None
        self._waits: list[list[str]] = []
        self._wake_at: datetime | None = None
        self._unknown: list[UnknownEffect] = []
        self._asked: list[Interrupt] = []
        self._hears = False
        self._undoing = self.record.status is Status.CANCEL_REQUESTED

    # -- from outside -------------------------------------------------------------------------------------------

    @property
    def got_on(self) -> bool:
        """Whether it has left a result, from which the next attempt goes on."""
        return self._writer.got_on

    def interrupt(self, why: str) -> None:
        """Ends the attempt at its next safe boundary: `suspended`, `stopped` (canceled), `released`, `timed_out`,
        `lost`.

        What the code waits for is noted and its context closed in the same moment: nothing can happen in between that
        the outcome would not tell of. Without effect on code that has ended already."""
        task = self._work_task
        if self._interrupted.done() or task is None or task.done():
            return
        if self._undoing and why != "released":
            return  # what is canceled already
        self._unknown = self._hold.questions(room=self._bus.inline_limit)
        self._asked = list(self._hold.asked)
        self._hears = self._hold.hearing > 0
        self._waits = self._hold.groups(limit=self._group_limit())
        self._wake_at = self._hold.look_at(len(self._waits))
        if self._parts is not None:
            self._parts.ended = AttemptEnded(f"attempt {self.record.attempt} of run {self.record.id} was ended: {why}")
        self._isolation.end()
        self._interrupted.set_result(why)
        task.cancel()

    def child_ended(self, child: str | None) -> None:
        """A child of this run has ended."""
        self._children.told(child)

    def told(self, sequence: int) -> None:
        """Something was said to this run."""
        if self._parts is not None:
            self._parts.asking.told(sequence)

    # -- execution ----------------------------------------------------------------------------------------------

    async def execute(self) -> Outcome | None:
        """Runs the agent's function to its end, or to an interruption."""
        if not trace.enabled():
            return await self._execute()
        with attempt_span(self.record, self._bus.salt) as span:
            outcome = await self._execute()
            attempt_ended(span, outcome)
            return outcome

    async def _execute(self) -> Outcome | None:
        limit = None if self._undoing else self._agent.timeout
        loop = asyncio.get_running_loop()
        timer = loop.call_later(limit.total_seconds(), self.interrupt, "timed_out") if limit else None
        job = self._undo(Loaded(self.record, self._fence)) if self._undoing else self._work()
        work = self._work_task = asyncio.create_task(job, name=self._title)
        try:
            work.add_done_callback(self._ended_by_itself)
            why = await self._interrupted
            return await (self._verdict(work) if why is None else self._stop(work, why))
        except asyncio.CancelledError:
            work.cancel()
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self._close()
            await self._children.close()

    def _ended_by_itself(self, _: asyncio.Task[Outcome | None]) -> None:
        if not self._interrupted.done():
            self._interrupted.set_result(None)

    def _close(self) -> None:
        ended = AttemptEnded(
            f"attempt {self.record.attempt} of run {self.record.id} has ended: its context serves no more"
        )
        if self._parts is not None:
            self._parts.ended = self._parts.ended or ended
            self._parts.asking.close()
        self._isolation.end()
        self._hold.close()
        self._writer.close(ended)
        self._tether.cut()

    async def _work(self) -> Outcome:
        """Everything that the run's own code takes part in; what it raises is the run's failure."""
        record = self.record
        checkpoints, begun = self._workplace.checkpoints, Beginning(Journal())
        if record.attempt > 1 or record.forked_from is not None:
            begun = await load_beginning(self._log, checkpoints, record, self._fence)
        parts = self._assemble(begun)
        await parts.memory.begin()
        parts.places.enter(begun.state.saved.checkpoint.place if begun.state else None)
        args = [Context(parts)]
        if self._agent.takes_input:
            with naming("the input", record.id):
                data = await self._blobs.value(record.input)
            args.append(self._agent.read(data))
        try:
            result = await carried_out(parts, lambda: self._agent.fn(*args))
        except (SystemExit, KeyboardInterrupt) as error:  # would end the event loop, and all runs of this process
            raise Terminal(f"agent {self._agent.name!r} {quitting(error)}") from error
        value = await self._blobs.payload(codec.encode(result))
        await self._writer.flush()
        return self._outcome("completed", value=value)

    def _assemble(self, begun: Beginning) -> Parts:
        places, journal = Places(self._title), begun.journal
        call, record, covers = self._call, self.record, self._agent.covers
        steps = Steps(journal, self._writer, self._blobs, self._hold, call, record, places, covers)
        effects = EffectCalls(steps, call, journal, self._writer, self._blobs, self._hold, record, places, covers)
        room = self._bus.max_payload // 8
        inbox = Inbox(self._bus, record.id, journal.heard)
        asking = Asking(steps, journal, self._writer, self._blobs, self._hold, record, inbox, room)
        memory = Memory(
            self._workplace.checkpoints, self._writer, self._hold, places, record, self._agent, begun.state,
            lambda: inbox.position, lambda: asking.entered, self._blobs,
        )  # fmt: skip
        self._parts = Parts(
            workplace=self._workplace,
            bus=self._bus,
            record=self.record,
            journal=journal,
            writer=self._writer,
            blobs=self._blobs,
            hold=self._hold,
            steps=steps,
            effects=effects,
            asking=asking,
            inbox=inbox,
            children=self._children,
            places=places,
            isolation=self._isolation,
            tenure=self.tenure,
            refused=self._refused,
            stop=self._tether.stop,
            logger=self._logger,
            memory=memory,
        )
        return self._parts

    async def _verdict(self, work: asyncio.Task[Outcome | None]) -> Outcome | None:
        if work.cancelled():
            return self._outcome(
                "failed", error=ErrorInfo(code="canceled_itself", message="the agent's code canceled its own task")
            )
        error = work.exception()
        if error is None:
            return work.result()
        if isinstance(error, StaleFence):
            return await self._owned_by_others()
        await self._flush()
        return self._outcome("failed", error=self._failure(error))

    def _failure(self, error: BaseException) -> ErrorInfo:
        return ended_by(error, self.record.attempt, self._agent.covers)

    async def _stop(self, work: asyncio.Task[Outcome | None], why: str) -> Outcome | None:
        """Waits for the end of the agent's code, which was cancelled, and says what became of the attempt. What the
        code returns from then on is not its result: it may come from an operation that was refused."""
        await asyncio.wait((work,), timeout=_STOP_S)
        if not work.done():
            log.warning(
                "run %s: the code of agent %r does not end; it is left behind, fenced off",
                self.record.id,
                self.record.agent,
            )
        elif not work.cancelled():
            work.exception()
        match why:
            case "lost":
                return await self._owned_by_others()
            case "suspended":
                return await self._suspended()
            case "timed_out":
                await self._flush()
                retry = self._agent.retries.covers(TimeoutError())
                message = f"the attempt took longer than {self._agent.timeout}"
                return self._outcome("timed_out", error=ErrorInfo(code="timed_out", message=message, retryable=retry))
            case "released":
                await self._flush()
                return self._outcome("released")
        return await self._end_by_wish()

    async def _flush(self) -> None:
        """What was told before the end is stored, if that is possible soon."""
        try:
            async with asyncio.timeout(_FLUSH_S):
                await self._writer.flush()
        except (TimeoutError, CallboardError) as error:
            log.info("run %s: events of attempt %d are lost: %s", self.record.id, self.record.attempt, error)

    async def _owned_by_others(self) -> Outcome | None:
        """After a refused write. A cancel request moves the fence as well: then the worker is still owed a word."""
        try:
            loaded = await self._log.load_current(self.record.id)
        except CallboardError as error:
            log.info("run %s could not be looked at: %s", self.record.id, error)
            return None
        record = loaded.record if loaded else None
        if record and record.attempt == self.record.attempt and record.status is Status.CANCEL_REQUESTED:
            return await self._end_by_wish()
        return None

    # -- cancel -------------------------------------------------------------------------------------------------

    async def _end_by_wish(self) -> Outcome | None:
        """The code has ended for a cancel. What the run did outside is undone, unless it is to be kept."""
        if not self._touched():
            return self._outcome("stopped")
        await self._flush()
        try:
            loaded = await current(self._log, self.record)
        except CallboardError as error:
            log.info("run %s could not be looked at: %s", self.record.id, error)
            loaded = None
        if loaded is None or (loaded.record.cancel or CancelOrder()).keeps:
            return self._outcome("stopped")
        return await self._undo(loaded)

    async def _undo(self, loaded: Loaded) -> Outcome | None:
        late = self._parts.effects.late if self._parts else ()
        undo = Undo(
            self._log,
            self._blobs,
            Caller(self._workplace.threads, run=self.record.id),
            loaded,
            self._writer.numbered,
            late,
        )
        try:
            left = await undo.execute()
        except StaleFence:
            return None
        except Exception as error:  # noqa: BLE001  # perhaps the author's code; said in the run's reason
            log.warning("run %s: its effects could not be undone: %s", self.record.id, error)
            if isinstance(error, CallboardError) and error.retryable:
                return self._outcome("released")
            left = failure(error)
        return self._outcome("stopped", error=left, undone=True)

    def _touched(self) -> bool:
        """Whether the run may have done anything outside."""
        return self._parts.effects.touched if self._parts else self.record.attempt > 1

    async def _suspended(self) -> Outcome | None:
        try:
            await self._writer.flush()
        except StaleFence:
            return await self._owned_by_others()
        except CallboardError as error:
            return self._outcome("failed", error=self._failure(error))
        kind = "input_required" if self._unknown or self._asked else "suspended"
        return self._outcome(kind)

    def _group_limit(self) -> int:
        return max(10, self._bus.inline_limit // 24)

    def _outcome(
        self, kind: Any, value: Payload | None = None, error: ErrorInfo | None = None, undone: bool = False
    ) -> Outcome:
        record, parts = self.record, self._parts
        steps = parts.steps if parts else None
        paused = kind in ("suspended", "input_required")
        return Outcome(
            run=record.id,
            attempt=record.attempt,
            epoch=record.epoch,
            worker=self._workplace.worker,
            kind=kind,
            value=value,
            error=error,
            waits=(self._waits or None) if paused else None,
            wake_at=self._wake_at if paused else None,
            unknown=(self._unknown or None) if paused else None,
            interrupts=(self._asked or None) if paused else None,
            taken=(parts.asking.taken or None) if parts else None,
            hears=self._hears if paused else False,
            heard=parts.inbox.heard if parts and paused else 0,
            undone=undone or not self._touched(),
            anew=kind == "failed" and self._agent.starts_anew(error),
            checkpoint=self._parts.memory.newest if self._parts else 0,
            abandoned=self._call.abandoned or None,
            steps=(steps.executed + steps.remembered) if steps else record.steps,
        )
