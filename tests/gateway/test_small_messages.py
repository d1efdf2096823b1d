"""Large values pass through a server that takes messages of 64 KB at most."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import msgspec
import pytest

from callboard.runtime.nats_server import ServerProcess, ServerSettings
from callboard.store.agents import AgentRegistry
from callboard.store.blobs import Blobs
from callboard.store.log import EventLog
from callboard.topics.bus import Bus
from callboard.topics.messages import AgentInfo, Status
from tests.support.nats import private_server

from .serving import Writer, all_events
from .test_resources import publish

pytestmark = pytest.mark.slow
LIMIT = 64 * 1024


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with private_server(tmp_path_factory.mktemp("nats"), ServerSettings(max_payload_bytes=LIMIT)) as server:
        yield server


async def test_five_megabytes_in_and_out(http: httpx.AsyncClient, bus: Bus) -> None:
    assert bus.max_payload == LIMIT
    await AgentRegistry(bus).register(AgentInfo(name="large"))
    await asyncio.sleep(0.3)
    value = msgspec.json.encode({"text": "y" * 5_000_000})
    task = b'{"agent": "large", "input": %b}' % value
    answer = await http.post("/runs", content=task, headers={"content-type": "application/json"})
    run = answer.json()["run"]
    assert (await http.get(f"/runs/{run}/input")).content == value
    log = EventLog(bus)
    loaded = await log.require(run)
    await log.append_state(
        msgspec.structs.replace(
            loaded.record, status=Status.COMPLETED, result=await Blobs(bus).payload(value), rev=loaded.record.rev + 1
        ),
        loaded.sequence,
    )
    assert (await http.get(f"/runs/{run}/result")).content == value
    assert (await all_events(http, f"/runs/{run}/events"))[-2].entry["result"]["ref"]["size"] == len(value)
    posted = await http.post("/threads/t/messages", json={"role": "user", "content": "z" * 5_000_000})
    assert posted.status_code == 201


async def test_a_large_artifact(http: httpx.AsyncClient, bus: Bus) -> None:
    writer = await Writer(bus).begin()
    await publish(bus, writer, "large", "text/plain", b"a" * 5_000_000, by_ref=True)
    assert len((await http.get(f"/runs/{writer.run}/artifacts/large")).content) == 5_000_000
