"""Private nats-servers for tests: one server, or a cluster of three on loopback.

The cluster runs from `compose/nats/server.conf`, so what is tested is what is deployed. All servers are children that
end with the test process, however it ends.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from callboard.runtime.nats_port import LOOPBACK, free_ports
from callboard.runtime.nats_server import ServerProcess, ServerSettings

CONFIG = Path(__file__).parents[2] / "compose" / "nats" / "server.conf"
FORM_WITHIN_SECONDS = 30.0
POLL_SECONDS = 0.05


def eventually(condition: Callable[[], bool], within_seconds: float, what: str) -> None:
    """Wait until the condition holds; fail naming `what` when it does not in time."""
    deadline = time.monotonic() + within_seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_seconds:g} s: {what}"
        time.sleep(POLL_SECONDS)


@contextmanager
def private_server(folder: Path, settings: ServerSettings | None = None) -> Iterator[ServerProcess]:
    """Run one nats-server with its own store under `folder`; its `url` is where to connect.

    `server.kill()` ends it as a crash would, `server.start()` brings it back on the same port with the same store.
    """
    server = ServerProcess(folder, settings)
    server.start()
    try:
        yield server
    finally:
        server.kill()  # nobody reads its store any more, and a server with many streams takes seconds to stop


class Cluster:
    """Three nats-servers on loopback with JetStream, so that streams can have 3 replicas."""

    def __init__(self, folder: Path, *, sync_interval: str = "2m", max_payload_bytes: int = 1024 * 1024) -> None:
        ports = free_ports(9)
        clients, routes, self._monitors = ports[:3], ports[3:6], ports[6:]
        route_list = ", ".join(f'"nats://{LOOPBACK}:{port}"' for port in routes)
        self.nodes: list[ServerProcess] = []
        for index, client in enumerate(clients):
            name, store = f"n{index + 1}", folder / f"n{index + 1}"
            environment = {
                "NATS_NAME": name,
                "NATS_LISTEN": f'"{LOOPBACK}:{client}"',
                "NATS_CLUSTER_LISTEN": f'"{LOOPBACK}:{routes[index]}"',
                "NATS_ROUTES": f"[{route_list}]",
                "NATS_MONITOR_LISTEN": f'"{LOOPBACK}:{self._monitors[index]}"',
                "NATS_STORE": json.dumps(str(store.absolute()), ensure_ascii=False),
                "NATS_SYNC_INTERVAL": f'"{sync_interval}"',
                "NATS_MAX_PAYLOAD": str(max_payload_bytes),
            }
            settings = ServerSettings(name=name, port=client, config_file=CONFIG, environment=environment)
            self.nodes.append(ServerProcess(store, settings))

    @property
    def url(self) -> str:
        """The comma-separated list for `NATS_URL`."""
        return ",".join(self.urls)

    @property
    def urls(self) -> list[str]:
        """Where each server listens; known before the start."""
        return [f"nats://{LOOPBACK}:{node.settings.port}" for node in self.nodes]

    def start(self) -> None:
        """Start all servers and wait until JetStream can place three replicas."""
        for node in self.nodes:
            node.begin()
        for node in self.nodes:
            eventually(node.poll, FORM_WITHIN_SECONDS, f"{node.settings.name} is ready")
        self.wait_formed()

    def wait_formed(self) -> None:
        """Wait until all servers that run agree on a leader of JetStream and hold all that they should hold."""
        eventually(self.formed, FORM_WITHIN_SECONDS, "the cluster has a leader and every running server is healthy")

    def formed(self) -> bool:
        """Whether they do."""
        running = [index for index, node in enumerate(self.nodes) if node.running]
        leaders = {self.leader_seen_by(index) for index in running}
        names = {self.nodes[index].settings.name for index in running}
        return len(leaders) == 1 and leaders <= names and all(self.healthy(index) for index in running)

    def leader_seen_by(self, index: int) -> str | None:
        """Return the name of the JetStream meta leader as one server sees it."""
        meta = (self.monitor(index, "jsz") or {}).get("meta_cluster", {})
        return meta.get("leader") if meta.get("cluster_size") == len(self.nodes) else None

    @property
    def leader(self) -> int:
        """Index of the JetStream meta leader."""
        running = next(index for index, node in enumerate(self.nodes) if node.running)
        name = self.leader_seen_by(running)
        return next(index for index, node in enumerate(self.nodes) if node.settings.name == name)

    def healthy(self, index: int) -> bool:
        """Whether the server says that its streams and consumers are up to date."""
        return (self.monitor(index, "healthz") or {}).get("status") == "ok"

    def monitor(self, index: int, endpoint: str) -> dict[str, Any] | None:
        """Return the JSON of one server's monitoring endpoint, None when it does not answer with 200."""
        address = f"http://{LOOPBACK}:{self._monitors[index]}/{endpoint}"
        try:
            with urllib.request.urlopen(address, timeout=2) as answer:
                decoded = json.load(answer)
        except (OSError, ValueError):
            return None
        return decoded if isinstance(decoded, dict) else None

    def kill(self, index: int) -> None:
        """End one server with SIGKILL."""
        self.nodes[index].kill()

    def restart(self, index: int) -> None:
        """Start a server that was killed or stopped, on its port and store, and wait until it has caught up."""
        self.nodes[index].start()
        self.wait_formed()

    def stop(self) -> None:
        """End all servers; their stores are not used again."""
        for node in self.nodes:
            node.kill()


@contextmanager
def private_cluster(folder: Path, **options: Any) -> Iterator[Cluster]:
    """Run a cluster with its stores under `folder`; the options are those of `Cluster`."""
    cluster = Cluster(folder, **options)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
