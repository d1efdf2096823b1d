"""The reference: what nats-py alone does on this machine, at this moment."""

from __future__ import annotations

import time

import nats

BODY = b"x" * 256
WINDOW = 1000


async def pipelined_per_s(url: str, count: int = 20_000) -> float:
    """Acknowledged publishes of 256 bytes a second, at most 1,000 under way."""
    connection = await nats.connect(url)
    stream = connection.jetstream(publish_async_max_pending=WINDOW)
    await stream.add_stream(name="REFERENCE", subjects=["reference.>"])
    started = time.perf_counter()
    for _ in range(count):
        await stream.publish_async("reference.pipelined", BODY)
    await stream.publish_async_completed()
    elapsed = time.perf_counter() - started
    await connection.close()
    return count / elapsed


async def sequential_s(url: str, count: int = 1000) -> float:
    """Median seconds of one acknowledged publish of 256 bytes after another."""
    connection = await nats.connect(url)
    stream = connection.jetstream()
    await stream.add_stream(name="REFERENCE", subjects=["reference.>"])
    times = []
    for _ in range(count):
        started = time.perf_counter()
        await stream.publish("reference.sequential", BODY)
        times.append(time.perf_counter() - started)
    await connection.close()
    return sorted(times)[count // 2]
