"""TCP ports for servers on loopback."""

from __future__ import annotations

import json
import random
import socket
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"
# Below the range from which kernels pick the port of outgoing connections (Linux 32768, others 49152): a client that
# keeps dialling a dead server's ephemeral port can be given that very port and connect to itself, and the server could
# not come back on it.
LOWEST, HIGHEST = 15000, 32000
ATTEMPTS = 200


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Return different ports that are free now; whoever binds one later must still be ready to find it taken.

    Raises:
        OSError: too few were found in 200 tries.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(range(LOWEST, HIGHEST), ATTEMPTS):
        if len(found) == count:
            break
        if is_free(port):
            found.append(port)
    if len(found) < count:
        raise OSError(f"found {len(found)} of {count} free ports between {LOWEST} and {HIGHEST}")
    return found


def server_info(host: str, port: int, timeout_seconds: float = 1.0) -> dict[str, Any] | None:
    """Return what the nats-server on a port says first (its INFO); None when none answers so in time."""
    try:
        with socket.create_connection((host, port), timeout_seconds) as connection, connection.makefile("rb") as lines:
            verb, _, body = lines.readline(65536).partition(b" ")
            decoded = json.loads(body) if verb == b"INFO" else None
    except (OSError, ValueError):
        return None
    return decoded if isinstance(decoded, dict) else None


def reported_port(ports_file: Path) -> int | None:
    """Return the client port from a server's ports file; None while the file is not there or half written."""
    try:
        urls = json.loads(ports_file.read_text())["nats"]
        return int(str(urls[0]).rpartition(":")[2])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
