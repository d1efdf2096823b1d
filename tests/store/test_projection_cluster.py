"""The feed on three servers with three replicas: servers are killed under load, nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from callboard.store.projection import Projection, ProjectionFeed
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import CallboardError
from callboard.topics.messages import Status
from callboard.topics.streams import ensure_streams
from tests.support.nats import private_cluster
from tests.support.projection import life


@pytest.mark.cluster
@pytest.mark.crash
@pytest.mark.proof
@pytest.mark.slow
async def test_servers_are_killed_one_after_the_other(tmp_path: Path) -> None:
    with private_cluster(tmp_path / "nats") as cluster:
        settings = BrokerSettings(nats_url=cluster.url, namespace="pc", replicas=3)
        writer, reader = await Bus.connect(settings), await Bus.connect(settings)
        await ensure_streams(writer, settings)
        projection = await Projection.open(tmp_path / "p.db")
        feed = ProjectionFeed(reader, projection)
        task = asyncio.create_task(feed.run())
        last = 0
        for index in range(3):
            last = await _write(writer, range(index * 100, index * 100 + 50))
            cluster.kill(index)
            last = await _write(writer, range(index * 100 + 50, index * 100 + 100))
            await projection.wait_applied(last, 25)
            await asyncio.to_thread(cluster.restart, index)
        await projection.wait_applied(last, 20)
        assert (await projection.counts()).by_status == {Status.COMPLETED: 300}
        digest = await projection.content_digest()
        await feed.rebuild()
        await projection.wait_applied(last, 20)
        assert await projection.content_digest() == digest
        await feed.stop()
        await task
        await projection.close()
        await writer.close()
        await reader.close()


async def _write(bus: Bus, runs: range) -> int:
    """Stores each message until it is acknowledged; a repetition is one more state of its run."""
    last = 0
    for number in runs:
        for subject, data in life(bus, f"r{number:05}", number):
            while True:
                try:
                    await asyncio.wait_for(bus.connected(), 20)
                    last = await bus.store(subject, data)
                    break
                except CallboardError:
                    await asyncio.sleep(0.1)
    return last
