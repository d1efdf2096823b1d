"""The coordinator: an actor that owns the state of every run. Any number of them may run at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from ...store.agents import AgentRegistry
from ...store.deadletters import DeadLetters
from ...store.errors import info_of
from ...store.log import EventLog
from ...topics import crash
from ...topics.bus import Bus
from ...topics.client import Message
from ...topics.errors import CallboardError, IllegalTransition, InvalidInput, InvalidMessage, StaleFence, Unavailable
from ...topics.ids import require_run_id
from ...topics.messages import (
    ChildrenReply,
    ChildrenRequest,
    ClaimReply,
    ClaimRequest,
    Command,
    CommandReply,
    Grant,
    Outcome,
    OutcomeReply,
    OutcomeRequest,
    OutcomeVerdict,
    SubmitReply,
    TaskRequest,
    Work,
    encode,
)
from ...topics.messages import Claim as ClaimMessage
from ...topics.pull import Delivery, Puller
from ...topics.subjects import INBOX_CONSUMER, require_token
from ...topics.units import nanoseconds
from ..actor import Actor, QueueSource, RpcSource, SignalSource, Source
from ..context import ActorContext
from ..refusals import Refusals
from .advisories import Advisories
from .carrier import Carrier
from .commands import Commands, StillWaiting, parse
from .fires import Fires
from .gates import Gates
from .intake import Intake
from .ledger import Ledger
from .liveness import Liveness
from .retrying import Retrying
from .routing import Routing
from .run_commands import Redispatch
from .successors import Successors
from .tracing import RunTracing
from .unserved import Unserved

log = logging.getLogger(__name__)
T = TypeVar("T")

_ACK_WAIT_S = 10.0
"""What a coordinator that died had in hand comes to another one after this. It handles a message in milliseconds; one
that takes longer is handled twice, which changes nothing."""
_UNKNOWN_AFTER = 75
"""A work message is dropped whose run is not there after so many deliveries: longer than the broker takes no other."""
_RETRY_S = 0.5
_UNPARK_S = 0.1
_RETRY_MAX_S = 10.0
_LATE_LOOKS = 3
"""How often a waiting parent's children are looked at again for one word: what a late replica needs."""
_UNPARK_EVERY_S = 30.0
_REPLY_PART = 0.8

_decode_claims = msgspec.json.Decoder(ClaimRequest).decode
_decode_outcomes = msgspec.json.Decoder(OutcomeRequest).decode
_decode_children = msgspec.json.Decoder(ChildrenRequest).decode
_decode_submit = msgspec.json.Decoder(TaskRequest).decode
_decode_command = msgspec.json.Decoder(Command).decode


class Coordinator(Actor):
    """Serves tasks, commands, claims, outcomes.

    `cancel_grace_s`: how long a worker may take to confirm a cancel. `unserved_after_s`: how long work may lie without
    a worker for its agent before that is noted for people."""

    capacity = 2000
    concurrency = 500
    """What they ask of the broker is answered in time also by one that has just lost a server. More at once than it can
    answer would all be given up, and all be asked again."""

    def __init__(self, bus: Bus, *, cancel_grace_s: float = 30.0, unserved_after_s: float = 30.0) -> None:
        self._bus = bus
        self._log = EventLog(bus)
        tracing = RunTracing(bus)
        self._ledger = Ledger(self._log, tracing)
        self._routing = Routing(bus, AgentRegistry(bus))
        self._gates = Gates(bus, self._log, self._routing)
        self._carrier = Carrier(bus, self._log, self._ledger, cancel_grace_s, self._gates)
        self._registered = asyncio.Event()
        self._intake = Intake(bus, self._log, self._ledger, self._carrier, self._routing, tracing, self._registered.set)
        self._carrier.interrupts.start = self._intake.ask_agent
        self._fires = Fires(bus, partial(self._intake.submit, compare=False))
        self._commands = Commands(bus, self._ledger, self._carrier, self._routing)
        self._liveness = Liveness(bus, self._commands.lost)
        self._carrier.start_anew = Successors(self._ledger, self._carrier, self._routing, tracing).begin
        retrying = Retrying(bus, self._ledger, self._carrier, self._routing, tracing)
        self._commands.serve("retry", lambda command: retrying.retry(command.run, command.version))
        self._commands.serve("fork", self._intake.fork)
        self._unserved = Unserved(bus, self._liveness.served, unserved_after_s, self._ledger.apply)
        self._dead = DeadLetters(bus)
        self._refusals = Refusals()
        self._advisories = Advisories(bus, self._dead, self._commands.execute)

    @property
    def name(self) -> str:
        """`coordinator`."""
        return "coordinator"

    def beat(self) -> dict[str, Any]:
        """Late writes that it has refused."""
        return {"refused": self._refusals.counts}

    async def started(self, ctx: ActorContext) -> None:
        """Reads the registrations."""
        self._routing.on_registration.append(self._registered)
        self._bus.on_reconnect.append(self._reconnected)
        await self._routing.start()
        self._registered.set()

    async def stopped(self, ctx: ActorContext) -> None:
        """Leaves the bus."""
        if self._reconnected in self._bus.on_reconnect:
            self._bus.on_reconnect.remove(self._reconnected)
        await self._routing.stop()

    def _reconnected(self) -> None:
        self._ledger.forget_all()
        self._liveness.reconnected()
        self._routing.reconnected()
        self._registered.set()

    def sources(self) -> list[Source]:
        """The INBOX (tasks and commands, shared by all coordinators), the requests, the live signals."""
        subjects = self._bus.subjects
        inbox = {"ack_wait": nanoseconds(_ACK_WAIT_S), "max_ack_pending": 10_000, "max_deliver": -1}
        rpc: dict[str, Callable[[Message], Awaitable[None]]] = {
            "submit": self._on_submit,
            "claim": self._on_claims,
            "outcome": self._on_outcomes,
            "children": self._on_children,
            "command": self._on_command_request,
        }
        queue = f"{subjects.namespace}-coordinators"
        return [
            QueueSource(
                subjects.inbox,
                INBOX_CONSUMER,
                inbox | {"filter_subjects": [f"{subjects.task}.*", f"{subjects.cmd}.>"]},
                self._on_inbox,
            ),
            *(RpcSource(f"{subjects.rpc}.{verb}", handle, queue) for verb, handle in rpc.items()),
            SignalSource(f"{subjects.worker}.*.beat", self._liveness.beat),
            *(SignalSource(subject, self._advisories.heard, queue) for subject in self._advisories.subjects),
        ]

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        """Watches the agents, the workers, the schedules, the queues, what the broker says of them; routes parked
        tasks when an agent registers."""
        watched = (self._routing, self._liveness, self._fires, self._unserved, self._gates, self._advisories)
        return [self._unpark, *(one.watch for one in watched)]

    # -- inbox --------------------------------------------------------------------------------------------------

    async def _on_inbox(self, delivery: Delivery) -> None:
        """A task or a command. Garbage is set aside with its reason; what cannot be done now is handed back."""
        is_task = delivery.subject.startswith(self._bus.subjects.task)
        try:
            if delivery.subject == self._bus.subjects.fires:
                await self._fires.fire(delivery)
            elif is_task:
                await self._intake.task(delivery)
            else:
                command = parse(delivery.subject, self._bus.subjects.cmd, delivery.data, delivery.sequence)
                await self._commands.execute(command)
                if delivery.delivered > 1:
                    await self._commands.settle(command.run)
        except IllegalTransition as error:
            log.info("%s came too late: %s", delivery.subject, error)
        except CallboardError as error:
            if isinstance(error, StillWaiting) and delivery.delivered > _LATE_LOOKS:
                delivery.ack()
                return
            if error.retryable:
                log.log(
                    logging.DEBUG if isinstance(error, StillWaiting) else logging.INFO,
                    "%s is tried again: %s", delivery.subject, error,
                )  # fmt: skip
                delivery.nak(min(_RETRY_S * delivery.delivered, _RETRY_MAX_S))
                return
            await self._set_aside("task" if is_task else "command", delivery, error)
        crash.point("coordinator.before-ack", "task" if is_task else "command")
        delivery.ack()

    async def _set_aside(self, kind: str, delivery: Delivery, error: CallboardError) -> None:
        log.warning("%s set aside: %s", delivery.subject, error)
        headers = {k: v for k, v in delivery.headers.items() if not k.startswith("Nats-")}
        await self._dead.put(kind, delivery.subject, delivery.data, headers, info_of(error))

    # -- requests -----------------------------------------------------------------------------------------------

    async def _on_submit(self, message: Message) -> None:
        try:
            request = _parsed(_decode_submit, message, "submit request")
            reply = await self._intake.submit(request, compare=bool(request.key or request.run))
        except CallboardError as error:
            reply = SubmitReply(error=info_of(error))
        crash.point("coordinator.before-submit-reply")
        self._answer(message, encode(reply))

    async def _on_command_request(self, message: Message) -> None:
        try:
            command = _parsed(_decode_command, message, "command")
            record = await self._commands.execute(command)
            alive = await self._commands.alive(command) if command.verb == "cancel" else None
            reply = CommandReply(record=record, alive=alive)
        except CallboardError as error:
            reply = CommandReply(error=info_of(error))
        self._answer(message, encode(reply))

    async def _on_children(self, message: Message) -> None:
        try:
            request = _parsed(_decode_children, message, "children request")
            reply = await self._intake.children(request)
            if reply.error is not None and reply.error.code == StaleFence.code:
                self._refusals.note("child", request.parent, request.attempt)
        except CallboardError as error:
            reply = ChildrenReply(error=info_of(error))
        crash.point("coordinator.before-children-reply")
        self._answer(message, encode(reply))

    async def _on_claims(self, message: Message) -> None:
        try:
            request = _parsed(_decode_claims, message, "claim request")
            require_token("worker", request.worker)
        except InvalidInput as error:
            log.warning("%s", error)
            self._answer(message, encode(ClaimReply(error=info_of(error))))
            return
        grants = await asyncio.gather(*(self._grant(request.worker, claim) for claim in request.claims))
        self._answer(message, encode(ClaimReply(grants=self._fitting(list(grants)))))

    async def _grant(self, worker: str, claim: ClaimMessage) -> Grant:
        try:
            if "~" in require_run_id(claim.run):
                await self._intake.latecomers.begins(claim.run)
            applied = await self._commands.claim(worker, claim)
        except CallboardError as error:
            log.info("claim of %s by %s: %s", claim.run, worker, error)
            hopeless = not error.retryable and claim.delivery > _UNKNOWN_AFTER
            return Grant(run=claim.run, verdict="gone" if hopeless else "later")
        loaded = applied.loaded
        if loaded is None or applied.verdict == "later":
            unknown = loaded is None or loaded.record.dispatch != claim.dispatch
            return Grant(run=claim.run, verdict="gone" if unknown and claim.delivery > _UNKNOWN_AFTER else "later")
        if applied.verdict in ("changed", "applied") and loaded.record.worker == worker:
            self._liveness.granted(worker, claim.run)
            crash.point("coordinator.before-grant")
            return Grant(run=claim.run, verdict="granted", fence=loaded.sequence, record=loaded.record)
        if claim.delivery > 1 or applied.verdict == "changed":
            try:
                await self._carrier.settle(loaded, again=True)  # whoever ended the attempt may have died before that
            except CallboardError as error:
                log.info("run %s: %s", claim.run, error)
                return Grant(run=claim.run, verdict="later")
        return Grant(run=claim.run, verdict="gone")

    def _fitting(self, grants: list[Grant]) -> list[Grant]:
        """As many records as one message holds; of the others the workers read them in the log."""
        room = int(self._bus.max_payload * _REPLY_PART)
        fitting = []
        for grant in grants:
            room -= len(encode(grant))
            fitting.append(grant if room > 0 else msgspec.structs.replace(grant, record=None))
        return fitting

    async def _on_outcomes(self, message: Message) -> None:
        try:
            request = _parsed(_decode_outcomes, message, "outcome request")
        except InvalidMessage as error:
            log.warning("%s", error)
            self._answer(message, encode(OutcomeReply(error=info_of(error))))
            return
        verdicts = await asyncio.gather(*map(self._conclude, request.outcomes))
        self._answer(message, encode(OutcomeReply(verdicts=list(verdicts))))

    async def _conclude(self, outcome: Outcome) -> OutcomeVerdict:
        try:
            applied = await self._commands.end(outcome)
        except CallboardError as error:
            log.info("outcome of %s: %s", outcome.run, error)
            return OutcomeVerdict(run=outcome.run, verdict="retry" if error.retryable else "stale")
        crash.point("coordinator.before-verdict")
        self._liveness.ended(outcome.worker, outcome.run)
        status = applied.loaded.record.status if applied.loaded else None
        accepted = applied.verdict in ("changed", "applied")
        if not accepted:
            self._refusals.note("outcome", outcome.run, outcome.attempt)
        return OutcomeVerdict(run=outcome.run, verdict="accepted" if accepted else "stale", status=status)

    def _answer(self, message: Message, data: bytes) -> None:
        if message.reply:
            self._bus.publish(message.reply, data)

    # -- parked tasks -------------------------------------------------------------------------------------------

    async def _unpark(self) -> None:
        """Whenever a registration comes in, and now and then: the tasks of its topics that wait for an agent are
        routed."""
        while True:
            try:
                async with asyncio.timeout(_UNPARK_EVERY_S):
                    await self._registered.wait()
            except TimeoutError:
                pass
            self._registered.clear()
            parked = await self._parked_topics()
            for topic, agents in self._routing.topics.items():
                if topic in parked:
                    await self._route_parked(topic, agents)

    async def _parked_topics(self) -> set[str]:
        subjects = self._bus.subjects
        body: dict[str, Any] = {"subjects_filter": f"{subjects.work}.*"}
        info = await self._bus.api(f"STREAM.INFO.{subjects.work_stream}", body)
        found = (info or {}).get("state", {}).get("subjects") or {}
        prefix = f"{subjects.work}.@"
        return {subject[len(prefix) :] for subject in found if subject.startswith(prefix)}

    async def _route_parked(self, topic: str, agents: tuple[str, ...]) -> None:
        subjects = self._bus.subjects
        tasks: set[asyncio.Task[None]] = set()

        def route(delivery: Delivery) -> None:
            task = asyncio.ensure_future(self._route_one(delivery, agents))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        config = {
            "filter_subject": f"{subjects.work}.@{topic}",
            "ack_wait": nanoseconds(_ACK_WAIT_S),
            "max_deliver": -1,
            "inactive_threshold": nanoseconds(60.0),
        }
        puller = Puller(self._bus, subjects.work_stream, f"parked-{topic}", config, route, lambda: 100 - len(tasks))
        await puller.start()
        try:
            while tasks or topic in await self._parked_topics():
                puller.ask()
                await asyncio.sleep(_UNPARK_S)
        finally:
            await puller.stop()

    async def _route_one(self, delivery: Delivery, agents: tuple[str, ...]) -> None:
        try:
            await self._routed(delivery, agents)
        except CallboardError as error:
            if error.retryable:
                log.info("parked work on %s: %s", delivery.subject, error)
                delivery.nak(min(_RETRY_S * delivery.delivered, _RETRY_MAX_S))
                return
            await self._set_aside("work", delivery, error)
        delivery.ack()

    async def _routed(self, delivery: Delivery, agents: tuple[str, ...]) -> None:
        try:
            work = msgspec.json.decode(delivery.data, type=Work)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidMessage(f"not a work message: {error}", subject=delivery.subject) from error
        loaded = await self._ledger.load(require_run_id(work.run))
        if loaded is None:  # its record may be on its way, or was refused
            if delivery.delivered <= _UNKNOWN_AFTER:
                raise Unavailable(f"run {work.run} is not there yet", run=work.run)
            return
        info = self._routing.agent(agents[0])
        await self._commands.apply(work.run, Redispatch(agents[0], loaded.record.dispatch, "routed", info))
        for agent in agents[1:]:
            await self._intake.sibling(loaded.record, agent)


def _parsed(decode: Callable[[bytes], T], message: Message, what: str) -> T:
    try:
        return decode(message.data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidMessage(f"not a {what}: {error}", subject=message.subject) from error
