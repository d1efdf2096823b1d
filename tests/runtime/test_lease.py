"""Leases outlive a blocked event loop, a restarted broker, and nothing else."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from callboard.runtime.config import RuntimeSettings
from callboard.runtime.lease import LeaseKeeper
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.pull import Delivery, Puller

SETTINGS = RuntimeSettings(lease_s=0.9, beat_s=0.1, blocked_after_s=0.3)
ACK_WAIT_NS = 900_000_000


@pytest.fixture
async def keeper(settings: BrokerSettings) -> AsyncIterator[LeaseKeeper]:
    keeper = LeaseKeeper(settings, SETTINGS)
    await keeper.start()
    yield keeper
    await keeper.stop()


async def deliveries(bus: Bus) -> tuple[list[Delivery], Puller]:
    """The deliveries of one work message, of which the first one is never acknowledged."""
    got: list[Delivery] = []
    config = {"filter_subject": f"{bus.subjects.work}.x", "ack_wait": ACK_WAIT_NS}
    puller = Puller(bus, bus.subjects.work_stream, "x", config, got.append, lambda: 10)
    await puller.start()
    await bus.write(f"{bus.subjects.work}.x", b"work")
    await eventually(lambda: len(got) == 1)
    return got, puller


async def eventually(condition: Callable[[], bool], within_s: float = 5) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def block_the_loop(seconds: float) -> None:
    time.sleep(seconds)  # what a user's code does wrong


class Observer(threading.Thread):
    """Another process, as far as the broker knows: pings the worker and counts its beats."""

    def __init__(self, settings: BrokerSettings, worker: str) -> None:
        super().__init__()
        self.settings, self.worker = settings, worker
        self.beats: list[float] = []
        self.answers: list[bytes] = []
        self.failures: list[Exception] = []
        self.ready, self.ended = threading.Event(), threading.Event()

    def run(self) -> None:
        asyncio.run(self.main())

    async def main(self) -> None:
        bus = await Bus.connect(self.settings)
        subject = f"{bus.subjects.worker}.{self.worker}"
        await bus.subscribe(f"{subject}.beat", lambda _: self.beats.append(time.monotonic()))
        self.ready.set()
        while not self.ended.is_set():
            try:
                self.answers.append((await bus.request(subject, timeout_s=0.5)).data)
            except Exception as error:
                self.failures.append(error)
            await asyncio.sleep(0.1)
        await bus.close()


async def test_a_held_message_is_not_delivered_again_and_a_removed_one_is(bus: Bus, keeper: LeaseKeeper) -> None:
    got, puller = await deliveries(bus)
    keeper.add(got[0].reply, "run-1")
    assert keeper.held == 1
    await asyncio.sleep(2.5)
    assert len(got) == 1
    keeper.remove(got[0].reply)
    await eventually(lambda: len(got) == 2, 3)
    assert got[1].delivered == 2
    await puller.stop()


async def test_a_blocked_loop_keeps_its_leases_looks_alive_and_is_named(
    bus: Bus, settings: BrokerSettings, keeper: LeaseKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    keeper.present("w1", b'{"id":"w1"}')
    observer = Observer(settings, "w1")
    observer.start()
    await asyncio.to_thread(observer.ready.wait)
    got, puller = await deliveries(bus)
    keeper.add(got[0].reply, "run-1")
    await eventually(lambda: len(observer.answers) > 0)
    observer.failures.clear()
    begun = time.monotonic()
    block_the_loop(4.0)
    ended = time.monotonic()
    observer.ended.set()
    await asyncio.sleep(0.3)
    await asyncio.to_thread(observer.join)
    assert len(got) == 1, "not delivered again"
    during = [at for at in observer.beats if begun < at < ended]
    assert len(during) > 20
    assert observer.answers[-1] == b'{"id":"w1"}'
    assert observer.failures == []
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    blocked = [message for message in warnings if "has stood still" in message]
    assert len(blocked) == 1, "told once an episode"
    assert "block_the_loop() at" in blocked[0]
    assert "test_lease.py" in blocked[0]
    assert any("goes on; it stood still for 4" in message for message in warnings)
    await puller.stop()


async def test_leases_survive_a_restart_of_the_broker(bus: Bus, keeper: LeaseKeeper, nats: Any) -> None:
    got, puller = await deliveries(bus)
    keeper.add(got[0].reply, "run-1")
    await asyncio.sleep(0.2)
    nats.kill()
    await asyncio.to_thread(nats.start)
    await bus.connected()
    before = keeper.renewals
    await eventually(lambda: keeper.renewals > before + 2)
    count = len(got)
    await asyncio.sleep(2)
    assert len(got) == count
    await puller.stop()


async def test_it_starts_without_a_broker_and_stops_quickly() -> None:
    keeper = LeaseKeeper(BrokerSettings(nats_url="nats://127.0.0.1:1", connect_timeout_s=5), SETTINGS)
    begun = time.monotonic()
    await keeper.start()
    await asyncio.sleep(0.2)
    await keeper.stop()
    await keeper.stop()
    assert time.monotonic() - begun < 1.5


async def test_add_and_remove_cost_next_to_nothing(keeper: LeaseKeeper) -> None:
    def once() -> float:
        begun = time.perf_counter()
        for n in range(1000):
            keeper.add(f"$JS.ACK.{n}", "run")
            keeper.remove(f"$JS.ACK.{n}")
        return (time.perf_counter() - begun) / 2000

    assert min(once() for _ in range(20)) < 2e-6
