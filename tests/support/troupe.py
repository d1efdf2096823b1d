"""Two real coordinators on a real server, and workers that do what a script says: for tests that know every command."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from callboard.actors.coordinator import Coordinator
from callboard.runtime.config import RuntimeSettings
from callboard.runtime.host import Host
from callboard.store.agents import AgentRegistry
from callboard.store.log import EventLog
from callboard.topics.bus import Bus
from callboard.topics.client import Message
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import CallboardError
from callboard.topics.messages import (
    AgentInfo,
    ChildrenRequest,
    Claim,
    ClaimReply,
    ClaimRequest,
    Command,
    CommandReply,
    Grant,
    Outcome,
    OutcomeReply,
    OutcomeRequest,
    RetryPolicy,
    RunRecord,
    TaskRequest,
    Work,
    WorkerInfo,
    encode,
)
from callboard.topics.pull import Delivery, Puller, consumer_info
from callboard.topics.streams import ensure_streams
from callboard.topics.subjects import INBOX_CONSUMER

AGENT = "scripted"
POLICY = RetryPolicy(max_attempts=2, initial=3600.0, maximum=3600.0)
"""Timers are far away: the script says when one fires."""


class Troupe:
    """`await Troupe.on(url, namespace)`; `close()` ends it."""

    bus: Bus

    def __init__(self) -> None:
        self._hosts: list[tuple[Bus, Host]] = []
        self.arrived: dict[str, list[Delivery]] = defaultdict(list)
        self._workers: dict[str, Any] = {}
        self.holding: dict[str, set[str]] = defaultdict(set)

    @classmethod
    async def on(cls, url: str, namespace: str) -> Troupe:
        troupe, settings = cls(), BrokerSettings(nats_url=url, namespace=namespace)
        troupe.bus = bus = await Bus.connect(settings)
        troupe.log = EventLog(bus)
        await ensure_streams(bus, settings)
        await AgentRegistry(bus).register(AgentInfo(name=AGENT, topics=["scripts"], retry=POLICY))
        for _ in range(2):
            own = await Bus.connect(settings)
            host = Host(own, RuntimeSettings(grace_s=2))
            host.add(partial(Coordinator, own, cancel_grace_s=3600.0))
            await host.start()
            troupe._hosts.append((own, host))
        config = {
            "filter_subject": f"{bus.subjects.work}.{AGENT}",
            "ack_wait": int(3600e9),
            "max_deliver": -1,
            "max_ack_pending": 100_000,
        }
        troupe._puller = Puller(bus, bus.subjects.work_stream, AGENT, config, troupe._received, lambda: 10_000)
        await troupe._puller.start()
        return troupe

    log: EventLog
    _puller: Puller

    async def close(self) -> None:
        await self._puller.stop()
        for own, host in self._hosts:
            await host.drain(1)
            await own.close()
        await self.bus.close()

    # -- work messages ------------------------------------------------------------------------------------------

    def _received(self, delivery: Delivery) -> None:
        run = msgspec.json.decode(delivery.data, type=Work).run
        others = [one for one in self.arrived[run] if one.sequence != delivery.sequence]
        self.arrived[run] = [*others, delivery]

    @staticmethod
    def dispatch_of(delivery: Delivery) -> int:
        return msgspec.json.decode(delivery.data, type=Work).dispatch

    async def over(self, runs: Iterable[str]) -> None:
        """Nobody asks for these any more."""
        for run in runs:
            for delivery in self.arrived.pop(run, ()):
                delivery.ack()

    # -- workers ------------------------------------------------------------------------------------------------

    async def worker(self, name: str) -> None:
        """A worker that answers pings, and nothing else by itself."""

        def answer(message: Message) -> None:
            running = sorted(self.holding[name])
            self.bus.publish(message.reply, encode(WorkerInfo(id=name, agents=[], concurrency=99, running=running)))

        self._workers[name] = await self.bus.subscribe(f"{self.bus.subjects.worker}.{name}", answer)

    async def die(self, name: str) -> None:
        """Its process is gone."""
        await self._workers.pop(name).close()
        self.holding.pop(name, None)

    # -- requests -----------------------------------------------------------------------------------------------

    async def _ask(self, verb: str, body: Any) -> bytes:
        message = await self.bus.request(f"{self.bus.subjects.rpc}.{verb}", encode(body), 10.0)
        return message.data

    async def submit(self, request: TaskRequest) -> None:
        await self._ask("submit", request)

    async def claim(self, worker: str, claim: Claim) -> Grant:
        reply = await self._ask("claim", ClaimRequest(worker=worker, claims=[claim]))
        (grant,) = msgspec.json.decode(reply, type=ClaimReply).grants
        if grant.verdict == "granted":
            self.holding[worker].add(claim.run)
        return grant

    async def end(self, outcome: Outcome) -> str:
        reply = await self._ask("outcome", OutcomeRequest(outcomes=[outcome]))
        (verdict,) = msgspec.json.decode(reply, type=OutcomeReply).verdicts
        return str(verdict.verdict)

    async def children(self, request: ChildrenRequest) -> None:
        await self._ask("children", request)

    async def command(self, command: Command, *, stored: bool) -> str | None:
        """Over a request, or stored in the INBOX for whichever coordinator takes it; the code of its error."""
        if stored:
            await self.bus.store(self.bus.subjects.command(command.run, command.verb), encode(command))
            return None
        reply = msgspec.json.decode(await self._ask("command", command), type=CommandReply)
        return None if reply.error is None else reply.error.code

    # -- rest ---------------------------------------------------------------------------------------------------

    async def at_rest(self, within_s: float = 20.0) -> None:
        """Once the coordinators have taken all commands, and those that followed from them."""
        async with asyncio.timeout(within_s):
            while True:
                info = await consumer_info(self.bus, self.bus.subjects.inbox, INBOX_CONSUMER)
                if info is not None and not info["num_pending"] and not info["num_ack_pending"]:
                    return
                await asyncio.sleep(0.002)

    async def records(self, runs: Iterable[str]) -> dict[str, RunRecord]:
        try:
            return await self.log.load_many(runs)
        except CallboardError:
            return {}
