"""How a run comes to be: from a task on a topic, from a submit request, as a child of a running attempt."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ...store.blobs import Blobs
from ...store.log import EventLog, Loaded
from ...topics import crash, tasks, trace, units
from ...topics.bus import Bus
from ...topics.codec import why_not_json
from ...topics.errors import (
    BrokerError,
    IdempotencyConflict,
    InvalidInput,
    InvalidMessage,
    NotFound,
)
from ...topics.ids import derived_run_id, is_run_id, keyed_run_id, new_run_id, require_run_id, root_of
from ...topics.messages import (
    BlobRef,
    ChildrenReply,
    ChildrenRequest,
    ChildRequest,
    ChildState,
    Command,
    ErrorInfo,
    Payload,
    RunRecord,
    Status,
    SubmitReply,
    TaskRequest,
    encode,
)
from ...topics.pull import Delivery
from ...topics.subjects import require_token
from . import delay, first_record, forks, placing, terms
from .carrier import Carrier
from .effects import Dispatch
from .fingerprint import fingerprint
from .forks import Forks
from .latecomers import Latecomers
from .ledger import Ledger
from .retrying import taken_up
from .routing import Routing
from .tracing import RunTracing

log = logging.getLogger(__name__)

_TRACE_CHARS = 64
_REPLY_PART = 0.6
"""The part of max_payload that a reply with children's results may fill."""


class Intake:
    """Creates runs. Idempotent by run id: a request that arrives again finds the run that it made."""

    def __init__(
        self,
        bus: Bus,
        event_log: EventLog,
        ledger: Ledger,
        carrier: Carrier,
        routing: Routing,
        tracing: RunTracing,
        parked: Callable[[], None],
    ) -> None:
        self._parked = parked
        self.latecomers = Latecomers(ledger, carrier.settle)
        self._blobs, self._tracing = Blobs(bus), tracing
        self._forks = Forks(bus, event_log, self._blobs)
        self._bus, self._log, self._ledger, self._carrier, self._routing = bus, event_log, ledger, carrier, routing

    # -- requests -----------------------------------------------------------------------------------------------

    async def task(self, delivery: Delivery) -> None:
        """Creates the run or runs of a task published on `cb.task.{topic}`. Raises as `submit` does.

        Only what its publisher has named can have been named before, for something else."""
        request = self.task_request(delivery)
        named = request.key is not None or "Callboard-Run" in delivery.headers
        await self.submit(request, compare=named, taken=units.utc(delivery.stored_ms / 1000))

    def task_request(self, delivery: Delivery) -> TaskRequest:
        """A task as published: the body is the input. Raises InvalidMessage, InvalidRunId."""
        topic = delivery.subject[len(self._bus.subjects.task) + 1 :]
        headers = delivery.headers
        value = _task_input(delivery.data, headers.get("Callboard-Ref"))
        run, key = headers.get("Callboard-Run"), headers.get("Callboard-Key")
        if run is None and key is None:
            run = derived_run_id(self._bus.salt, delivery.stored_ms, "task", str(delivery.sequence))
        request = TaskRequest(
            topic=topic,
            run=run,
            key=key,
            thread=headers.get("Callboard-Thread"),
            policy=placing.of_header(headers.get(placing.HEADER)),
            metadata=_metadata(headers.get("Callboard-Metadata")),
            trace=(headers.get(trace.HEADER) or "")[:_TRACE_CHARS] or None,
            run_at=delay.of_header(headers.get(delay.HEADER)),
        ).carrying(value)
        return terms.of_headers(request, headers)

    async def submit(self, request: TaskRequest, *, compare: bool = True, taken: datetime | None = None) -> SubmitReply:
        """Creates the run or runs of a request; the answer's runs are durable. A delay counts from `taken`, else now.

        Raises InvalidInput, IdempotencyConflict (same id or key, other request; only if `compare`), BrokerError; of a
        fork also NotFound, CheckpointMissing."""
        self._check(request)
        request = self._with_run(request)
        if len(request.input) > self._bus.inline_limit:
            request = request.carrying(await self._blobs.payload(bytes(request.input)))
        mark = fingerprint(request) if compare or request.key else None
        if request.fork is not None:
            request = await self._forks.completed(request, request.fork)
        request = msgspec.structs.replace(request, run_at=delay.moment(request.run_at, taken or units.now()))
        assert request.run is not None
        agents: Sequence[str] = (request.agent,) if request.agent else await self._routing.serving(request.topic or "")
        record = self._record(request, request.run, agents[0] if agents else "", mark)
        created, first = await self._create(placing.placed(record, request.policy))
        _require_same(first.record, mark)
        runs = [first.record.id]
        if not first.record.agent:
            self._parked()  # an agent may have been registered while the task was put aside
        elif first.record.status is not Status.REJECTED:
            further = placing.follows(request, first.record)
            for agent in agents:  # if the run was there before, its agent may not be the first of today's
                if agent != first.record.agent:
                    run = derived_run_id(self._bus.salt, 0, request.run, agent)
                    await self._create(placing.placed(self._record(further, run, agent, mark), further.policy))
                    runs.append(run)
        return SubmitReply(
            run=runs[0], runs=runs if len(runs) > 1 else None, status=first.record.status, duplicate=not created,
            thread=first.record.thread, turn=first.record.turn,
        )  # fmt: skip

    async def fork(self, command: Command) -> RunRecord:
        """The run that a command `fork` makes, which is durable. Raises as `submit` does."""
        request = forks.asked(command, self._bus.salt)
        named = request.key is not None or (command.task is not None and command.task.run is not None)
        reply = await self.submit(request, compare=named)
        made = await self._ledger.load(reply.run or "")
        if made is None:
            raise NotFound(f"there is no run {reply.run}", run=reply.run)
        return made.record

    async def sibling(self, record: RunRecord, agent: str) -> None:
        """The run of a further agent that serves the topic of a task which had to wait for its first one."""
        run, trace = derived_run_id(self._bus.salt, 0, record.id, agent), self._tracing.came_with(record)
        info = self._routing.agent(agent)
        await self._create(first_record.of_sibling(record, run, agent, info, trace, units.now()))

    def _check(self, request: TaskRequest) -> None:
        if request.fork is not None:
            forks.require_valid(request, request.fork)
        tasks.require_valid(request, self._bus.inline_limit)
        if not _is_utf8(request.input):
            raise InvalidMessage("the input is not UTF-8: send one JSON value in UTF-8")

    def _with_run(self, request: TaskRequest) -> TaskRequest:
        if request.run is not None:
            return request
        run = keyed_run_id(self._bus.salt, "key", request.key) if request.key else new_run_id()
        return msgspec.structs.replace(request, run=run)

    def _record(self, request: TaskRequest, run: str, agent: str, mark: str | None) -> RunRecord:
        info = self._routing.agent(agent, request.version)
        return first_record.of_request(request, run, agent, info, mark, units.now())

    async def _create(self, record: RunRecord) -> tuple[bool, Loaded]:
        """The record and its work message, written side by side; whichever of the two is lost is written again."""
        record = placing.ensured(self._tracing.placed(record))
        if record.turn is not None and record.turn.held:  # its thread says when it may work
            created, loaded = await self._ledger.create(record)
            await self._carrier.settle(loaded)
            return created, await self._ledger.load(record.id) or loaded
        limited = self._carrier.gates.limits(record.agent) is not None
        if record.wake_at or record.deadline_at or record.wait_until or limited:  # timers and gates: once it is there
            created, loaded = await self._ledger.create(record)
            await self._carrier.settle(loaded)
            return created, loaded
        work = Dispatch(record.queue, record.id, record.dispatch)
        written = self._log.append_state(record, 0)
        dispatched = self._carrier.begin_dispatch(work)
        dispatched.add_done_callback(_retrieved)
        try:
            loaded = Loaded(record, await written)
            created = True
            self._ledger.remember(loaded)
        except BrokerError:
            created, loaded = await self._ledger.create(record)
        crash.point("coordinator.after-create")
        try:
            await dispatched
        except BrokerError:
            await self._carrier.settle(loaded)
        return created, loaded

    # -- children -----------------------------------------------------------------------------------------------

    async def children(self, request: ChildrenRequest) -> ChildrenReply:
        """Starts the children of a running attempt, or finds those that it started before."""
        parent = await self._ledger.load(require_run_id(request.parent))
        if parent is None:
            raise NotFound(f"there is no run {request.parent}", run=request.parent)
        record = parent.record
        if record.status is not Status.RUNNING or record.attempt != request.attempt or record.epoch != request.epoch:
            error = ErrorInfo(
                code="stale_fence",
                message=f"attempt {request.attempt} does not own run {record.id} any more "
                f"({record.status}, attempt {record.attempt}): it starts no children",
            )
            return ChildrenReply(error=error)
        records = await self._start_children(record, request)
        await self.latecomers.written(record.id, records)
        states: list[ChildState] = []
        room = int(self._bus.max_payload * _REPLY_PART)
        for child in records:
            state = child_state(child, room)
            room -= len(encode(state))
            states.append(state)
        return ChildrenReply(children=states)

    async def _start_children(self, parent: RunRecord, request: ChildrenRequest) -> list[RunRecord]:
        """The records of the children in the order of the request; those that don't exist are created."""
        existing = await self._log.load_many([child.run for child in request.children])
        now = units.now()

        async def one(child: ChildRequest) -> RunRecord:
            found = existing.get(child.run)
            if found is None:
                return await self.start_child(parent, child, now)
            if (
                found.status is Status.QUEUED
                and found.attempt == 0
                and (request.again or parent.losses or parent.failures)
            ):
                loaded = await self._ledger.load(child.run)  # a crash may have left it without its work message
                if loaded is not None:
                    await self._carrier.settle(loaded, again=True)
            return found

        return list(await asyncio.gather(*(one(child) for child in request.children)))

    async def start_child(self, parent: RunRecord, child: ChildRequest, now: datetime) -> RunRecord:
        """The child's record; it is created, unless it is one that a retried run has started."""
        record = placing.of_child(self._child_record(parent, child, now), parent, child)
        record = await taken_up(self._log, record, child.retry_of)
        return record if record.id != child.run else (await self._create(record))[1].record

    async def ask_agent(self, parent: RunRecord, child: ChildRequest) -> RunRecord:
        """The run of an agent that is to answer an interrupt of `parent`: created, or found."""
        found = await self._ledger.load(child.run)
        if found is None:
            return await self.start_child(parent, child, units.now())
        if not found.record.terminal:
            await self._carrier.settle(found, again=True)
        return found.record

    def _child_record(self, parent: RunRecord, child: ChildRequest, now: datetime) -> RunRecord:
        require_token("agent", child.agent)
        if not is_run_id(child.run) or root_of(child.run) != parent.root:
            raise InvalidInput(f"{child.run!r} is no child id below {parent.root}", run=child.run)
        tasks.require_metadata(child.metadata, self._bus.inline_limit)
        return first_record.of_child(parent, child, self._routing.agent(child.agent), now)


def _retrieved(done: asyncio.Future[int]) -> None:
    if not done.cancelled():
        done.exception()  # a failure is seen where it is awaited, if the record was written at all


def _is_utf8(text: msgspec.Raw) -> bool:
    try:
        bytes(text).decode()
    except UnicodeDecodeError:
        return False
    return True


def child_state(record: RunRecord, room: int) -> ChildState:
    """What the parent is told; a result that doesn't fit into `room` bytes is left for the parent to read itself."""
    if not record.terminal:
        return ChildState(run=record.id, status=record.status, agent=record.agent)
    state = ChildState(
        run=record.id, status=record.status, agent=record.agent, result=record.result, error=record.error
    )
    if len(encode(state)) > room:
        return ChildState(run=record.id, status=Status.RUNNING, agent=record.agent, ended=True)
    return state


def _task_input(data: bytes, ref: str | None) -> Payload:
    if ref is not None:
        try:
            return Payload(ref=msgspec.json.decode(ref, type=BlobRef))
        except msgspec.MsgspecError as error:
            raise InvalidMessage(f"header Callboard-Ref is not a blob reference: {error}") from error
    if not data:
        return Payload(json=msgspec.Raw(b"null"))
    try:
        msgspec.json.decode(data)
        data.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMessage(
            f"the task's body is not JSON: {why_not_json(data, error)}; publish one JSON value in UTF-8"
        ) from error
    return Payload(json=msgspec.Raw(data))


def _metadata(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InvalidMessage(f"header Callboard-Metadata is not a JSON object: {error}") from error


def _require_same(record: RunRecord, mark: str | None) -> None:
    if mark is not None and record.fingerprint is not None and record.fingerprint != mark:
        what = f"idempotency key {record.key!r}" if record.key else f"run id {record.id!r}"
        raise IdempotencyConflict(
            f"{what} was used before for another request (run {record.id}): use a new one, or send the same request",
            run=record.id,
        )
