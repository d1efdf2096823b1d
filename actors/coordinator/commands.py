"""Commands to existing runs: cancel, timers, words of children, lost workers, sweeps."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from ...store.log import Loaded
from ...topics import units
from ...topics.bus import Bus
from ...topics.errors import IllegalTransition, InvalidInput, InvalidMessage, NoResponders, NotFound, Unavailable
from ...topics.ids import derived_run_id, require_run_id, root_of
from ...topics.messages import Alive, CancelOrder, Command, Outcome, RunRecord, Status
from ...topics.messages import Claim as ClaimMessage
from .answering import agents_asked, next_due
from .carrier import Carrier
from .deadlines import overdue
from .ledger import Applied, Ledger
from .routing import Routing
from .run_commands import (
    Cancel,
    CancelDeadline,
    Claim,
    Deadline,
    Due,
    End,
    Fail,
    Lost,
    Reconcile,
    Redispatch,
    RunCommand,
    Starved,
    Wake,
)

log = logging.getLogger(__name__)

_OVERDUE = timedelta(seconds=5)
_REASON_CHARS, _NAME_CHARS = 4000, 255


class StillWaiting(Unavailable):
    """A parent waits for more children, as far as a replica of the log knows that may be late: looked at again."""


def parse(subject: str, prefix: str, data: bytes, sequence: int) -> Command:
    """A durable command `cb.cmd.{run}.{verb}`, named by its sequence in the INBOX if it has no name of its own. Raises
    InvalidMessage, InvalidRunId."""
    run, dot, verb = subject[len(prefix) + 1 :].partition(".")
    if not dot or "." in verb:
        raise InvalidMessage(f"{subject} is no command: the form is {prefix}.<run>.<verb>", subject=subject)
    try:
        command = msgspec.json.decode(data, type=Command) if data.strip() else Command()
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidMessage(f"the body of {subject} is not a command: {error}", subject=subject) from error
    key = command.key or f"inbox:{sequence}"
    return msgspec.structs.replace(command, run=require_run_id(run), verb=verb, key=key)


class Commands:
    """Applies commands and carries out what they lead to."""

    def __init__(self, bus: Bus, ledger: Ledger, carrier: Carrier, routing: Routing) -> None:
        self._bus, self._ledger, self._carrier, self._routing = bus, ledger, carrier, routing
        self._verbs: dict[str, Callable[[Command], Awaitable[RunRecord | None]]] = {
            "cancel": self._cancel,
            "fail": self._fail,
            "outcome": self._outcome,
            "child": self._child,
            "due": self._due,
            "wake": self._wake,
            "cancel_deadline": self._cancel_deadline,
            "deadline": self._deadline,
            "starved": self._starved,
            "reconcile": self._reconcile,
            "sweep": self._sweep,
            "resume": carrier.interrupts.resume,
            "escalate": carrier.interrupts.escalate,
            "interrupt_due": self._interrupt_due,
            "say": carrier.words.say,
        }

    def serve(self, verb: str, handler: Callable[[Command], Awaitable[RunRecord | None]]) -> None:
        """Adds a verb that is carried out elsewhere."""
        self._verbs[verb] = handler

    async def execute(self, command: Command) -> RunRecord | None:
        """Carries a command out; gives the run after it. Raises InvalidMessage for an unknown verb, InvalidInput for
        texts that are too long, InvalidRunId, NotFound, IllegalTransition."""
        require_run_id(command.run)
        handler = self._verbs.get(command.verb)
        if handler is None:
            known = ", ".join(sorted(self._verbs))
            raise InvalidMessage(f"unknown verb {command.verb[:80]!r}; known are {known}", verb=command.verb[:80])
        _require_short("reason", command.reason or "", _REASON_CHARS)
        _require_short("name of who does it (by)", command.by, _NAME_CHARS)
        return await handler(command)

    async def apply(self, run: str, command: RunCommand) -> Applied:
        """Applies a command and carries out what the run owes after it.

        Also when the command changed nothing: then it may have come again because the coordinator that applied it died
        before it got to that."""
        applied = await self._ledger.apply(run, command)
        if applied.loaded is not None:
            await self._carrier.settle(applied.loaded, again=applied.verdict != "changed")
        return applied

    async def settle(self, run: str) -> None:
        """Carries out what the run owes now: after a command that came again, whatever it was."""
        loaded = await self._ledger.load(run)
        if loaded is not None:
            await self._carrier.settle(loaded, again=True)

    async def claim(self, worker: str, said: ClaimMessage) -> Applied:
        """A worker wants to carry a run out. What the run owes after that is left to the caller."""
        known = self._ledger.known(said.run)
        agent = await self._routing.version(known.agent, said.version) if known else None
        got_on = await self._ledger.got_on(said.run) if said.delivery > 1 else 0
        return await self._ledger.apply(said.run, Claim.of(worker, said, agent, got_on))

    async def end(self, outcome: Outcome) -> Applied:
        """The end of an attempt. Raises InvalidRunId, InvalidMessage for what no worker says."""
        root = root_of(require_run_id(outcome.run))
        for group in outcome.waits or ():
            for child in group:
                require_run_id(f"{root}~{child}")
        if outcome.kind == "completed":
            outcome = await self._carrier.threads.commit(outcome)
        anew = derived_run_id(self._bus.salt, 0, "anew", outcome.run) if outcome.anew else ""
        return await self.apply(outcome.run, End(outcome, random.random(), anew))

    async def lost(self, run: str, worker: str, attempt: int = 0) -> None:
        """The worker that may have held the run (in that attempt, or in any) is gone. The work message that it held is
        handed back in its name: it comes to another one before all that waits in the queue. When the run goes on
        otherwise it is taken away, or it would count as one in hand until its lease is over, at an agent's limit as
        well."""
        before = self._ledger.known(run)
        applied = await self.apply(run, Lost(worker, attempt, await self._ledger.got_on(run)))
        after = applied.loaded.record if applied.verdict == "changed" and applied.loaded else None
        if after is None:
            return
        if after.status is Status.QUEUED and after.lease:
            if not await self._carrier.queue.hand_back(after):
                await self._soft(run, Redispatch(after.agent, after.dispatch, "its work message was lost"))
        elif before and before.worker == worker and before.attempt == after.attempt:
            await self._carrier.queue.drop(run, before.lease)

    async def _cancel(self, command: Command) -> RunRecord | None:
        by = require_run_id(command.by) if command.by else ""
        order = CancelOrder(action=command.action, scope=command.scope, by=by)
        if command.scope == "children":
            return await self._cancel_children(command, order)
        applied = await self.apply(command.run, Cancel(command.reason, order))
        record = _required(applied, command.run)
        if applied.verdict == "changed" or not record.terminal:
            now = await self._ledger.load(command.run)  # it may have ended with its effects
            return now.record if now else record
        below = await self._carrier.family.below(record.id) if command.scope == "tree" else []
        if not any(not one.terminal for one in below):
            if applied.verdict == "applied":
                return record
            raise IllegalTransition(
                f"run {command.run} is {record.status} already: it cannot be canceled",
                run=command.run,
                status=str(record.status),
            )
        await self._carrier.family.cancel_below(record, order, command.reason)
        return record

    async def _reconcile(self, command: Command) -> RunRecord | None:
        if command.value is not None and not command.happened:
            raise InvalidInput(f"effect {command.effect!r} has a value although it did not happen", run=command.run)
        word = Reconcile(command.effect, command.happened, command.value, command.reason)
        applied = await self.apply(command.run, word)
        record = _required(applied, command.run)
        if applied.verdict == "refused":
            asked = ", ".join(f"{one.at} ({one.name})" for one in record.unknown or ())
            raise IllegalTransition(
                f"run {record.id} is {record.status} and does not wait for a word on effect {command.effect!r}: "
                + (f"it waits for {asked}; name one place" if asked else "it waits for none"),
                run=record.id,
                status=str(record.status),
            )
        return record

    async def _fail(self, command: Command) -> RunRecord | None:
        applied = await self.apply(command.run, Fail(command.reason))
        record = _required(applied, command.run)
        if applied.verdict == "refused":
            raise IllegalTransition(
                f"run {record.id} is {record.status}: only a run that is not being carried out, and has not ended, can "
                "be ended as failed; cancel it",
                run=record.id,
                status=str(record.status),
            )
        return record

    async def _cancel_children(self, command: Command, order: CancelOrder) -> RunRecord:
        loaded = await self._ledger.load(command.run)
        if loaded is None:
            raise NotFound(f"there is no run {command.run}", run=command.run)
        await self._carrier.family.cancel_below(loaded.record, order, command.reason)
        await self._carrier.family.look(command.run)  # it may have waited for them
        return loaded.record

    async def alive(self, command: Command, limit: int = 100) -> list[Alive]:
        """What a cancel was meant for and has not ended yet: where, and why."""
        loaded = await self._ledger.load(command.run) if command.scope != "children" else None
        below = await self._carrier.family.below(command.run) if command.scope != "run" else []
        records = [*([loaded.record] if loaded else []), *below]
        return [
            Alive(run=one.id, agent=one.agent, status=one.status, worker=one.worker, reason=one.reason)
            for one in records
            if not one.terminal
        ][:limit]

    async def _outcome(self, command: Command) -> RunRecord | None:
        if command.outcome is None or command.outcome.run != command.run:
            raise InvalidMessage(f"the outcome of {command.run} is missing or names another run", run=command.run)
        return _required(await self.end(command.outcome), command.run)

    async def _child(self, command: Command) -> RunRecord | None:
        ended = await self._carrier.family.look(command.run, command.child)
        if not ended and self._bus.replicas > 1:
            raise StillWaiting(f"run {command.run} waits for more children")
        known = self._ledger.known(command.run)
        if known is not None and agents_asked(known):
            await self._carrier.interrupts.ask_agents(command.run)
        return None

    async def _due(self, command: Command) -> RunRecord | None:
        return await self._soft(command.run, Due(command.dispatch))

    async def _interrupt_due(self, command: Command) -> RunRecord | None:
        return await self._carrier.interrupts.due(command.run, command.due)

    async def _wake(self, command: Command) -> RunRecord | None:
        return await self._soft(command.run, Wake(command.reason or "its timer fired"))

    async def _cancel_deadline(self, command: Command) -> RunRecord | None:
        return await self._soft(command.run, CancelDeadline(command.epoch))

    async def _deadline(self, command: Command) -> RunRecord | None:
        return await self._soft(command.run, Deadline())

    async def _starved(self, command: Command) -> RunRecord | None:
        return await self._soft(command.run, Starved(command.dispatch))

    async def _soft(self, run: str, command: RunCommand) -> RunRecord | None:
        applied = await self.apply(run, command)
        return applied.loaded.record if applied.loaded else None

    async def _sweep(self, command: Command) -> RunRecord | None:
        """Mends what a crash can have left: compares the record with what it is owed."""
        loaded = await self._ledger.load(command.run)
        if loaded is None:
            raise NotFound(f"there is no run {command.run}", run=command.run)
        over = overdue(loaded.record, units.now() - _OVERDUE)
        return await self._soft(command.run, over) if over is not None else await self._mend(loaded)

    async def _mend(self, loaded: Loaded) -> RunRecord:
        record = loaded.record
        match record.status:
            case Status.QUEUED if record.wake_at is None and record.turn is not None and record.turn.held:
                await self._carrier.settle(loaded)
            case Status.QUEUED if record.wake_at is not None:
                if units.now() - record.wake_at > _OVERDUE:
                    await self._soft(record.id, Due(record.dispatch))
            case Status.QUEUED:
                if await self._work_is_missing(record):
                    await self._soft(record.id, Redispatch(record.agent, record.dispatch, "its work message was lost"))
            case Status.WAITING:
                if record.wake_at is not None and units.now() - record.wake_at > _OVERDUE:
                    await self._soft(record.id, Wake("its timer is overdue"))
                else:
                    await self._carrier.settle(loaded)
            case Status.RUNNING | Status.CANCEL_REQUESTED:
                await self._sweep_running(record)
            case Status.INPUT_REQUIRED | Status.AUTH_REQUIRED if (due := next_due(record)) is not None:
                await self._carrier.interrupts.due(record.id, min(due, units.now()))
                await self.settle(record.id)
            case _:
                await self._carrier.settle(loaded)
        return record

    async def _work_is_missing(self, record: RunRecord) -> bool:
        """May err on either side: a second message is harmless, and a sweep comes again."""
        if not record.agent and await self._routing.serving(record.topic or ""):
            return True
        return await self._carrier.queue.lacks(record)

    async def _sweep_running(self, record: RunRecord) -> None:
        if record.worker is None:  # a tree that is being canceled
            await self.settle(record.id)
            return
        try:
            await self._bus.request(f"{self._bus.subjects.worker}.{record.worker}", timeout_s=1.0)
        except NoResponders:
            await self.lost(record.id, record.worker, record.attempt)
        except Unavailable:
            log.info("worker %s of run %s does not answer; its lease decides", record.worker, record.id)


def _require_short(what: str, text: str, most: int) -> None:
    """What a record takes over has a bound: one that no message could hold could never change again."""
    if len(text) > most:
        raise InvalidInput(f"the {what} has {len(text)} characters, at most {most} are allowed")


def _required(applied: Applied, run: str) -> RunRecord:
    if applied.loaded is None:
        raise NotFound(f"there is no run {run}", run=run)
    return applied.loaded.record
