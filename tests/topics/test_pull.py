"""The pull consumer: back-pressure, redelivery, and what goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.topics.bus import Bus
from callboard.topics.client import head_bytes
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import BrokerError
from callboard.topics.pull import Delivery, Puller, consumer_info
from callboard.topics.units import nanoseconds

CONFIG: dict[str, Any] = {"ack_wait": nanoseconds(1.0), "max_ack_pending": 1000}


class Taker:
    """Takes deliveries up to a limit; acknowledges at once unless told to hold."""

    def __init__(self, limit: int = 100) -> None:
        self.limit, self.hold = limit, False
        self.taken: list[Delivery] = []
        self.held: list[Delivery] = []
        self.most = 0

    def handle(self, delivery: Delivery) -> None:
        self.taken.append(delivery)
        if self.hold:
            self.held.append(delivery)
            self.most = max(self.most, len(self.held))
        else:
            delivery.ack()

    def room(self) -> int:
        return self.limit - len(self.held)

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.data for delivery in self.taken]


@pytest.fixture
def taker() -> Taker:
    return Taker()


Starter = Callable[..., Awaitable[Puller]]


@pytest.fixture
async def start(bus: Bus, taker: Taker) -> AsyncIterator[Starter]:
    started: list[Puller] = []

    async def begin(on: Bus = bus, by: Taker = taker, **config: Any) -> Puller:
        puller = Puller(on, on.subjects.work_stream, "a", CONFIG | config, by.handle, by.room)
        await puller.start()
        started.append(puller)
        return puller

    yield begin
    for puller in started:
        await puller.stop()


async def eventually(condition: Callable[[], bool], within_s: float = 10) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)


async def publish(bus: Bus, *bodies: bytes) -> None:
    writes = [bus.write(f"{bus.subjects.work}.a", body) for body in bodies]
    for write in writes:
        await write


async def remaining(bus: Bus) -> int:
    info = await bus.api(f"STREAM.INFO.{bus.subjects.work_stream}")
    assert info is not None
    return int(info["state"]["messages"])


async def test_messages_come_in_order_and_are_done_with(bus: Bus, taker: Taker, start: Starter) -> None:
    bodies = [str(n).encode() for n in range(1000)]
    await publish(bus, *bodies[:300])
    await start()
    await publish(bus, *bodies[300:])
    await eventually(lambda: len(taker.taken) == 1000)
    assert taker.bodies == bodies
    await bus.client.flush()
    assert await remaining(bus) == 0


async def test_never_more_than_there_is_room_for(bus: Bus, taker: Taker, start: Starter) -> None:
    taker.hold, taker.limit = True, 7
    await publish(bus, *[b"x"] * 50)
    puller = await start(ack_wait=nanoseconds(60))
    await eventually(lambda: len(taker.held) == 7)
    await asyncio.sleep(0.1)
    assert len(taker.taken) == 7
    for _ in range(60):
        if taker.held:
            taker.held.pop().ack()
            puller.ask()
            await asyncio.sleep(0.002)
    await eventually(lambda: len(taker.taken) == 50)
    assert taker.most <= 7


async def test_a_delivery_tells_of_itself(bus: Bus, taker: Taker, start: Starter) -> None:
    sequence = await bus.write(f"{bus.subjects.work}.a", b"x", head_bytes({"A": "b"}))
    await start()
    await eventually(lambda: bool(taker.taken))
    one = taker.taken[0]
    assert (one.subject, one.data, one.headers, one.delivered, one.sequence) == (
        f"{bus.subjects.work}.a", b"x", {"A": "b"}, 1, sequence,
    )  # fmt: skip
    assert abs(one.stored_ms / 1000 - asyncio.get_running_loop().time()) >= 0  # a wall-clock stamp
    assert one.stored_ms > 1_600_000_000_000


async def test_what_is_handed_back_comes_again_and_what_is_terminated_does_not(
    bus: Bus, taker: Taker, start: Starter
) -> None:
    taker.hold = True
    await publish(bus, b"back", b"never")
    puller = await start(ack_wait=nanoseconds(60))
    await eventually(lambda: len(taker.held) == 2)
    back, never = taker.held
    taker.held = []
    began = asyncio.get_running_loop().time()
    back.nak(0.2)
    never.term()
    puller.ask()
    await eventually(lambda: len(taker.held) == 1)
    assert (taker.held[0].data, taker.held[0].delivered) == (b"back", 2)
    assert asyncio.get_running_loop().time() - began > 0.15
    taker.held[0].nak()
    await eventually(lambda: len(taker.held) == 2)
    assert taker.held[1].delivered == 3
    taker.held[1].ack()
    await bus.client.flush()
    assert await remaining(bus) == 0


async def test_what_is_not_acknowledged_comes_again(bus: Bus, taker: Taker, start: Starter) -> None:
    taker.hold = True
    await publish(bus, b"x")
    await start(ack_wait=nanoseconds(0.3))
    await eventually(lambda: len(taker.taken) == 2)
    assert [one.delivered for one in taker.taken] == [1, 2]


async def test_two_pullers_share_the_work_and_one_takes_over(
    bus: Bus, settings: BrokerSettings, taker: Taker, start: Starter
) -> None:
    other, second = await Bus.connect(settings), Taker()
    try:
        one = await start()
        await start(other, second)
        for _ in range(100):
            await publish(bus, b"x")
        await eventually(lambda: len(taker.taken) + len(second.taken) == 100)
        assert taker.taken
        assert second.taken
        await one.stop()
        await one.stop()
        before = len(taker.taken)
        await publish(bus, *[b"y"] * 20)
        await eventually(lambda: second.bodies.count(b"y") == 20)
        assert len(taker.taken) == before
    finally:
        await other.close()


async def test_what_a_silent_puller_held_goes_to_the_others_when_it_is_delivered_again(
    bus: Bus, taker: Taker, start: Starter
) -> None:
    silent = Taker()
    silent.hold = True
    await start(by=silent)
    for number in range(16):
        await bus.store(f"{bus.subjects.work}.a", b"%d" % number)
    await eventually(lambda: len(silent.held) == 16)
    silent.limit = 0  # asks for nothing more; what it has asked for stands
    await start()
    await eventually(lambda: len(taker.taken) == 16, within_s=2)
    assert {delivery.delivered for delivery in taker.taken} == {2}, "none went to the silent one once more"


async def test_a_message_that_looks_like_a_heartbeat_is_delivered(bus: Bus, taker: Taker, start: Starter) -> None:
    """A publisher may send any status line; only what has no acknowledgement subject is a notice of the broker."""
    await start()
    heads = [b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", b"NATS/1.0 409 Consumer Deleted\r\n\r\n", b"NATS/1.0 408\r\n\r\n"]
    for head in heads:
        await bus.write(f"{bus.subjects.work}.a", b"x", head)
    await eventually(lambda: len(taker.taken) == 3)
    await bus.client.flush()
    assert await remaining(bus) == 0


async def test_a_handler_that_raises_does_not_stop_the_flow(
    bus: Bus, start: Starter, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[bytes] = []

    def handle(delivery: Delivery) -> None:
        delivery.ack()
        seen.append(delivery.data)
        if delivery.data == b"bad":
            raise ZeroDivisionError

    picky = Taker()
    picky.handle = handle  # type: ignore[method-assign]
    await start(bus, picky)
    await publish(bus, b"1", b"bad", b"2")
    await eventually(lambda: seen == [b"1", b"bad", b"2"])
    assert "failed on a message" in caplog.text


async def test_a_consumer_that_cannot_be_declared_is_an_error(bus: Bus, taker: Taker, start: Starter) -> None:
    with pytest.raises(BrokerError):
        await start(deliver_policy="new")  # a work queue has no such consumers
    assert await consumer_info(bus, bus.subjects.work_stream, "a") is None
    assert await consumer_info(bus, "NOT_THERE", "a") is None


async def test_a_deleted_consumer_is_declared_again(bus: Bus, taker: Taker, start: Starter) -> None:
    await start()
    await publish(bus, b"1")
    await eventually(lambda: len(taker.taken) == 1)
    for n in (b"2", b"3"):
        await bus.api(f"CONSUMER.DELETE.{bus.subjects.work_stream}.a")
        await publish(bus, n)
        await eventually(lambda n=n: n in taker.bodies)  # type: ignore[misc]
    assert await consumer_info(bus, bus.subjects.work_stream, "a") is not None


async def test_a_deleted_stream_is_no_busy_loop(bus: Bus, taker: Taker, start: Starter) -> None:
    await start()
    await publish(bus, b"1")
    await eventually(lambda: len(taker.taken) == 1)
    stream = bus.subjects.work_stream
    config = (await bus.api(f"STREAM.INFO.{stream}") or {})["config"]
    await bus.api(f"STREAM.DELETE.{stream}")
    before = bus._token
    await asyncio.sleep(0.5)
    assert bus._token - before < 20
    await bus.api(f"STREAM.CREATE.{stream}", config)
    await publish(bus, b"2")
    await eventually(lambda: taker.bodies == [b"1", b"2"])


@pytest.mark.crash
async def test_the_flow_goes_on_after_the_server_was_killed(
    nats: ServerProcess, bus: Bus, taker: Taker, start: Starter
) -> None:
    await start()
    await publish(bus, b"before")
    await eventually(lambda: len(taker.taken) == 1)
    for n in range(2):
        await asyncio.to_thread(nats.kill)
        await asyncio.sleep(0.1)
        await asyncio.to_thread(nats.start)
        body = f"after {n}".encode()
        await bus.store(f"{bus.subjects.work}.a", body)
        await eventually(lambda body=body: body in taker.bodies)  # type: ignore[misc]


@pytest.mark.crash
async def test_a_consumer_deleted_while_the_connection_was_down_is_declared_again(
    nats: ServerProcess, bus: Bus, settings: BrokerSettings, taker: Taker, start: Starter
) -> None:
    await start()
    await asyncio.to_thread(nats.kill)
    await asyncio.to_thread(nats.start)
    other = await Bus.connect(settings)
    try:
        await other.api(f"CONSUMER.DELETE.{bus.subjects.work_stream}.a", missing_ok=True)
        await other.store(f"{bus.subjects.work}.a", b"x")
        await eventually(lambda: taker.bodies == [b"x"])
    finally:
        await other.close()
