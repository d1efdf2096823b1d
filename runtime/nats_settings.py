"""What an embedded nats-server is told: its settings and the configuration file that follows from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

from ..topics.errors import InvalidInput

DEFAULT_MAX_PAYLOAD_BYTES = 1024 * 1024
# The server refuses a max_payload above what it may hold back for one slow client; its own default for that is 64 MiB.
DEFAULT_MAX_PENDING_BYTES = 64 * 1024 * 1024
LOG_SIZE_LIMIT_BYTES = 16 * 1024 * 1024
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of one nats-server; it listens on 127.0.0.1 only.

    Where `config_file` is given, the server is started from it with `environment` for its `$VARIABLES`, and the other
    fields but `name` and `port` are not used: those two must then be what the file comes to.
    """

    name: str = "callboard"
    port: int | None = None
    """Client port; None: the port of the last start in the same folder, else a free one below the ephemeral range."""
    sync_interval: timedelta | Literal["always"] | None = None
    """When the store is synced to disk: None is the server's default (2 minutes), "always" before each ack.
    A killed process loses nothing acknowledged in either case; a power loss may lose what was not synced."""
    max_payload_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES
    max_store_bytes: int | None = None
    """Upper limit of the JetStream file store; None: the server's default, three quarters of the free disk."""
    monitor_port: int | None = None
    """Port of the HTTP monitoring endpoints; None: none."""
    config_file: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def render(self, folder: Path, port: int) -> str:
        """Return the text of the configuration file of a server that keeps its state in `folder`.

        Raises:
            InvalidInput: a value that a configuration file cannot express.
        """
        self._check()
        lines = [
            f"server_name: {_quoted(self.name)}",
            f"listen: {_quoted(f'{LOOPBACK}:{port}')}",
            f"log_file: {_quoted(str(folder / 'nats-server.log'))}",
            f"logfile_size_limit: {LOG_SIZE_LIMIT_BYTES}",
            "logfile_max_num: 2",
            f"max_payload: {self.max_payload_bytes}",
            f"max_pending: {max(DEFAULT_MAX_PENDING_BYTES, 2 * self.max_payload_bytes)}",
            "jetstream {",
            f"  store_dir: {_quoted(str(folder))}",
        ]
        if self.sync_interval is not None:
            lines.append(f"  sync_interval: {_duration(self.sync_interval)}")
        if self.max_store_bytes is not None:
            lines.append(f"  max_file_store: {self.max_store_bytes}")
        lines.append("}")
        if self.monitor_port is not None:
            lines.append(f"http: {_quoted(f'{LOOPBACK}:{self.monitor_port}')}")
        return "\n".join(lines) + "\n"

    def _check(self) -> None:
        if self.max_payload_bytes < 1:
            raise InvalidInput(f"max_payload_bytes is {self.max_payload_bytes}; it must be 1 or more")
        if isinstance(self.sync_interval, timedelta) and self.sync_interval <= timedelta(0):
            raise InvalidInput(f'sync_interval is {self.sync_interval}; give more than 0, or "always"')


def _duration(value: timedelta | Literal["always"]) -> str:
    return "always" if value == "always" else _quoted(f"{round(value.total_seconds() * 1000)}ms")


def _quoted(text: str) -> str:
    """Return a string as the configuration language quotes it; inside the quotes `$` and `#` mean nothing special."""
    if not text.isprintable():
        raise InvalidInput(f"{text!r} has a control character and cannot stand in a nats-server configuration file")
    return json.dumps(text, ensure_ascii=False)
