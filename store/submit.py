"""How anybody asks for runs: submit a task, command a run, wait for its end. Needs no coordinator in this process."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec

from ..topics.bus import Bus
from ..topics.client import Message, head_bytes
from ..topics.errors import (
    BrokerError,
    CallboardError,
    InvalidInput,
    InvalidMessage,
    NoResponders,
    NotFound,
    StorageFull,
    ThreadBusy,
    Unavailable,
)
from ..topics.ids import new_run_id, new_token, require_run_id
from ..topics.messages import (
    Alive,
    Answer,
    Command,
    CommandReply,
    Payload,
    Policy,
    Priority,
    RunRecord,
    Status,
    SubmitReply,
    TaskRequest,
    encode,
)
from ..topics.reads import Stored
from ..topics.rpc import ask
from ..topics.subjects import require_token
from ..topics.tasks import require_valid
from ..topics.versions import require_version
from .blobs import Blobs
from .errors import error_of
from .log import EventLog, Loaded, decode_record

log = logging.getLogger(__name__)

_ANSWER_S = 5.0
_COMMAND_PATIENCE_S = 2.0
_RELOADS_S = (0.5, 1.0, 2.0)
_RELOAD_S = 5.0

Reply = TypeVar("Reply", SubmitReply, CommandReply)


class Submitter:
    """The client's side of the run protocol."""

    def __init__(self, bus: Bus, blobs: Blobs) -> None:
        self._bus, self._blobs = bus, blobs
        self._log = EventLog(bus)

    # -- submit -------------------------------------------------------------------------------------------------

    async def submit(
        self,
        request: TaskRequest,
        value: bytes | None = None,
        patience_s: float = 10.0,
        *,
        update: bytes | None = None,
    ) -> SubmitReply:
        """Creates the run and returns once it is durable. `value`, when given, is the input's JSON, of any size; a fork
        without one has the input of the run that it begins from. `update`: of a fork, the JSON of its edit.

        While no coordinator answers, the request is repeated for `patience_s` seconds; it names its run or its
        idempotency key (a run id is made here when it has neither), so that a repeated one gives the same run. Raises
        NoResponders or Unavailable after that, and at once what a coordinator answered: IdempotencyConflict,
        InvalidInput …; StorageFull when there is no room, in the log or for the work message: the run may exist then,
        and asking again with the same id or key is right."""
        if value is not None:
            request = request.carrying(await self._blobs.payload(value))
        if request.fork is not None:
            edit = None if update is None else await self._blobs.payload(update)
            fork = msgspec.structs.replace(request.fork, update=edit, anew=value is not None)
            request = msgspec.structs.replace(request, fork=fork)
        if request.run is None and request.key is None:
            request = msgspec.structs.replace(request, run=new_run_id())
        return await self._asked("submit", encode(request), SubmitReply, patience_s)

    async def publish(
        self,
        topic: str,
        value: bytes,
        *,
        run: str | None = None,
        thread: str | None = None,
        policy: Policy | None = None,
        key: str | None = None,
        metadata: dict[str, Any] | None = None,
        trace: str | None = None,
        run_at: datetime | float | None = None,
        deadline_s: float | None = None,
        wait_timeout_s: float | None = None,
        priority: Priority | None = None,
    ) -> int:
        """Publishes a task, input given as JSON, on `cb.task.{topic}`; returns its sequence in the INBOX stream once it
        is stored. A coordinator creates the run when one is there; it begins at `run_at` (a time with a zone, or
        seconds from now), or at once; `policy` says what is done in a busy thread; `TaskRequest` describes the last
        three. Raises Unavailable, StorageFull, InvalidInput (InvalidSubject, InvalidRunId) for what could only become a
        dead letter, or what a header cannot carry."""
        asked = TaskRequest(
            topic=topic, run=run, thread=thread, policy=policy, key=key, metadata=metadata, run_at=run_at,
            deadline_s=deadline_s, wait_timeout_s=wait_timeout_s,
        )  # fmt: skip
        require_valid(asked, self._bus.inline_limit)
        if key is not None and Message("", "", b"", head_bytes({"Key": key})).headers["Key"] != key:
            raise InvalidInput(
                f"idempotency key {key[:80]!r} cannot travel in a header: leave out line breaks, and spaces around it"
            )
        headers = {"Nats-Msg-Id": new_token(20)}  # a repeated publish is stored once
        given = {"Callboard-Run": run, "Callboard-Thread": thread, "Callboard-Policy": policy}
        given |= {"Callboard-Key": key, "traceparent": trace}
        seconds = {"Callboard-Deadline": deadline_s, "Callboard-Wait-Timeout": wait_timeout_s}
        given |= {name: f"{limit!r}" for name, limit in seconds.items() if limit is not None}
        given["Callboard-Priority"] = priority
        if run_at is not None:
            given["Callboard-Run-At"] = run_at.isoformat() if isinstance(run_at, datetime) else f"{run_at!r}"
        headers |= {name: text for name, text in given.items() if text is not None}
        if metadata:
            headers["Callboard-Metadata"] = encode(metadata).decode()
        subject = f"{self._bus.subjects.task}.{topic}"
        if len(value) > self._bus.inline_limit:
            headers["Callboard-Ref"] = encode(await self._blobs.put(value)).decode()
            value = b""
        return await self._bus.store(subject, value, head_bytes(headers))

    # -- command ------------------------------------------------------------------------------------------------

    async def command(self, run: str, verb: str, reason: str | None = None) -> RunRecord:
        """Tells a run to do `verb` (`cancel`, …); returns its record after that.

        While no coordinator answers, the command is stored for the next one, and the record is the one of now. Raises
        NotFound, IllegalTransition, InvalidInput, or Unavailable when it could not even be stored."""
        command = Command(run=require_run_id(run), verb=require_token("verb", verb), reason=reason)
        return (await self._commanded(command))[0]

    async def retry(self, run: str, version: str = "") -> RunRecord:
        """Has a run that ended without a result retried, a pinned one by workers of another `version` if one is given;
        returns the record of the run that goes on from it. Raises as `command` does."""
        command = Command(run=require_run_id(run), verb="retry", version=require_version(version))
        return (await self._commanded(command))[0]

    async def cancel(
        self,
        run: str,
        *,
        scope: Literal["run", "tree", "children"] = "tree",
        action: Literal["cancel", "interrupt", "rollback"] = "cancel",
        reason: str | None = None,
    ) -> tuple[RunRecord, list[Alive]]:
        """Cancels a run, the tree below it, or only its children; returns its record and what has not ended yet.

        Idempotent: again, it reaches again what still lives. Raises as `command` does; IllegalTransition when nothing
        lives that it could end."""
        command = Command(run=require_run_id(run), verb="cancel", reason=reason, scope=scope, action=action)
        return await self._commanded(command)

    async def reconcile(
        self, run: str, effect: str, *, happened: bool, value: Payload | None = None, reason: str | None = None
    ) -> RunRecord:
        """Says whether an unknown effect (its place or its name) of an `input_required` run has happened, and if so
        what its function would have returned; the run goes on when all are decided.

        Again with the same word it changes nothing. Raises as `command` does; IllegalTransition when the run does not
        wait for it."""
        command = Command(
            run=require_run_id(run), verb="reconcile", effect=effect, happened=happened, value=value, reason=reason
        )
        return (await self._commanded(command))[0]

    async def resume(self, run: str, answers: Sequence[Answer]) -> RunRecord:
        """Answers open interrupts of the run, or of runs below it, all of them or none; the run after that.

        Answers say respond, approve, edit or reject, each to the interrupt with its `id` (which the only open one need
        not have). Again with the same answers it changes nothing. Raises as `command` does, InterruptNotFound,
        InterruptAnswered, InterruptAmbiguous (each lists what is open), InvalidAnswer."""
        command = Command(run=require_run_id(run), verb="resume", answers=list(answers), key=new_token())
        return (await self._commanded(command))[0]

    async def escalate(
        self, run: str, interrupt: str = "", *, to: str | None = None, agent: str | None = None, by: str = "",
        reason: str | None = None,
    ) -> RunRecord:  # fmt: skip
        """Passes an open interrupt of the run, or of one below it, on to another person, or to an agent whose result is
        the answer; the run that asks, after that. Raises as `resume` does."""
        command = Command(
            run=require_run_id(run), verb="escalate", interrupt=interrupt, to=to, agent=agent, by=by, reason=reason
        )
        return (await self._commanded(command))[0]

    async def say(self, run: str, content: Payload, *, by: str = "", key: str | None = None) -> RunRecord:
        """Says something to a run that has not ended: durable when this returns, heard once, at the next safe boundary
        of its code. Again with the same `key`, nothing is said. Raises as `command` does; IllegalTransition for a run
        that has ended, or is being canceled."""
        command = Command(run=require_run_id(run), verb="say", value=content, by=by, key=key or new_token())
        return (await self._commanded(command))[0]

    async def _commanded(self, command: Command) -> tuple[RunRecord, list[Alive]]:
        try:
            reply = await self._asked("command", encode(command), CommandReply, _COMMAND_PATIENCE_S)
        except (NoResponders, Unavailable):
            return await self._left(command), []
        if reply.record is None:
            raise InvalidMessage(f"the answer to {command.verb} of {command.run} has no record")
        return reply.record, reply.alive or []

    async def _left(self, command: Command) -> RunRecord:
        """Stores the command for a coordinator to come."""
        found = await self._log.require(command.run)
        await self._bus.store(self._bus.subjects.command(command.run, command.verb), encode(command))
        return found.record

    async def _asked(self, name: str, data: bytes, kind: type[Reply], patience_s: float) -> Reply:
        """Asks a coordinator, again and again while it may help. That there is no room is told at once."""
        loop = asyncio.get_running_loop()
        deadline, delay = loop.time() + patience_s, 0.02
        while True:
            try:
                answer_s = min(_ANSWER_S, max(0.1, deadline - loop.time()))
                return _reply(await ask(self._bus, name, data, answer_s), kind)
            except CallboardError as error:
                if not error.retryable or isinstance(error, StorageFull) or loop.time() + delay > deadline:
                    raise
                log.debug("%s is repeated: %s", name, error)
            await asyncio.sleep(delay * (0.5 + random.random()))
            delay = min(delay * 2, 1.0)

    # -- wait ---------------------------------------------------------------------------------------------------

    async def wait(self, run: str, timeout_s: float | None = None) -> RunRecord:
        """Waits until the run is terminal and returns its record; after `timeout_s` seconds returns the newest
        record as it is (see `RunRecord.terminal`). The run may be created later.

        Listens to the live subject and loads the record after that, again after each reconnect and every few
        seconds: what a lost notice said is learned then. Raises, when the time is up and no record was seen, NotFound
        or what the broker's answer was."""
        watch = _Watch(self._bus, self._log, require_run_id(run))
        await watch.open()
        try:
            async with asyncio.timeout(timeout_s):
                return await watch.end()
        except TimeoutError:
            return await watch.newest()
        finally:
            await watch.close()


class _Watch:
    """Follows one run to its end."""

    def __init__(self, bus: Bus, log: EventLog, run: str) -> None:
        self._bus, self._log, self._run = bus, log, run
        self._found: Loaded | None = None
        self._problem: BrokerError | None = None
        self._poke = asyncio.Event()
        self._stale = True

    async def open(self) -> None:
        subject = self._bus.subjects.live_of(self._bus.subjects.state(self._run))
        self._subscription = await self._bus.subscribe(subject, self._heard)
        self._bus.on_reconnect.append(self._reconnected)

    async def close(self) -> None:
        self._bus.on_reconnect.remove(self._reconnected)
        await self._subscription.close()

    def _heard(self, message: Message) -> None:
        stored = Stored.of(message)
        try:
            self._take(Loaded(decode_record(stored.data), stored.sequence))
        except InvalidMessage as error:
            log.debug("on %s: %s", message.subject, error)

    def _reconnected(self) -> None:
        self._stale = True
        self._poke.set()

    def _take(self, loaded: Loaded) -> None:
        if self._found is None or loaded.sequence > self._found.sequence:
            self._found = loaded
            if loaded.record.terminal:
                self._poke.set()

    async def end(self) -> RunRecord:
        waits = iter(_RELOADS_S)
        while True:
            self._poke.clear()
            if self._stale:
                await self._load()
            if self._found is not None and self._found.record.terminal:
                return self._found.record
            try:
                async with asyncio.timeout(next(waits, _RELOAD_S)):
                    await self._poke.wait()
            except TimeoutError:
                self._stale = True

    async def _load(self) -> None:
        self._stale = False
        try:
            loaded = await self._log.load(self._run)
            self._problem = None
        except BrokerError as error:
            self._problem = error
            return
        if loaded is not None:
            self._take(loaded)

    async def newest(self) -> RunRecord:
        if self._found is None:  # the time may have been too short for a single look
            await self._load()
        if self._found is not None:
            return self._found.record
        raise self._problem or NotFound(f"there is no run {self._run}", run=self._run)


def require_taken(reply: SubmitReply) -> None:
    """Raises ThreadBusy when the run was rejected because of another one in its thread."""
    if reply.status is Status.REJECTED and reply.turn is not None:
        raise ThreadBusy(
            f"thread {reply.thread} is busy with run {reply.turn.met}: run {reply.run} was rejected",
            run=reply.run, thread=reply.thread, busy=reply.turn.met,
        )  # fmt: skip


def _reply(message: Message, kind: type[Reply]) -> Reply:
    try:
        reply = msgspec.json.decode(message.data, type=kind)
    except msgspec.MsgspecError as error:
        raise InvalidMessage(f"a coordinator's answer cannot be read: {error}") from error
    if reply.error is not None:
        raise error_of(reply.error)
    return reply
