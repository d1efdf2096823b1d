"""Event streams with three replicas: a change of leader may swallow live events, clients miss nothing."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import Status
from callboard.topics.streams import ensure_streams
from tests.support.nats import Cluster, private_cluster

from .serving import Sse, Writer, gateway
from .test_sse_faults import check, follow, write

pytestmark = [pytest.mark.cluster, pytest.mark.crash, pytest.mark.proof, pytest.mark.slow]


@pytest.mark.timeout(180)
async def test_the_leader_of_the_log_is_killed_twice(tmp_path: Path) -> None:
    with private_cluster(tmp_path / "cluster") as cluster:
        settings = BrokerSettings(nats_url=cluster.url, namespace="three", replicas=3)
        bus = await Bus.connect(settings)
        await ensure_streams(bus, settings)
        with gateway(settings, tmp_path / "p.db") as there:
            writer = await Writer(bus).begin()
            clients: list[list[Sse]] = [[] for _ in range(4)]
            following = [
                asyncio.create_task(follow(there.url, writer.run, found, hops=random.Random(index) if index else None))
                for index, found in enumerate(clients)
            ]
            writing = asyncio.create_task(write(writer, 1000, 3))
            for _ in range(2):
                await asyncio.sleep(1)
                leader = await _leader(cluster, bus)
                await asyncio.to_thread(cluster.kill, leader)
                await asyncio.sleep(2)
                await asyncio.to_thread(cluster.restart, leader)
            await writing
            await writer.to(Status.COMPLETED)
            await asyncio.gather(*following)
            for found in clients:
                check(found, [writer])
        await bus.close()


async def _leader(cluster: Cluster, bus: Bus) -> int:
    """Which server leads the stream of the log."""
    info = await bus.api(f"STREAM.INFO.{bus.subjects.events}")
    assert info is not None
    return next(index for index, node in enumerate(cluster.nodes) if node.settings.name == info["cluster"]["leader"])
