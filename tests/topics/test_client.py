"""What `Client` adds to nats-py, against a real server that stands still, is cut off, or is taken for another one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress

import pytest
import uvloop
from nats.errors import FlushTimeoutError

from callboard.runtime.nats_port import LOOPBACK
from callboard.runtime.nats_server import ServerProcess
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from tests.actors.company import eventually
from tests.chaos.proxy import before


async def test_a_flush_that_gave_up_does_not_deafen_the_connection(bus: Bus, nats: ServerProcess) -> None:
    """Its answer comes when nobody waits for it any more."""
    assert nats.pid is not None
    os.kill(nats.pid, signal.SIGSTOP)
    try:
        with suppress(FlushTimeoutError):
            await bus.client.flush(timeout=1)  # it may answer a last time before it stands still
        with pytest.raises(FlushTimeoutError):
            await bus.client.flush(timeout=1)
    finally:
        os.kill(nats.pid, signal.SIGCONT)
    async with asyncio.timeout(5):
        for _ in range(3):
            await bus.store(f"{bus.subjects.task}.words", b"1")
    await bus.client.flush(timeout=5)
    assert bus.is_up


async def _closed_as_it_breaks(nats: ServerProcess) -> None:
    async with before(nats.url) as proxy:
        for turns in range(8):
            bus = await Bus.connect(BrokerSettings(nats_url=proxy.url))
            proxy.drop()
            for _ in range(turns):
                await asyncio.sleep(0)
            bus.client.write("nobody.listens", "", None, b"on its way")
            await bus.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_that_breaks_while_it_is_closed_is_closed(
    nats: ServerProcess, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """With uvloop, a write to what is gone raises an error of its own."""
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_closed_as_it_breaks(nats))


async def test_a_link_that_has_gone_silent_with_much_to_send_is_closed_in_time(nats: ServerProcess) -> None:
    async with before(nats.url) as proxy:
        bus = await Bus.connect(BrokerSettings(nats_url=proxy.url))
        proxy.hold()
        bus.client.write("nobody.listens", "", None, b"x" * 30_000_000)
        async with asyncio.timeout(4):
            await bus.close()


async def test_whoever_is_cancelled_while_connecting_leaves_no_connection_behind(nats: ServerProcess) -> None:
    async with before(nats.url) as proxy:
        for turns in [0, 1, 2, 3, 5, 8, 12, 16, 20, 25, 30, 40, 60]:
            connecting = asyncio.create_task(Bus.connect(BrokerSettings(nats_url=proxy.url)))
            for _ in range(turns):
                await asyncio.sleep(0)
            if not connecting.cancel():
                await connecting.result().close()
                continue
            with pytest.raises(asyncio.CancelledError):
                await connecting
        await eventually(lambda: not proxy.connections)


async def test_whoever_is_cancelled_while_closing_has_closed(nats: ServerProcess) -> None:
    async with before(nats.url) as proxy:
        bus = await Bus.connect(BrokerSettings(nats_url=proxy.url))
        proxy.hold()
        closing = asyncio.create_task(bus.close())
        await asyncio.sleep(0.05)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        proxy.heal()
        await eventually(lambda: not proxy.connections)


async def test_what_the_server_complains_of_ends_no_more_than_that_connection(bus: Bus) -> None:
    assert bus.client._transport is not None
    bus.client._transport.write(b"NONSENSE\r\n")
    await eventually(lambda: not bus.is_up)
    async with asyncio.timeout(10):
        await bus.connected()
    await bus.store(f"{bus.subjects.task}.words", b"1")


async def test_who_answers_and_is_no_nats_server_does_not_end_the_search_for_one(nats: ServerProcess) -> None:
    async def chatter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"welcome " * 20_000)
        met.set()
        with suppress(OSError):
            await reader.read()
        writer.transport.abort()

    met = asyncio.Event()
    impostor = await asyncio.start_server(chatter, LOOPBACK)
    async with impostor, before(nats.url) as proxy:
        bus = await Bus.connect(BrokerSettings(nats_url=proxy.url))
        server, proxy.target = proxy.target, impostor.sockets[0].getsockname()[1]
        proxy.drop()
        async with asyncio.timeout(10):
            await met.wait()
            proxy.target = server
            await bus.connected()
        await bus.close()
