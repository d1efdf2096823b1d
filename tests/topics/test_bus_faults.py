"""The connection when the server is killed, stalls, and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import Unavailable

pytestmark = pytest.mark.crash


async def write_until_refused(bus: Bus, subject: str) -> None:
    """A stopped process may still answer for a moment."""
    while True:
        await bus.write(subject, b"0")


async def restart(nats: ServerProcess) -> None:
    await asyncio.to_thread(nats.start)


async def test_writes_under_way_fail_at_once_and_nothing_acknowledged_is_lost(nats: ServerProcess, bus: Bus) -> None:
    subject = bus.subjects.event("r", "step")
    acknowledged: list[int] = []
    writes = [bus.write(subject, str(n).encode()) for n in range(3000)]
    for n, write in enumerate(writes[:500]):
        acknowledged.append(n)
        await write
    killed = asyncio.create_task(asyncio.to_thread(nats.kill))
    results = await asyncio.wait_for(asyncio.gather(*writes[500:], return_exceptions=True), 3)
    await killed
    acknowledged += [n for n, result in enumerate(results, 500) if isinstance(result, int)]
    assert all(isinstance(result, int | Unavailable) for result in results)
    while bus.is_up:
        await asyncio.sleep(0.01)
    began = time.monotonic()
    with pytest.raises(Unavailable):
        await bus.write(subject, b"x")
    with pytest.raises(Unavailable):
        await bus.request("x")
    assert time.monotonic() - began < 0.1
    await restart(nats)
    await asyncio.wait_for(bus.connected(), 10)
    kept = {int(one.data) async for page in reads.read(bus, bus.subjects.events, subject) for one in page}
    assert set(acknowledged) <= kept


async def test_requests_under_way_fail_when_the_connection_is_lost(nats: ServerProcess, bus: Bus) -> None:
    await bus.subscribe("svc.silent", lambda _: None)
    task = asyncio.create_task(bus.request("svc.silent", timeout_s=30))
    await asyncio.sleep(0.05)
    await asyncio.to_thread(nats.kill)
    with pytest.raises(Unavailable, match="lost"):
        await asyncio.wait_for(task, 3)
    await restart(nats)


async def test_subscriptions_and_store_go_on_after_a_restart(nats: ServerProcess, bus: Bus) -> None:
    seen: list[bytes] = []
    told: list[bool] = []
    subject = bus.subjects.event("r", "step")
    await bus.subscribe(bus.subjects.live_of(subject), lambda message: seen.append(message.data))
    bus.on_reconnect.append(lambda: told.append(bus.is_up))
    await asyncio.to_thread(nats.kill)
    storing = asyncio.create_task(bus.store(subject, b"while it was down"))
    await asyncio.sleep(0.2)
    assert not storing.done()
    await restart(nats)
    assert await asyncio.wait_for(storing, 10) > 0
    await bus.client.flush()
    assert told == [True]
    assert b"while it was down" in seen


async def test_a_stalled_server_is_answered_by_a_timeout(
    nats: ServerProcess, settings: BrokerSettings, bus: Bus
) -> None:
    impatient = await Bus.connect(settings.model_copy(update={"publish_timeout_s": 0.3}))
    assert nats.pid is not None
    os.kill(nats.pid, signal.SIGSTOP)
    try:
        with pytest.raises(Unavailable, match="in time"):
            await write_until_refused(impatient, bus.subjects.event("r", "step"))
        began = time.monotonic()
        with pytest.raises(Unavailable, match="in time"):
            await impatient.write(bus.subjects.event("r", "step"), b"1")
        assert 0.2 < time.monotonic() - began < 1.5
    finally:
        os.kill(nats.pid, signal.SIGCONT)
        await impatient.close()


async def test_close_ends_in_time_when_the_server_is_gone(nats: ServerProcess, settings: BrokerSettings) -> None:
    bus = await Bus.connect(settings)
    await asyncio.to_thread(nats.kill)
    await asyncio.sleep(0.05)
    began = time.monotonic()
    await bus.close()
    assert time.monotonic() - began < 2.5
    with pytest.raises(Unavailable):
        await Bus.connect(settings.model_copy(update={"connect_timeout_s": 0.3}))
    await restart(nats)
