"""A small installation in the test process: real coordinators and workers, each host on its own connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from callboard.actors.actor import Actor
from callboard.actors.agent import Agent
from callboard.actors.coordinator import Coordinator
from callboard.actors.worker import AgentWorker
from callboard.runtime.config import RuntimeSettings
from callboard.runtime.host import Host
from callboard.runtime.lease import LeaseKeeper
from callboard.store.blobs import Blobs
from callboard.store.journal import ENTRY_KINDS, entries
from callboard.store.log import EventLog, decode_record
from callboard.store.submit import Submitter
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import RunRecord, Status, Step, TaskRequest

SETTINGS = RuntimeSettings(grace_s=2, lease_s=2)


class NoLeases:
    """For workers whose runs are short."""

    def add(self, reply_subject: str, run: str) -> NoLeases:
        return self

    def good(self) -> bool:
        return True

    def remove(self, reply_subject: str) -> None: ...


class Member:
    """One host. `kill()` ends it as a crash does: its connection is gone in the middle of whatever it did."""

    def __init__(self, bus: Bus, host: Host, actor: Any, keeper: LeaseKeeper | None) -> None:
        self.bus, self.host, self.actor, self.keeper = bus, host, actor, keeper
        self.dead = False

    async def kill(self) -> None:
        if self.keeper is not None:
            await self.keeper.stop()
        self.bus.publish = lambda *_, **__: None  # type: ignore[method-assign]
        self.bus.client.write = lambda *_: None  # type: ignore[method-assign]
        await self.bus.client.close()
        for task in list(getattr(self.actor, "_tasks", ())):
            task.cancel()
        await self.host.drain(0)
        self.dead = True

    async def stop(self) -> None:
        if self.dead:
            return
        await self.host.drain()
        if self.keeper is not None:
            await self.keeper.stop()
        await self.bus.close()


class Company:
    """Coordinators, workers, and a client of them."""

    def __init__(self, settings: BrokerSettings, bus: Bus) -> None:
        self.settings, self.bus = settings, bus
        self.submitter = Submitter(bus, Blobs(bus))
        self.log = EventLog(bus)
        self.members: list[Member] = []

    async def join(
        self, make: Callable[[Bus, Any], Actor], runtime: RuntimeSettings = SETTINGS, keeper: bool = False
    ) -> Member:
        bus = await Bus.connect(self.settings)
        leases = LeaseKeeper(self.settings, runtime) if keeper else None
        if leases is not None:
            await leases.start()
        actor = make(bus, leases or NoLeases())
        host = Host(bus, runtime, worker=getattr(actor, "worker", None))
        host.add(actor)
        await host.start()
        member = Member(bus, host, actor, leases)
        self.members.append(member)
        return member

    async def coordinator(self, **options: Any) -> Member:
        return await self.join(lambda bus, _: Coordinator(bus, **options))

    async def worker(self, *agents: Agent[Any], keeper: bool = False, **options: Any) -> Member:
        options = {"concurrency": 8, "lease_s": 2.0} | options
        return await self.join(lambda bus, leases: AgentWorker(bus, agents, leases, **options), keeper=keeper)

    async def submit(self, agent: str | None, value: Any = None, **options: Any) -> str:
        request = TaskRequest(agent=agent, **options)
        reply = await self.submitter.submit(request, msgspec.json.encode(value))
        assert reply.run is not None
        return reply.run

    async def ended(self, run: str, within_s: float = 15.0) -> RunRecord:
        record = await self.submitter.wait(run, within_s)
        assert record.terminal, f"{run} is {record.status} after {within_s} s: {record}"
        return record

    async def run(self, agent: str, value: Any = None, within_s: float = 15.0, **options: Any) -> RunRecord:
        return await self.ended(await self.submit(agent, value, **options), within_s)

    async def record(self, run: str) -> RunRecord:
        return (await self.log.require(run)).record

    async def reaches(self, run: str, status: Status, within_s: float = 10.0) -> RunRecord:
        """The record once it is in `status`."""
        found: list[RunRecord] = []

        async def there() -> bool:
            loaded = await self.log.load(run)
            found[:] = [loaded.record] if loaded else []
            return bool(found) and found[0].status is status

        await eventually(there, within_s, lambda: f"{run} is {status}, not {found}")
        return found[0]

    async def states(self, run: str) -> list[RunRecord]:
        """All records of the run, in order."""
        pages = [page async for page in self.log.history(run)]
        return [decode_record(one.data) for page in pages for one in page if one.kind == "state"]

    async def told(self, run: str) -> list[Any]:
        """All entries of the run's log, in order."""
        pages = [page async for page in self.log.history(run)]
        return [entry for page in pages for one in page if one.kind in ENTRY_KINDS for entry in entries(one)]

    async def steps(self, run: str) -> list[Step]:
        return [one for one in await self.told(run) if isinstance(one, Step) and one.status != "started"]

    async def waiting_messages(self, stream: str) -> int:
        info = await self.bus.api(f"STREAM.INFO.{stream}")
        assert info is not None
        return int(info["state"]["messages"])


async def eventually(
    condition: Callable[[], Any], within_s: float = 10.0, what: Callable[[], str] = lambda: "condition"
) -> None:
    """Waits until the (async) condition holds."""
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        result = condition()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return
        assert asyncio.get_running_loop().time() < deadline, f"not within {within_s} s: {what()}"
        await asyncio.sleep(0.02)


def result_of(record: RunRecord) -> Any:
    """The inline result of a completed run."""
    assert record.status is Status.COMPLETED, record
    assert record.result is not None
    return msgspec.json.decode(bytes(record.result.json))  # type: ignore[arg-type]


@asynccontextmanager
async def company(
    settings: BrokerSettings, bus: Bus, agents: Sequence[Agent[Any]] = (), coordinators: int = 1, **options: Any
) -> AsyncIterator[Company]:
    """A company that ends with the block."""
    found = Company(settings, bus)
    try:
        for _ in range(coordinators):
            await found.coordinator()
        if agents:
            await found.worker(*agents, **options)
        yield found
    finally:
        for member in found.members:
            await member.stop()
