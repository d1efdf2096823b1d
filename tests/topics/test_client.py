"""What `Client` adds to nats-py, against a real server that stands still for a moment."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from nats.errors import FlushTimeoutError

from callboard.runtime.nats_server import ServerProcess
from callboard.topics.bus import Bus


async def test_a_flush_that_gave_up_does_not_deafen_the_connection(bus: Bus, nats: ServerProcess) -> None:
    """Its answer comes when nobody waits for it any more."""
    assert nats.pid is not None
    os.kill(nats.pid, signal.SIGSTOP)
    try:
        with pytest.raises(FlushTimeoutError):
            await bus.client.flush(timeout=1)
    finally:
        os.kill(nats.pid, signal.SIGCONT)
    async with asyncio.timeout(5):
        for _ in range(3):
            await bus.store(f"{bus.subjects.task}.words", b"1")
    await bus.client.flush(timeout=5)
    assert bus.is_up
