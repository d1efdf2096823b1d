"""A whole installation for tests: real processes of every role against a real server, killed and restarted at will."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec

from callboard.runtime.nats_port import free_ports
from callboard.store.blobs import Blobs
from callboard.store.submit import Submitter
from callboard.topics.bus import Bus
from callboard.topics.client import Message
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import CallboardError
from callboard.topics.ids import new_token
from callboard.topics.messages import RunRecord, TaskRequest
from callboard.topics.streams import ensure_streams
from tests.support.nursery import Process, born, started

CALLBOARD = Path(sys.executable).with_name("callboard")
AGENTS = Path(__file__).parents[1] / "system" / "agents.py"
READY_S = 30.0
ASK_S = 0.3
_NOBODY = 503


class System:
    """Processes by name. `start("coordinator")`, `start("worker", concurrency=4)`, `kill(name)`, `stop(name)`."""

    def __init__(self, url: str, folder: Path, replicas: int = 1) -> None:
        self.settings = BrokerSettings(nats_url=url, namespace=f"s{new_token(6)}", replicas=replicas)
        self.folder = folder
        self.processes: dict[str, Process] = {}
        self.bus: Bus
        self.submitter: Submitter
        self._count = 0

    async def connect(self) -> None:
        """The test's own connection, with all streams declared."""
        self.bus = await Bus.connect(self.settings)
        try:
            await ensure_streams(self.bus, self.settings)
        except BaseException:
            await self.bus.close()
            raise
        self.submitter = Submitter(self.bus, Blobs(self.bus))

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of every process."""
        own = {
            "NATS_URL": self.settings.nats_url,
            "CALLBOARD_NAMESPACE": self.settings.namespace,
            "CALLBOARD_REPLICAS": str(self.settings.replicas),
            "EFFECTS_FILE": str(self.folder / "effects.txt"),
        }
        return os.environ | own | more

    def start(self, role: str, *arguments: str, **environment: str) -> str:
        """Gives birth to a process (tests/support/nursery.py); its name. A worker serves `tests/system/agents.py`."""
        return self._start(born, ["-m", "callboard.cli"], role, arguments, environment)

    def start_afresh(self, role: str, *arguments: str, **environment: str) -> str:
        """As `start`, but loaded from the disk, for what is tested of the start itself."""
        return self._start(started, [str(CALLBOARD)], role, arguments, environment)

    def _start(
        self,
        way: Callable[..., Process],
        command: list[str],
        role: str,
        arguments: tuple[str, ...],
        more: dict[str, str],
    ) -> str:
        self._count += 1
        name = f"{role}-{self._count}"
        words = [*command, role, *([str(AGENTS)] if role == "worker" else []), *arguments]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = way(words, self.environment(**more), self.folder, log)
        return name

    async def ready(self, coordinators: int = 1, workers: int = 1) -> None:
        """Waits until so many hosts of each kind answer."""
        deadline = time.monotonic() + READY_S

        def count(beats: list[dict[str, Any]]) -> tuple[int, int]:
            return (
                sum("coordinator" in beat.get("actors", ()) for beat in beats),
                sum(bool(beat.get("agents")) for beat in beats),
            )

        def enough(beats: list[dict[str, Any]]) -> bool:
            return count(beats)[0] >= coordinators and count(beats)[1] >= workers

        while not enough(found := await self.beats(enough)):
            assert time.monotonic() < deadline, f"{count(found)} of {(coordinators, workers)} came up\n{self.logs()}"
            await asyncio.sleep(0.02)

    async def beats(self, enough: Callable[[list[dict[str, Any]]], bool] = lambda _: False) -> list[dict[str, Any]]:
        """What the hosts say of themselves that answer within a moment, or until they are enough."""
        found: list[dict[str, Any]] = []
        over = asyncio.Event()

        def collect(message: Message | None) -> None:
            if message is not None and message.status != _NOBODY:
                found.append(msgspec.json.decode(message.data))
            if message is None or message.status == _NOBODY or enough(found):
                over.set()

        with suppress(CallboardError, TimeoutError):
            async with self.bus.call(self.bus.subjects.worker, b"", None, collect):
                await asyncio.wait_for(over.wait(), ASK_S)
        return found

    async def command(self, *words: str, within_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Runs `callboard` with these words to its end."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = born(["-m", "callboard.cli", *words], self.environment(), output=out, errors=err)
            code = await asyncio.to_thread(process.wait, within_s)
            texts = [os.pread(file.fileno(), 1 << 24, 0).decode() for file in (out, err)]
        return subprocess.CompletedProcess(words, code, *texts)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def pause(self, name: str) -> None:
        """SIGSTOP: the process stands still."""
        self.processes[name].send_signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """SIGCONT."""
        self.processes[name].send_signal(signal.SIGCONT)

    def stop(self, name: str, within_s: float = 20.0) -> int:
        """SIGTERM; the exit code."""
        process = self.processes.pop(name)
        process.terminate()
        try:
            return process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{name} did not end within {within_s:g} s\n{self.log(name)}") from None

    def log(self, name: str) -> str:
        """What a process has printed."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def logs(self) -> str:
        """What all have printed, the last lines of each."""
        files = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')[-2000:]}" for file in files)

    def effects(self) -> list[str]:
        """The lines that steps have written outside: one for each execution."""
        file = self.folder / "effects.txt"
        return file.read_text().splitlines() if file.exists() else []

    async def submit(self, agent: str, value: Any = None, **options: Any) -> str:
        """Submits a run; its id."""
        request = TaskRequest(agent=agent, **options)
        reply = await self.submitter.submit(request, msgspec.json.encode(value), patience_s=30)
        assert reply.run is not None
        return reply.run

    async def finished(self, run: str, within_s: float = 30.0) -> RunRecord:
        """The record of a run that has ended by then."""
        record = await self.submitter.wait(run, within_s)
        assert record.terminal, f"run {run} is {record.status} ({record.reason}) after {within_s:g} s\n{self.logs()}"
        return record

    async def close(self) -> None:
        """Ends everything."""
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        deadline = time.monotonic() + 15
        for process in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        await self.bus.close()


@asynccontextmanager
async def system(url: str, folder: Path, replicas: int = 1) -> AsyncIterator[System]:
    """An installation that ends with the block."""
    found = System(url, folder, replicas)
    await found.connect()
    try:
        yield found
    finally:
        await found.close()


async def serving(http: httpx.AsyncClient) -> None:
    """Waits until the gateway serves requests: it answers a moment before it is connected."""
    try:
        async with asyncio.timeout(READY_S):
            while True:
                with suppress(httpx.TransportError):
                    if (await http.get("/readyz")).status_code == 200:
                        return
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"the gateway at {http.base_url} is not ready after {READY_S:g} s") from None


def free_port() -> int:
    """A free port for a gateway."""
    return free_ports(1)[0]


def result(record: RunRecord) -> Any:
    """The value of a small result."""
    assert record.result is not None, record
    assert isinstance(record.result.json, msgspec.Raw), record
    return msgspec.json.decode(record.result.json)
