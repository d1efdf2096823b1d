"""What a chaos run plays on: three nats-servers behind proxies, two coordinators, two gateways, three workers, all as
processes. Stops what it has started, and nothing else."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from callboard.runtime.nats_port import LOOPBACK, free_ports
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import CallboardError
from callboard.topics.ids import new_token
from callboard.topics.streams import ensure_streams
from tests.chaos.proxy import Proxy
from tests.support import nats

CALLBOARD = Path(sys.executable).with_name("callboard")
AGENTS = [str(Path(__file__).with_name(name)) for name in ("agents.py", "thinkers.py")]
LEASE_S = 2.0
CANCEL_GRACE_S = 4.0
COORDINATORS, GATEWAYS, WORKERS = 2, 2, 3
READY_S = 180.0
_LINE_CHARS = 300
UP_S, START_S = 3.0, 12.0
READY = " on NATS "


@dataclass
class Slot:
    """The place of one process, whichever process fills it."""

    role: str
    name: str
    arguments: tuple[str, ...]
    process: subprocess.Popen[bytes] | None = None
    paused: bool = False
    port: int = 0
    log: Path = Path()
    started: float = 0.0
    logged: int = 0
    """How long the log was when the process was started."""

    @property
    def runs(self) -> bool:
        """Whether a process is there and goes on."""
        return self.process is not None and self.process.poll() is None and not self.paused

    @property
    def settled(self) -> bool:
        """Whether the process has been up for a while: one that is always starting proves nothing. One that does not
        come up counts as well, after a longer while."""
        up_s = time.monotonic() - self.started
        return up_s > START_S or (up_s > UP_S and READY in self.said)

    @property
    def said(self) -> str:
        """What the process has printed."""
        with self.log.open("rb") as file:
            file.seek(self.logged)
            return file.read().decode(errors="replace")


@dataclass
class Stage:
    """All of it. `open()` first, `close()` last, whatever happens between."""

    folder: Path
    slots: dict[str, Slot] = field(default_factory=dict)
    proxies: list[Proxy] = field(default_factory=list)
    died: list[str] = field(default_factory=list)
    """Processes that ended by themselves."""

    def __post_init__(self) -> None:
        self.namespace = f"c{new_token(6)}"
        self.effects_file = self.folder / "effects.txt"
        self.cluster = nats.Cluster(self.folder / "nats")
        self.server_turn = asyncio.Lock()
        """Held while a server is away: one at a time, so that two of three always go on."""

    @property
    def broker(self) -> BrokerSettings:
        """Past the proxies, straight to the servers."""
        return BrokerSettings(nats_url=self.cluster.url, namespace=self.namespace, replicas=3)

    @property
    def proxied(self) -> BrokerSettings:
        """By way of the proxies, as every role connects."""
        urls = ",".join(f"nats://{LOOPBACK}:{proxy.port}" for proxy in self.proxies)
        return BrokerSettings(nats_url=urls, namespace=self.namespace, replicas=3)

    @property
    def gateways(self) -> list[str]:
        """Where the gateways listen."""
        return [f"http://{LOOPBACK}:{slot.port}" for slot in self.slots.values() if slot.role == "gateway"]

    # -- life ---------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Starts everything, and waits until all of it answers."""
        self._route_clients_through_proxies()
        for proxy in self.proxies:
            await proxy.start()
        await asyncio.to_thread(self.cluster.start)
        bus = await Bus.connect(self.broker)
        try:
            await ensure_streams(bus, self.broker)
            self._declare()
            for slot in self.slots.values():
                self.start(slot)
            await self._ready(bus)
        finally:
            await bus.close()

    def _route_clients_through_proxies(self) -> None:
        """Servers tell clients about each other: here by the ports of the proxies."""
        for node, port in zip(self.cluster.nodes, free_ports(len(self.cluster.nodes)), strict=True):
            assert node.settings.port is not None
            self.proxies.append(Proxy(port, node.settings.port))
            config = self.folder / f"{node.settings.name}.conf"
            config.write_text(f'client_advertise: "{LOOPBACK}:{port}"\n{nats.CONFIG.read_text()}')
            node.settings = dataclasses.replace(node.settings, config_file=config)

    def _declare(self) -> None:
        for index in range(COORDINATORS):
            self._slot("coordinator", index)
        for index in range(WORKERS):
            self._slot("worker", index, *AGENTS, "--concurrency", "4")
        for index, port in enumerate(free_ports(GATEWAYS)):
            file = self.folder / f"projection-{index}.db"
            self._slot("gateway", index, "--port", str(port), "--projection", str(file)).port = port

    def _slot(self, role: str, index: int, *arguments: str) -> Slot:
        slot = Slot(role, f"{role}-{index}", arguments)
        self.slots[slot.name] = slot
        return slot

    async def close(self) -> None:
        """Stops everything that was started here."""
        for proxy in self.proxies:
            proxy.heal()
        processes = [slot.process for slot in self.slots.values() if slot.process is not None]
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        await asyncio.to_thread(_reap, processes)
        for proxy in self.proxies:
            await proxy.close()
        await asyncio.to_thread(self._stop_servers)

    def _stop_servers(self) -> None:
        for node in self.cluster.nodes:
            if node.pid is not None and node.running:
                os.kill(node.pid, signal.SIGCONT)
        self.cluster.stop()

    # -- processes ----------------------------------------------------------------------------------------------

    def start(self, slot: Slot) -> None:
        """Fills a slot. The process ends when this one does: it holds the other end of its standard input."""
        own = {
            "NATS_URL": self.proxied.nats_url,
            "CALLBOARD_NAMESPACE": self.namespace,
            "CALLBOARD_REPLICAS": "3",
            "CALLBOARD_LEASE_S": f"{LEASE_S:g}",
            "CALLBOARD_CANCEL_GRACE_S": f"{CANCEL_GRACE_S:g}",
            "EFFECTS_FILE": str(self.effects_file),
        }
        command = [str(CALLBOARD), slot.role, *slot.arguments, "--end-with-stdin"]
        slot.log = self.folder / f"{slot.name}.log"
        with slot.log.open("ab") as log:
            log.write(f"--- started {time.strftime('%H:%M:%S')}\n".encode())
            log.flush()
            slot.logged = log.tell()
            slot.process = subprocess.Popen(
                command, env=os.environ | own, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.folder
            )
        slot.paused, slot.started = False, time.monotonic()

    def kill(self, slot: Slot) -> None:
        """SIGKILL."""
        assert slot.process is not None
        self._note_own_end(slot)
        slot.process.kill()
        _closed(slot.process)
        slot.process, slot.paused = None, False

    def _note_own_end(self, slot: Slot) -> None:
        code = None if slot.process is None else slot.process.poll()
        if code is not None:
            last = slot.said.strip().rpartition("\n")[2]
            self.died.append(f"{slot.name} ended by itself with {code}: {last[:_LINE_CHARS]}")

    def pause(self, slot: Slot) -> None:
        """SIGSTOP."""
        assert slot.process is not None
        slot.process.send_signal(signal.SIGSTOP)
        slot.paused = True

    def go_on(self, slot: Slot) -> None:
        """SIGCONT."""
        if slot.process is not None and slot.paused:
            slot.process.send_signal(signal.SIGCONT)
        slot.paused = False

    # -- the end ------------------------------------------------------------------------------------------------

    async def heal(self) -> None:
        """Everything is there and goes on. Call it when no fault is under way."""
        for proxy in self.proxies:
            proxy.heal()
        for slot in self.slots.values():
            self.go_on(slot)
            if slot.process is None or slot.process.poll() is not None:
                if slot.process is not None:
                    self._note_own_end(slot)
                    _closed(slot.process)
                self.start(slot)
        await asyncio.to_thread(self._servers_back)
        bus = await Bus.connect(self.broker)
        try:
            await self._ready(bus)
        finally:
            await bus.close()

    def _servers_back(self) -> None:
        for node in self.cluster.nodes:
            if not node.running:
                node.start()
        self.cluster.wait_formed()

    async def _ready(self, bus: Bus) -> None:
        deadline = time.monotonic() + READY_S
        while True:
            try:
                answers = await bus.gather(bus.subjects.worker, wait_s=0.5)
            except CallboardError:
                answers = []
            beats = [msgspec.json.decode(answer.data) for answer in answers]
            here = (
                sum("coordinator" in beat.get("actors", ()) for beat in beats),
                sum(bool(beat.get("agents")) for beat in beats),
            )
            if here[0] >= COORDINATORS and here[1] >= WORKERS:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"{here} coordinators and workers came up; logs in {self.folder}")
            await asyncio.sleep(0.2)


def _closed(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _reap(processes: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + 15
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
        _closed(process)


def dump(data: object, path: Path) -> None:
    """Writes a JSON file for people."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2, default=str) + "\n")
