"""Starting without NATS, becoming ready, and ending."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from callboard.gateway import GatewaySettings, serve
from callboard.runtime.nats_port import free_ports
from callboard.runtime.nats_server import ServerProcess, ServerSettings
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import InvalidInput
from callboard.topics.messages import Status

from .serving import Sse, Writer, events, gateway


def test_it_starts_without_nats_and_becomes_ready_when_nats_comes(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    broker = BrokerSettings(nats_url=f"nats://127.0.0.1:{port}", namespace="late")
    with gateway(broker, tmp_path / "p.db", ready=False) as there:
        assert httpx.get(f"{there.url}/healthz").json()["status"] == "ok"
        answer = httpx.get(f"{there.url}/readyz")
        assert answer.status_code == 503
        assert "NATS" in answer.json()["reason"]
        for path in ("/runs/x", "/runs/x/events", "/agents", "/deadletters", "/threads/x"):
            refused = httpx.get(f"{there.url}{path}")
            assert (refused.status_code, refused.json()["code"]) == (503, "unavailable"), path
            assert refused.headers["retry-after"]
            assert refused.json()["retryable"] is True
        assert httpx.get(f"{there.url}/metrics").status_code == 200
        server = ServerProcess(tmp_path / "nats", ServerSettings(port=port))
        server.start()
        try:
            there.wait_for("/readyz")
            assert httpx.get(f"{there.url}/runs/x").status_code == 404
        finally:
            server.stop()
        there.wait_for("/readyz", 503)
        assert there.terminate() == 0


def test_it_ends_at_once_while_nats_is_away(tmp_path: Path) -> None:
    broker = BrokerSettings(nats_url=f"nats://127.0.0.1:{free_ports(1)[0]}")
    with gateway(broker, tmp_path / "p.db", ready=False) as there:
        began = time.monotonic()
        assert there.terminate() == 0
        assert time.monotonic() - began < 5


async def test_sigterm_ends_streams_and_long_polls_within_the_grace(
    settings: BrokerSettings, tmp_path: Path, bus: Bus
) -> None:
    with gateway(settings, tmp_path / "p.db") as there:
        writer = await Writer(bus).begin()
        found: list[Sse] = []
        comments: list[str] = []

        async def watch() -> None:
            async with httpx.AsyncClient(base_url=there.url) as client:
                async for event in events(client, f"/runs/{writer.run}/events", comments):
                    found.append(event)

        async def poll() -> httpx.Response:
            async with httpx.AsyncClient(base_url=there.url, timeout=60) as client:
                return await client.get(f"/runs/{writer.run}/wait?timeout=50")

        watching, polling = asyncio.create_task(watch()), asyncio.create_task(poll())
        while len(found) < 2:
            await asyncio.sleep(0.02)
        began = time.monotonic()
        assert await asyncio.to_thread(there.terminate) == 0
        assert time.monotonic() - began < 5
        await watching
        assert "retry: 200" in comments[-1]
        assert all(event.event != "end" for event in found)
        answer = await polling
        assert (answer.status_code, answer.json()["status"]) == (202, "running")
        await writer.to(Status.COMPLETED)


async def test_serve_leaves_signals_to_a_caller_that_stops_it_itself(settings: BrokerSettings, tmp_path: Path) -> None:
    stop, urls = asyncio.Event(), list[str]()
    own = GatewaySettings(port=0, projection=tmp_path / "p.db")
    serving = asyncio.create_task(serve(own, settings, stop=stop, ready=urls.append))
    while not urls:
        await asyncio.sleep(0.01)
    async with httpx.AsyncClient(base_url=urls[0]) as client:
        assert (await client.get("/healthz")).status_code == 200
    stop.set()
    await asyncio.wait_for(serving, 10)


async def test_a_port_that_is_taken_is_an_error_that_says_so(settings: BrokerSettings, tmp_path: Path) -> None:
    with gateway(settings, tmp_path / "p.db", ready=False) as there:
        with pytest.raises(InvalidInput, match=f"cannot listen on 127.0.0.1 port {there.port}"):
            await serve(GatewaySettings(port=there.port), settings, stop=asyncio.Event())
        environment = {"CALLBOARD_PORT": str(there.port), "PATH": ""}
        ended = subprocess.run(
            [sys.executable, "-m", "callboard.gateway"], env=environment, capture_output=True, text=True, timeout=20
        )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "choose another port" in ended.stderr
