"""The agent worker: an actor that takes work messages of its agents, carries the runs out, and hands their
outcomes in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from ...store.agents import AgentRegistry
from ...store.deadletters import DeadLetters
from ...store.errors import info_of, trace_of
from ...topics import crash
from ...topics.bus import Bus
from ...topics.client import Message
from ...topics.errors import BrokerError, CallboardError, InvalidInput, InvalidMessage
from ...topics.ids import new_token
from ...topics.messages import Claim, Command, Grant, Outcome, RunRecord, Work
from ...topics.pull import Delivery, Puller
from ...topics.units import nanoseconds
from ...topics.versions import split, versioned
from ..actor import Actor, SignalSource, Source
from ..agent import Agent
from ..context import ActorContext
from ..engine import Attempt, AttemptEnded, Lease, StepThreads, Workplace, number_branches
from ..refusals import Refusals
from .desk import Desk
from .lookout import Lookout
from .suspects import Suspects

log = logging.getLogger(__name__)

_TRACE_CHARS = 4000
_LATER_S = 0.1
_LATER_MAX_S = 2.0
_MAX_ACK_PENDING = 20_000
_HAND_BACK_S = 8.0

_decode_work = msgspec.json.Decoder(Work).decode
_decode_notice = msgspec.json.Decoder(Command).decode


class Leases(Protocol):
    """What keeps the work messages of this process alive; see `runtime.lease`."""

    def add(self, reply_subject: str, run: str) -> Lease:
        """Keeps the message that is acknowledged on `reply_subject`."""
        ...

    def remove(self, reply_subject: str) -> None:
        """Keeps it no longer."""
        ...


class AgentWorker(Actor):
    """Serves `agents` with at most `concurrency` runs at once.

    `lease_s`: a work message that is neither acknowledged nor renewed for so long goes to another worker.
    `patience_s`: how long a run that only waits (for children, for a clock) keeps its slot while no other run
    wants it. `worker`: the id under which the host answers pings; a run is taken from a worker whose id nobody
    answers for."""

    def __init__(
        self,
        bus: Bus,
        agents: Sequence[Agent[Any]],
        leases: Leases,
        *,
        worker: str | None = None,
        concurrency: int = 16,
        lease_s: float = 30.0,
        patience_s: float = 2.0,
    ) -> None:
        names = [agent.name for agent in agents]
        if len(set(names)) < len(names):
            raise InvalidInput(
                f"two agents have one name: {sorted(name for name in set(names) if names.count(name) > 1)}"
            )
        self._bus, self._leases = bus, leases
        self._agents = {agent.name: agent for agent in agents}
        self.worker = worker or new_token(12)
        self._concurrency, self._lease_s = concurrency, lease_s
        self._desk = Desk(bus, self.worker)
        self._dead = DeadLetters(bus)
        self._threads = StepThreads(concurrency * 2 + 4)
        self._refusals = Refusals()
        self._workplace = Workplace(
            bus=bus, worker=self.worker, known=self._agents, threads=self._threads,
            processes=asyncio.Semaphore(concurrency), refusals=self._refusals, crowded=self._crowded,
            patience_s=patience_s,
        )  # fmt: skip
        self._pullers: list[Puller] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[str, Attempt] = {}
        self._suspects = Suspects(self._desk.claim, self._running)
        self._ends: dict[str, asyncio.Future[bool]] = {}
        self._lookout = Lookout(bus, self._running, lease_s)
        self._draining = False

    @property
    def name(self) -> str:
        """`worker`."""
        return "worker"

    def beat(self) -> dict[str, Any]:
        """What this worker serves and holds."""
        versions = {agent.name: agent.version for agent in self._agents.values() if agent.version}
        return {
            "agents": list(self._agents), "concurrency": self._concurrency, "running": list(self._running),
            "refused": self._refusals.counts, "abandoned": self._threads.abandoned,
        } | ({"versions": versions} if versions else {})  # fmt: skip

    def sources(self) -> list[Source]:
        """Notices of the coordinators: a run was canceled, a child has ended. They may be lost: fences and looks
        make up for it."""
        return [SignalSource(f"{self._bus.subjects.worker}.{self.worker}.notice", self._on_notice)]

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        """Looks for attempts that go on although their run has moved on."""
        return [self._lookout.watch]

    # -- life ---------------------------------------------------------------------------------------------------

    async def started(self, ctx: ActorContext) -> None:
        """Registers the agents and begins to pull: one durable consumer an agent, and one more for its version if it
        has one, where the runs are that are pinned to it."""
        number_branches(asyncio.get_running_loop())
        registry = AgentRegistry(self._bus)
        await self._workplace.blobs.ensure()
        for agent in self._agents.values():
            await self._register(registry, agent)
        for agent in self._agents.values():
            for queue in (agent.name, *([versioned(agent.name, agent.version)] if agent.version else [])):
                config = partial(self._consumer, registry, agent, queue)
                puller = Puller(self._bus, self._bus.subjects.work_stream, queue, config, self._take, self._room)
                self._pullers.append(puller)
                await puller.start()

    async def _register(self, registry: AgentRegistry, agent: Agent[Any]) -> None:
        before, info = await registry.current(agent.name), agent.info()
        await registry.register(info)
        now = await registry.current(agent.name) or info
        if before is not None and before.limits != now.limits:
            log.warning(
                "the limits of agent %s change for all workers from %s to %s", agent.name, before.limits, now.limits
            )
        if now.version != info.version:
            log.warning(
                "agent %s: this worker has version %r; new runs follow version %r, which was registered later "
                "(`callboard agents promote` changes that)", agent.name, info.version, now.version,
            )  # fmt: skip

    async def _consumer(self, registry: AgentRegistry, agent: Agent[Any], queue: str) -> dict[str, Any]:
        """The consumer of a queue of the agent, whose bound on unacknowledged messages is the agent's limit across all
        workers: that of the current registration, which may be another worker's."""
        limits = (await registry.current(agent.name) or agent.info()).limits
        return {
            "filter_subject": f"{self._bus.subjects.work}.{queue}",
            "ack_wait": nanoseconds(self._lease_s),
            "max_ack_pending": limits.concurrency if limits else _MAX_ACK_PENDING,
            "max_deliver": -1,
        }

    async def stopping(self, ctx: ActorContext) -> None:
        """Takes nothing more, and waits for the runs in hand until the host's grace is over (then `stopped` hands
        them back)."""
        self._draining = True
        for puller in self._pullers:
            await puller.stop()
        while self._tasks:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    async def stopped(self, ctx: ActorContext) -> None:
        """Hands back what is still in hand."""
        for puller in self._pullers:
            await puller.stop()
        for attempt in list(self._running.values()):
            attempt.interrupt("released")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_HAND_BACK_S)
        for task in list(self._tasks):
            task.cancel()
        await self._desk.close()
        self._threads.shutdown()

    # -- taking work --------------------------------------------------------------------------------------------

    def _room(self) -> int:
        return 0 if self._draining else self._concurrency - len(self._tasks)

    def _crowded(self) -> bool:
        """Whether a run that only waits should make room for others."""
        return self._draining or self._room() <= 0

    def _take(self, delivery: Delivery) -> None:
        if self._room() <= 0:
            delivery.nak()  # another agent's message was faster; whoever has room takes it
            return
        lease = self._leases.add(delivery.reply, delivery.subject)
        task = asyncio.create_task(self._serve(delivery, lease))
        self._tasks.add(task)
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        for puller in self._pullers:
            puller.ask()

    async def _serve(self, delivery: Delivery, lease: Lease) -> None:
        acknowledge = False
        try:
            acknowledge = await self._claim_and_run(delivery, lease)
        except CallboardError as error:
            log.warning("work on %s is handed back: %s", delivery.subject, error)
            delivery.nak(_LATER_S)
        except Exception:
            log.exception("work on %s failed in the worker itself; handed back", delivery.subject)
            delivery.nak(_LATER_MAX_S)
        finally:
            self._leases.remove(delivery.reply)
        if acknowledge:
            delivery.ack()

    async def _claim_and_run(self, delivery: Delivery, lease: Lease) -> bool:
        """Whether the message is done with; False when it was handed back."""
        try:
            work = _decode_work(delivery.data)
        except (msgspec.MsgspecError, RecursionError) as error:
            problem = InvalidMessage(f"not a work message: {error}", subject=delivery.subject)
            await self._dead.put("work", delivery.subject, delivery.data, delivery.headers, info_of(problem))
            return True
        queue = delivery.subject[len(self._bus.subjects.work) + 1 :]
        served = self._agents.get(split(queue)[0])
        claim = Claim(
            run=work.run,
            dispatch=work.dispatch,
            lease=delivery.sequence,
            delivery=delivery.delivered,
            consumer_seq=delivery.consumer_sequence,
            agent=queue,
            version=served.version if served else "",
        )
        grant = await self._suspects.claim(claim)
        match grant.verdict:
            case "gone":
                return True
            case "later":
                delivery.nak(min(_LATER_S * delivery.delivered, _LATER_MAX_S))
                return False
            case _:
                try:
                    return await self._carry_out(grant, lease)
                finally:
                    self._suspects.leave(grant.run)

    async def _record_of(self, grant: Grant) -> RunRecord | None:
        """The record of a grant that did not fit into the answer; None when the run has moved on since."""
        loaded = await self._workplace.log.load_current(grant.run)
        return loaded.record if loaded is not None and loaded.sequence == grant.fence else None

    async def _carry_out(self, grant: Grant, lease: Lease) -> bool:
        """Whether the run has taken the attempt's outcome. Otherwise its message may be another worker's lease by now,
        which an acknowledgement from here would end; it is left to be delivered again."""
        if grant.record is None:
            grant = msgspec.structs.replace(grant, record=await self._record_of(grant))
        record = grant.record
        if record is None:
            return False
        crash.point("worker.after-claim")
        before = self._running.get(record.id)
        if before is not None and before.record.attempt == record.attempt:
            return await self._ends[record.id]  # a broker that was killed has forgotten who has the message
        attempt = Attempt(self._workplace, self._agents[record.agent], grant, lease)
        if before is not None:
            before.interrupt("lost")  # it came back to the worker that had lost it
        self._running[record.id] = attempt
        end = self._ends[record.id] = asyncio.get_running_loop().create_future()
        taken = False
        try:
            taken = await self._ended(attempt)
        finally:
            end.set_result(taken)
            if self._running.get(record.id) is attempt:
                del self._running[record.id], self._ends[record.id]
        return taken

    async def _ended(self, attempt: Attempt) -> bool:
        """Executes an attempt and hands its outcome in; whether the run has taken it. A failure of the worker itself
        ends the attempt too: were it handed back, it would come again for ever."""
        record = attempt.record
        try:
            outcome = await attempt.execute()
        except (BrokerError, AttemptEnded):
            raise
        except Exception as error:
            log.exception("attempt %d of run %s failed in the worker itself", record.attempt, record.id)
            again = not isinstance(error, CallboardError) or error.retryable
            info = msgspec.structs.replace(info_of(error), retryable=again, traceback=trace_of(error, _TRACE_CHARS))
            outcome = Outcome(
                run=record.id, attempt=record.attempt, epoch=record.epoch, worker=self.worker, kind="failed", error=info
            )
        if outcome is None:
            return False
        crash.point("worker.before-hand-in", outcome.kind)
        verdict = await self._desk.hand_in(outcome)
        crash.point("worker.before-ack")
        if verdict.verdict == "stale":
            self._refusals.note("outcome", record.id, record.attempt)
            log.info("outcome %s of run %s came too late: the run is %s", outcome.kind, record.id, verdict.status)
        return verdict.verdict == "accepted"

    def _on_notice(self, message: Message) -> None:
        try:
            notice = _decode_notice(message.data)
        except msgspec.MsgspecError as error:
            log.warning("notice on %s not understood: %s", message.subject, error)
            return
        attempt = self._running.get(notice.run)
        if attempt is None:
            return
        if notice.verb == "cancel" and notice.epoch > attempt.record.epoch:
            attempt.interrupt("stopped")
        elif notice.verb == "child":
            attempt.child_ended(notice.child)
        elif notice.verb == "said":
            attempt.told(notice.sequence)
