"""The state folder of a nats-server: one server at a time, found again after its owner died."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from ..topics.errors import BrokerError
from .nats_mark import ProcessMark

POLL_SECONDS = 0.02


class StateFolderInUse(BrokerError):
    """Another process serves this state folder. Facts: `folder`, `owner_pid`, `server_pid`, `url` (None: unknown)."""

    code = "state_folder_in_use"


@dataclass(frozen=True, slots=True)
class Record:
    """Who serves a folder: the owner that asked for the server, its keeper, the server itself, and where it listens."""

    owner: ProcessMark
    keeper: ProcessMark
    server: ProcessMark
    url: str


class StateFolder:
    """The files of one server, and the lock that keeps a second one out.

    The lock is an open file handed down to the server: it is free exactly when neither the owner, nor the keeper, nor
    the server holds it. The record beside it only tells whom a busy lock belongs to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.config = self.path / "nats-server.conf"
        self.pid_file = self.path / "server.pid"
        self.errors = self.path / "nats-server.err"
        self.log = self.path / "nats-server.log"
        self._record = self.path / "server.json"
        self._port = self.path / "port"
        self._lock: int | None = None

    def acquire(self, patience: timedelta) -> int:
        """Take the lock and return its file descriptor, which the server must inherit; a lock held already is kept.

        A server whose owner is dead is given `patience` to finish the stop that its keeper began, then it is ended.

        Raises:
            StateFolderInUse: the owner is alive, or the leftover server could not be ended.
        """
        if self._lock is not None:
            return self._lock
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._take(descriptor, patience)
        except BaseException:
            os.close(descriptor)
            raise
        self._lock = descriptor
        return descriptor

    def _take(self, descriptor: int, patience: timedelta) -> None:
        if _locked(descriptor):
            return
        record = self.record()
        if record is not None and record.owner.alive:
            raise self._in_use(record)
        if _locked_within(descriptor, patience):
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            for leftover in (record.server, record.keeper) if record is not None else ():
                leftover.signal(number)
            if _locked_within(descriptor, patience):
                return
        raise self._in_use(self.record())

    def release(self) -> None:
        """Give the lock back; the folder is free when the server has ended too."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def record(self) -> Record | None:
        """Return who served the folder last; None when nobody did or the record cannot be read."""
        try:
            raw = json.loads(self._record.read_text())
            marks = {role: ProcessMark(**raw[role]) for role in ("owner", "keeper", "server")}
            return Record(**marks, url=str(raw["url"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write_record(self, record: Record, port: int) -> None:
        """Note who serves the folder from now on, and the port for the next start."""
        for path, text in ((self._record, json.dumps(asdict(record))), (self._port, str(port))):
            draft = path.with_name(path.name + ".draft")
            draft.write_text(text)
            draft.replace(path)

    def last_port(self) -> int | None:
        """Return the client port of the last start here."""
        try:
            return int(self._port.read_text())
        except (OSError, ValueError):
            return None

    def forget_start(self) -> None:
        """Remove what an earlier start left that a new one must not mistake for its own."""
        self.pid_file.unlink(missing_ok=True)
        for ports in self.path.glob("*.ports"):
            ports.unlink(missing_ok=True)

    def _in_use(self, record: Record | None) -> StateFolderInUse:
        who = "by a process that left no record"
        if record is not None:
            who = f"by process {record.owner.pid}; its server at {record.url} is process {record.server.pid}"
        return StateFolderInUse(
            f"{self.path} is in use {who}: stop that one, choose another state folder, or set NATS_URL to its server",
            folder=str(self.path),
            owner_pid=record.owner.pid if record else None,
            server_pid=record.server.pid if record else None,
            url=record.url if record else None,
        )


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locked_within(descriptor: int, patience: timedelta) -> bool:
    deadline = time.monotonic() + patience.total_seconds()
    while not (got := _locked(descriptor)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return got
