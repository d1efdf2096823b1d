"""When a part of the cluster is ready, as seen from outside: by HTTP, and by who listens at the broker."""

from __future__ import annotations

import json
import urllib.request
from fnmatch import fnmatchcase
from typing import Any

from .topology import COUNTS, LOOPBACK, SERVERS, Process, Topology

TIMEOUT_SECONDS = 2.0
# What a role subscribes to once it can work (docs: the wire protocol): coordinators answer claims, and each worker
# answers under its own id.
SUBSCRIPTIONS = {"coordinator": "{namespace}.rpc.claim", "worker": "{namespace}.worker.*"}


def answers(address: str) -> bool:
    """Whether an address answers with a success."""
    return _get(address) is not None


def servers_ready(topology: Topology) -> bool:
    """Whether the nats-servers agree on a leader for JetStream, see each other, and are healthy."""
    leaders = set()
    for port, process in zip(topology.ports.monitors, topology.tier(("nats",)), strict=True):
        meta = _json(f"http://{LOOPBACK}:{port}/jsz").get("meta_cluster", {})
        if meta.get("cluster_size") != SERVERS or not answers(process.health):
            return False
        leaders.add(meta.get("leader"))
    return len(leaders) == 1 and None not in leaders and "" not in leaders


def missing_listeners(topology: Topology, namespace: str) -> dict[str, int]:
    """Return how many processes of each role are not yet listening at the broker; empty when all are."""
    connections = [
        connection.get("subscriptions_list") or []
        for port in topology.ports.monitors
        for connection in _json(f"http://{LOOPBACK}:{port}/connz?subs=1&limit=4096").get("connections", [])
    ]
    missing = {}
    for kind, pattern in SUBSCRIPTIONS.items():
        subject = pattern.format(namespace=namespace)
        listening = sum(any(fnmatchcase(each, subject) for each in subjects) for subjects in connections)
        if listening < COUNTS[kind]:
            missing[kind] = COUNTS[kind] - listening
    return missing


def unready(process: Process) -> bool:
    """Whether a process that has a health address does not answer on it yet."""
    return bool(process.health) and not answers(process.health)


def _json(address: str) -> dict[str, Any]:
    body = _get(address)
    decoded = None if body is None else json.loads(body)
    return decoded if isinstance(decoded, dict) else {}


def _get(address: str) -> bytes | None:
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - loopback only
            body = answer.read()
    except (OSError, ValueError):
        return None
    return bytes(body)
