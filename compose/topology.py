"""What the cluster consists of when it runs as plain processes: one entry a process, in the order of their start."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

HERE = Path(__file__).resolve().parent
LOOPBACK = "127.0.0.1"
COUNTS = {"coordinator": 2, "worker": 3, "gateway": 2}
SERVERS = 3
MAX_PAYLOAD_BYTES = 1024 * 1024

Kind = Literal["nats", "otel-collector", "coordinator", "worker", "gateway"]
# Everything stands on what is started before it; stopped in the reverse order.
TIERS: tuple[tuple[Kind, ...], ...] = (
    ("nats",),
    ("otel-collector",),
    ("coordinator", "worker", "gateway"),
)


@dataclass(frozen=True, slots=True)
class Ports:
    """The TCP ports of the cluster on loopback."""

    clients: tuple[int, ...] = (4222, 4223, 4224)
    routes: tuple[int, ...] = (6222, 6223, 6224)
    monitors: tuple[int, ...] = (8222, 8223, 8224)
    gateways: tuple[int, ...] = (8700, 8701)
    traces: int = 4318
    traces_health: int = 13133

    @classmethod
    def block(cls, base: int) -> Ports:
        """Return ports that lie together: `base` and the twelve after it."""
        return cls(
            clients=tuple(range(base, base + 3)),
            routes=tuple(range(base + 3, base + 6)),
            monitors=tuple(range(base + 6, base + 9)),
            gateways=tuple(range(base + 9, base + 11)),
            traces=base + 11,
            traces_health=base + 12,
        )


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the cluster."""

    name: str
    kind: Kind
    command: tuple[str, ...]
    environment: dict[str, str]
    url: str = ""
    health: str = ""
    """An address that answers 200 when the process is ready; "" when readiness is seen at the broker."""
    ports: tuple[int, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Topology:
    """The cluster: its processes and where its broker is."""

    processes: tuple[Process, ...]
    ports: Ports

    @property
    def nats_url(self) -> str:
        """The value for `NATS_URL`."""
        return ",".join(f"nats://{LOOPBACK}:{port}" for port in self.ports.clients)

    def tier(self, kinds: tuple[Kind, ...]) -> list[Process]:
        """Return the processes of some kinds."""
        return [process for process in self.processes if process.kind in kinds]


def plan(state: Path, ports: Ports, module: str, concurrency: int, nats_server: str) -> Topology:
    """Return the cluster with its data under `state`.

    The telemetry collector is a part of it where a binary `otelcol` is on PATH; without it no traces are sent.
    """
    otelcol = shutil.which("otelcol")
    servers = [_server(index, state, ports, nats_server) for index in range(SERVERS)]
    collector = [] if otelcol is None else [_collector(otelcol, ports)]
    environment = {
        "NATS_URL": ",".join(server.url for server in servers),
        "CALLBOARD_REPLICAS": str(SERVERS),
        "PYTHONPATH": str(HERE),
    }
    if collector:
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://{LOOPBACK}:{ports.traces}"
    return Topology((*servers, *collector, *_roles(environment, ports, module, concurrency)), ports)


def _server(index: int, state: Path, ports: Ports, binary: str) -> Process:
    name = f"nats-{index + 1}"
    routes = ", ".join(f'"nats://{LOOPBACK}:{port}"' for port in ports.routes)
    environment = {
        "NATS_NAME": name,
        "NATS_LISTEN": f'"{LOOPBACK}:{ports.clients[index]}"',
        "NATS_CLUSTER_LISTEN": f'"{LOOPBACK}:{ports.routes[index]}"',
        "NATS_MONITOR_LISTEN": f'"{LOOPBACK}:{ports.monitors[index]}"',
        "NATS_ROUTES": f"[{routes}]",
        "NATS_STORE": json.dumps(str(state / name), ensure_ascii=False),
        "NATS_SYNC_INTERVAL": '"2m"',
        "NATS_MAX_PAYLOAD": str(MAX_PAYLOAD_BYTES),
    }
    return Process(
        name,
        "nats",
        (binary, "-c", str(HERE / "nats" / "server.conf")),
        environment,
        url=f"nats://{LOOPBACK}:{ports.clients[index]}",
        health=f"http://{LOOPBACK}:{ports.monitors[index]}/healthz",
        ports=(ports.clients[index], ports.routes[index], ports.monitors[index]),
    )


def _collector(binary: str, ports: Ports) -> Process:
    return Process(
        "otel-collector",
        "otel-collector",
        (binary, "--config", str(HERE / "otel" / "collector.yaml")),
        {
            "OTELCOL_LISTEN": f"{LOOPBACK}:{ports.traces}",
            "OTELCOL_HEALTH_LISTEN": f"{LOOPBACK}:{ports.traces_health}",
        },
        url=f"http://{LOOPBACK}:{ports.traces}",
        health=f"http://{LOOPBACK}:{ports.traces_health}",
        ports=(ports.traces, ports.traces_health),
    )


def _roles(environment: dict[str, str], ports: Ports, module: str, concurrency: int) -> list[Process]:
    arguments: dict[Kind, tuple[str, ...]] = {
        "coordinator": ("coordinator",),
        "worker": ("worker", module, "--concurrency", str(concurrency)),
        "gateway": ("gateway",),
    }
    program = _callboard()
    roles = []
    for kind, words in arguments.items():
        for index in range(COUNTS[kind]):
            named = environment | {"OTEL_SERVICE_NAME": f"callboard-{kind}"}
            role = Process(f"{kind}-{index + 1}", kind, (*program, *words), named)
            roles.append(_gateway(role, ports.gateways[index]) if kind == "gateway" else role)
    return roles


def _gateway(role: Process, port: int) -> Process:
    return Process(
        role.name,
        role.kind,
        (*role.command, "--port", str(port)),
        role.environment | {"CALLBOARD_HOST": LOOPBACK},
        url=f"http://{LOOPBACK}:{port}",
        health=f"http://{LOOPBACK}:{port}/readyz",
        ports=(port,),
    )


def _callboard() -> tuple[str, ...]:
    """Return the command of the environment that runs this, whether or not it is activated."""
    beside = Path(sys.executable).with_name("callboard")
    return (str(beside),) if beside.exists() else ("callboard",)
