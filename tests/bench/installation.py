"""What is measured: a nats-server and one process each of coordinator, worker, and what else is asked for."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from callboard.runtime.nats_port import free_ports
from callboard.runtime.nats_server import EmbeddedServer
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.streams import ensure_streams
from tests.bench.client import Client

CALLBOARD = Path(sys.executable).with_name("callboard")
AGENTS = Path(__file__).with_name("agents.py")
READY_S = 30.0


@dataclass
class Installation:
    """The processes by role, a connection of the client's own, and where the server listens."""

    url: str
    folder: Path
    bus: Bus
    server_pid: int
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    http: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    """Settings of all processes."""

    def memory_kb(self) -> dict[str, int]:
        """Resident memory of each process."""
        pids = {"nats-server": self.server_pid} | {role: process.pid for role, process in self.processes.items()}
        return {role: _resident_kb(pid) for role, pid in pids.items()}

    async def start(self, role: str, *arguments: str) -> None:
        """Starts `callboard …` under the name of its role."""
        environment = os.environ | self.environment | {"NATS_URL": self.url, "CALLBOARD_LOG_LEVEL": "WARNING"}
        log = (self.folder / f"{role}.log").open("wb")
        self.processes[role] = await asyncio.create_subprocess_exec(
            str(CALLBOARD), *arguments, env=environment, stdout=log, stderr=log, cwd=self.folder
        )
        log.close()

    async def start_worker(self, name: str, concurrency: int) -> None:
        """Starts a worker of the measured agents."""
        await self.start(name, "worker", str(AGENTS), "--concurrency", str(concurrency))

    def signal(self, role: str, what: signal.Signals) -> None:
        """Kills, stops or wakes a process."""
        self.processes[role].send_signal(what)

    async def workers(self) -> dict[str, str]:
        """The ids of the workers that are there, by the name of their process."""
        names = {process.pid: name for name, process in self.processes.items()}
        beats = [json.loads(answer.data) for answer in await self.bus.gather("cb.worker", wait_s=0.2)]
        return {names[beat["pid"]]: beat["id"] for beat in beats if beat.get("agents") and beat["pid"] in names}

    async def stop(self, role: str) -> None:
        """Ends one process in order."""
        process = self.processes.pop(role)
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        try:
            async with asyncio.timeout(15):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def ready(self) -> None:
        """Waits until the coordinator and all workers answer."""
        wanted = sum(name.startswith(("coordinator", "worker")) for name in self.processes)
        async with asyncio.timeout(READY_S):
            while True:
                beats = [json.loads(answer.data) for answer in await self.bus.gather("cb.worker", wait_s=0.2)]
                if sum(bool(beat.get("agents")) or "coordinator" in beat["actors"] for beat in beats) >= wanted:
                    return
                await asyncio.sleep(0.05)


@asynccontextmanager
async def installation(
    concurrency: int = 64, *, workers: int = 1, projector: bool = False, gateway: bool = False, **environment: str
) -> AsyncIterator[Installation]:
    """A fresh installation in a temporary folder; everything is gone afterwards. Its workers are called `worker-1` and
    so on; `environment` holds settings of its processes."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="callboard-bench-")))
        server = await stack.enter_async_context(EmbeddedServer(folder / "nats"))
        settings = BrokerSettings(nats_url=server.url)
        bus = await Bus.connect(settings)
        stack.push_async_callback(bus.close)
        await ensure_streams(bus, settings)
        assert server.pid is not None
        found = Installation(server.url, folder, bus, server.pid, environment=environment)
        stack.push_async_callback(_stop_all, found)
        await found.start("coordinator", "coordinator")
        for number in range(workers):
            await found.start_worker(f"worker-{number + 1}", concurrency)
        if projector:
            await found.start("projector", "projector")
        if gateway:
            port = free_ports(1)[0]
            found.http = f"http://127.0.0.1:{port}"
            await found.start("gateway", "gateway", "--port", str(port))
        await found.ready()
        if gateway:
            await _listening(found.http)
        await _warm(found)
        yield found


async def _listening(base: str) -> None:
    parts = urlsplit(base)
    async with asyncio.timeout(READY_S):
        while True:
            try:
                _, writer = await asyncio.open_connection(parts.hostname, parts.port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


async def _warm(found: Installation) -> None:
    client = await Client.open(found.bus)
    async with asyncio.timeout(READY_S):
        await client.finish("trivial", {"n": 1})
    await client.close()


async def _stop_all(found: Installation) -> None:
    for role in reversed(list(found.processes)):
        await found.stop(role)


def _resident_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0
