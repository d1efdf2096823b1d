"""Blobs and fenced writes on three servers with three replicas."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from callboard.store.blobs import Blobs
from callboard.store.threads import Threads
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.ids import new_token
from callboard.topics.streams import ensure_streams
from tests.support.nats import Cluster, private_cluster

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("cluster")
    with private_cluster(folder) as servers:
        yield servers


@pytest.fixture
async def buses(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Bus]]:
    """A connection to each server."""
    monkeypatch.delenv("NATS_URL", raising=False)
    namespace = f"t{new_token(8)}"
    connections = [
        await Bus.connect(BrokerSettings(nats_url=url, namespace=namespace, replicas=3)) for url in cluster.urls
    ]
    try:
        await ensure_streams(connections[0], connections[0].settings)
        yield connections
    finally:
        for connection in connections:
            await connection.close()


async def test_the_same_bytes_put_at_every_server_at_once_lie_there_once(buses: list[Bus]) -> None:
    data = random.Random(1).randbytes(3_000_000)
    refs = await asyncio.gather(*(Blobs(bus).put(data) for bus in buses))
    assert len(set(refs)) == 1
    for bus in buses:
        assert await Blobs(bus).get(refs[0]) == data
    info = await buses[0].api(f"STREAM.INFO.OBJ_{buses[0].subjects.blobs}")
    assert info is not None
    assert info["state"]["messages"] == -(-len(data) // (128 * 1024)) + 1


async def test_a_put_survives_the_loss_of_the_streams_leader(cluster: Cluster, buses: list[Bus]) -> None:
    blobs, data = Blobs(buses[0]), random.Random(2).randbytes(8_000_000)
    await blobs.ensure()
    info = await buses[0].api(f"STREAM.INFO.OBJ_{blobs.bucket}")
    assert info is not None
    names = [node.settings.name for node in cluster.nodes]
    leader = names.index(info["cluster"]["leader"])
    other = buses[(leader + 1) % 3]
    put = asyncio.create_task(Blobs(other).put(data))
    await asyncio.sleep(0.03)
    await asyncio.to_thread(cluster.kill, leader)
    try:
        ref = await put
        assert await Blobs(other).get(ref) == data
    finally:
        await asyncio.to_thread(cluster.restart, leader)


async def test_of_threads_created_at_every_server_at_once_there_is_one(buses: list[Bus]) -> None:
    made = await asyncio.gather(*(Threads(bus).create("t", {"a": 1}) for bus in buses))
    assert len({record.created_at for record in made}) == 1
