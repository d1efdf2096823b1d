"""System actors in a host: pull consumers, core requests, signals, loops, heartbeats, and an orderly end."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from callboard.actors.actor import Actor, QueueSource, RpcSource, SignalSource, Source
from callboard.actors.context import ActorContext
from callboard.runtime.config import RuntimeSettings
from callboard.runtime.host import Host
from callboard.runtime.nats_server import ServerProcess
from callboard.runtime.presence import HostBeat
from callboard.store.deadletters import DeadLetters
from callboard.topics import rpc
from callboard.topics.bus import Bus
from callboard.topics.client import Message
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import NoResponders, Unavailable
from callboard.topics.pull import Delivery, consumer_info

SETTINGS = RuntimeSettings(beat_s=0.2, grace_s=2, restart_initial_s=0.01, restart_max_s=0.05, restart_limit=3)


class System(Actor):
    """What the coordinator looks like to its host."""

    def __init__(self, bus: Bus, key: Callable[[Any], str] | None = None) -> None:
        self.bus, self.key = bus, key
        self.handled: list[str] = []
        self.asked = 0
        self.signals: list[bytes] = []
        self.life: list[str] = []
        self.takes_s = 0.0
        self.fail_with: Exception | None = None
        self.loops = 0
        self.running = self.most = 0

    def sources(self) -> list[Source]:
        subjects = self.bus.subjects
        config = {"filter_subject": f"{subjects.task}.*", "ack_wait": 2_000_000_000}
        return [
            QueueSource(subjects.inbox, "system", config, self.task, self.key),
            RpcSource(f"{subjects.rpc}.ping", self.rpc, "system", self.key),
            SignalSource(f"{subjects.live}.>", lambda message: self.signals.append(message.data)),
        ]

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        return [self.loop]

    async def task(self, delivery: Delivery) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.takes_s)
            if self.fail_with is not None:
                raise self.fail_with
            self.handled.append(delivery.data.decode())
            delivery.ack()
        finally:
            self.running -= 1

    async def rpc(self, message: Message) -> None:
        self.asked += 1
        await asyncio.sleep(self.takes_s)
        self.bus.publish(message.reply, b"pong")

    async def loop(self) -> None:
        self.loops += 1
        if self.loops < 3:
            raise RuntimeError("once more")
        await asyncio.Event().wait()

    def beat(self) -> dict[str, Any]:
        return {"agents": ["reviewer"], "concurrency": 7}

    async def started(self, ctx: ActorContext) -> None:
        self.life.append("started")

    async def stopping(self, ctx: ActorContext) -> None:
        self.life.append("stopping")

    async def stopped(self, ctx: ActorContext) -> None:
        self.life.append("stopped")


async def eventually(condition: Callable[[], bool], within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@pytest.fixture
async def system(bus: Bus) -> System:
    return System(bus)


@pytest.fixture
async def host(bus: Bus, system: System) -> AsyncIterator[Host]:
    host = Host(bus, SETTINGS)
    host.add(system)
    await host.start()
    yield host
    await host.stop()


async def put(bus: Bus, count: int, topic: str = "x") -> None:
    await asyncio.gather(*(bus.write(f"{bus.subjects.task}.{topic}", str(n).encode()) for n in range(count)))


async def test_deliveries_requests_signals_and_loops_reach_the_actor(bus: Bus, host: Host, system: System) -> None:
    await put(bus, 200)
    await eventually(lambda: len(system.handled) == 200)
    assert (await bus.request(f"{bus.subjects.rpc}.ping", timeout_s=2)).data == b"pong"
    bus.publish(f"{bus.subjects.live}.run.x", b"hello")
    await eventually(lambda: system.signals == [b"hello"] and system.loops == 3)
    info = await consumer_info(bus, bus.subjects.inbox, "system")
    assert info is not None
    assert (info["num_ack_pending"], info["num_pending"]) == (0, 0)


async def test_a_request_that_is_in_hand_is_not_taken_once_more(
    bus: Bus, host: Host, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "AGAIN_S", 0.05)
    system.takes_s = 0.5
    assert (await rpc.ask(bus, "ping", b"", 5)).data == b"pong"
    assert system.asked == 1
    assert (await rpc.ask(bus, "ping", b"", 5)).data == b"pong"
    assert system.asked == 2


async def test_without_a_key_deliveries_run_side_by_side(bus: Bus, host: Host, system: System) -> None:
    system.takes_s = 0.1
    await put(bus, 50)
    await eventually(lambda: len(system.handled) == 50, 3)
    assert system.most > 20


async def test_with_a_key_one_at_a_time_in_order(bus: Bus) -> None:
    system = System(bus, key=lambda message: message.subject)
    host = Host(bus, SETTINGS)
    host.add(system)
    await host.start()
    for topic in ("a", "b"):
        await put(bus, 30, topic)
    await eventually(lambda: len(system.handled) == 60)
    assert system.most <= 2
    assert [n for n in system.handled if n == "29"] == ["29", "29"]
    await host.stop()


async def test_no_more_under_way_than_the_capacity(bus: Bus) -> None:
    system = System(bus)
    system.capacity, system.takes_s = 5, 0.02
    host = Host(bus, SETTINGS)
    host.add(system)
    await host.start()
    await put(bus, 60)
    await eventually(lambda: len(system.handled) == 60)
    assert system.most == 5
    await host.stop()


async def test_a_handler_that_raises_gets_it_again_and_at_last_it_is_set_aside(bus: Bus) -> None:
    system = System(bus)
    system.max_deliveries, system.fail_with = 2, ValueError("a defect")
    host = Host(bus, SETTINGS)
    host.add(system)
    await host.start()
    await put(bus, 1)
    letters: list[Any] = []
    async with asyncio.timeout(10):
        while not letters:
            letters = await DeadLetters(bus).page()
            await asyncio.sleep(0.05)
    assert (letters[0].kind, letters[0].letter.data) == ("task", b"0")
    system.fail_with = None
    await bus.write(f"{bus.subjects.task}.x", b"next")
    await eventually(lambda: system.handled == ["next"])
    assert host.gave_up == []
    await host.stop()


async def test_a_broker_that_is_away_is_nobody_s_fault(bus: Bus) -> None:
    system = System(bus)
    system.max_deliveries, system.fail_with = 1, Unavailable("gone for a moment")
    host = Host(bus, SETTINGS)
    host.add(system)
    await host.start()
    await put(bus, 1)
    await asyncio.sleep(0.3)
    system.fail_with = None
    await eventually(lambda: system.handled == ["0"])
    assert await DeadLetters(bus).page() == []
    await host.stop()


async def test_the_host_beats_and_answers_pings(bus: Bus, host: Host, system: System) -> None:
    heard: list[bytes] = []
    await bus.subscribe(f"{bus.subjects.worker}.*.beat", lambda message: heard.append(message.data))
    await eventually(lambda: len(heard) >= 2, 2)
    [everybody] = await bus.gather(bus.subjects.worker)
    ping = await bus.request(f"{bus.subjects.worker}.{host.id}")
    for data in (heard[0], everybody.data, ping.data):
        beat = msgspec.json.decode(data, type=HostBeat)
        assert (beat.id, beat.agents, beat.concurrency, beat.actors) == (host.id, ["reviewer"], 7, ["system"])
    await host.stop()
    with pytest.raises(NoResponders):
        await bus.request(f"{bus.subjects.worker}.{host.id}")


async def test_drain_finishes_what_runs_and_takes_nothing_new(bus: Bus, host: Host, system: System) -> None:
    system.takes_s = 0.3
    await put(bus, 3)
    await eventually(lambda: system.running == 3)
    draining = asyncio.create_task(host.drain())
    await asyncio.sleep(0.1)
    await put(bus, 2)
    await draining
    assert sorted(system.handled) == ["0", "1", "2"]
    assert system.life == ["started", "stopping", "stopped"]
    assert system.most == 3


async def test_requests_that_were_sent_before_the_drain_are_answered(
    bus: Bus, host: Host, settings: BrokerSettings
) -> None:
    other = await Bus.connect(settings)
    asking = [asyncio.create_task(other.request(f"{bus.subjects.rpc}.ping", timeout_s=2)) for _ in range(200)]
    await asyncio.sleep(0)
    await other.client.flush()
    await host.drain()
    assert [answer.data for answer in await asyncio.gather(*asking)] == [b"pong"] * 200
    await other.close()


async def test_what_is_not_finished_in_time_is_handed_back(bus: Bus, host: Host, system: System) -> None:
    system.takes_s = 60
    await put(bus, 1)
    await eventually(lambda: system.running == 1)
    begun = time.monotonic()
    await host.drain(0.2)
    assert time.monotonic() - begun < 3
    assert system.handled == []
    other = System(bus)
    successor = Host(bus, SETTINGS)
    successor.add(other)
    await successor.start()
    await eventually(lambda: other.handled == ["0"], 1.5)
    await successor.stop()


async def test_a_loop_that_never_holds_gives_the_actor_up(bus: Bus) -> None:
    class Failing(System):
        async def loop(self) -> None:
            raise RuntimeError("always")

    host = Host(bus, SETTINGS)
    host.add(Failing(bus))
    await host.start()
    await asyncio.wait_for(host.abandoned(), 10)
    assert host.gave_up == ["failing"]
    await host.stop()


async def test_drain_works_with_the_broker_gone(bus: Bus, host: Host, system: System, nats: ServerProcess) -> None:
    nats.kill()
    try:
        begun = time.monotonic()
        await host.drain()
        assert time.monotonic() - begun < 5
        assert system.life == ["started", "stopping", "stopped"]
    finally:
        await asyncio.to_thread(nats.start)
