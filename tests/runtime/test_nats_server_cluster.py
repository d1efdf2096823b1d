"""Three servers from the shipped configuration file: what is replicated survives the loss of one of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import pytest
from nats.js import JetStreamContext

from callboard.topics.server import require_server
from tests.support.nats import Cluster, private_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.crash]


@asynccontextmanager
async def connected(cluster: Cluster) -> AsyncIterator[JetStreamContext]:
    async def quiet(_error: Exception) -> None: ...

    client = await nats.connect(cluster.urls, reconnect_time_wait=0.05, max_reconnect_attempts=-1, error_cb=quiet)
    try:
        yield client.jetstream(timeout=1)
    finally:
        await client.close()


async def publish_until_stored(stream: JetStreamContext, number: int) -> None:
    """Repeat one publish over an election; its id keeps a repeated one from being stored twice."""
    async with asyncio.timeout(30):
        while True:
            try:
                await stream.publish("kept", str(number).encode(), headers={"Nats-Msg-Id": str(number)})
            except (nats.errors.Error, TimeoutError):
                await asyncio.sleep(0.05)
            else:
                return


async def test_a_replicated_stream_goes_on_without_the_killed_leader(tmp_path: Path) -> None:
    with private_cluster(tmp_path) as cluster:
        async with connected(cluster) as stream:
            await stream.add_stream(name="KEPT", subjects=["kept"], num_replicas=3)
            for number in range(20):
                await publish_until_stored(stream, number)

            info = await stream.stream_info("KEPT")
            assert info.cluster is not None
            names = [node.settings.name for node in cluster.nodes]
            victim = names.index(info.cluster.leader or "")
            cluster.kill(victim)
            for number in range(20, 40):
                await publish_until_stored(stream, number)

            cluster.restart(victim)
            assert (await stream.stream_info("KEPT")).state.messages == 40
            data = [(await stream.get_msg("KEPT", sequence)).data for sequence in range(1, 41)]
            assert data == [str(number).encode() for number in range(40)]


def test_every_server_is_new_enough_and_has_the_settings_of_the_file(tmp_path: Path) -> None:
    with private_cluster(tmp_path / "with space", sync_interval="always", max_payload_bytes=65536) as cluster:
        for index, node in enumerate(cluster.nodes):
            require_server(node.info)
            assert node.info["max_payload"] == 65536
            config = (cluster.monitor(index, "jsz") or {})["config"]
            assert config["sync_always"] is True
            assert "with space" in config["store_dir"]
