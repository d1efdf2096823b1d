"""Which processes were started for the cluster: written down at each start, so that exactly these are stopped."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from callboard.runtime.nats_mark import ProcessMark

from .topology import TIERS, Process

POLL_SECONDS = 0.05
# Not passed on: they would make the processes speak to another broker, or as somebody else.
NOT_INHERITED = ("NATS_CREDS", "NATS_TOKEN", "NATS_URL")


class ClusterError(Exception):
    """What keeps the cluster from starting or stopping, for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A process that was started, recognisable after its pid was given to another."""

    name: str
    kind: str
    mark: ProcessMark
    url: str
    log: str


class Ledger:
    """The state folder of the cluster: entries, logs, and a folder for each process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "processes.json"
        self.base_port: int | None = None
        self.entries: list[Entry] = []

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder and read what is in it; a second `up` or `down` on it is refused meanwhile."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise ClusterError(f"another up or down is at work in {self.folder}: wait for it to end") from None
        try:
            self._read()
            yield
        finally:
            os.close(descriptor)

    def _read(self) -> None:
        if not self.file.exists():
            return
        try:
            raw = json.loads(self.file.read_text())
            self.base_port = raw["base_port"]
            self.entries = [Entry(**(entry | {"mark": ProcessMark(**entry["mark"])})) for entry in raw["entries"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ClusterError(
                f"{self.file} cannot be read ({error!r}): look for processes of the cluster yourself, then remove it"
            ) from error

    def write(self) -> None:
        """Store the entries; the file is absent when there are none."""
        if not self.entries:
            self.file.unlink(missing_ok=True)
            return
        draft = self.file.with_suffix(".draft")
        draft.write_text(
            json.dumps({"base_port": self.base_port, "entries": [asdict(e) for e in self.entries]}, indent=1)
        )
        draft.replace(self.file)

    def alive(self) -> dict[str, Entry]:
        """Return the entries whose very process still runs."""
        return {entry.name: entry for entry in self.entries if entry.mark.alive}

    def start(self, process: Process) -> tuple[Entry, subprocess.Popen[bytes]]:
        """Start a process that outlives this one, and write it down before anything else happens."""
        home, log = self.folder / process.name, self.folder / "logs" / f"{process.name}.log"
        for folder in (home, log.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        try:
            with log.open("ab") as output:
                child = subprocess.Popen(
                    process.command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=home,
                    env=inherited | process.environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise ClusterError(f"{process.name} cannot be started: {error}") from error
        mark = ProcessMark.of(child.pid)
        if mark is None:
            raise ClusterError(f"{process.name} ended at once with exit code {child.wait()}; its log: {log}")
        entry = Entry(process.name, process.kind, mark, process.url, str(log))
        self.entries = [other for other in self.entries if other.name != process.name] + [entry]
        self.write()
        return entry, child

    def stop(self, entries: list[Entry], grace_seconds: float) -> list[str]:
        """Stop processes, those that stand on others first, and strike them off; returns the names of those killed.

        Each tier gets `grace_seconds` after SIGTERM, then SIGKILL.

        Raises:
            ClusterError: one still runs 5 s after SIGKILL; it stays in the ledger.
        """
        killed: list[str] = []
        for kinds in reversed(TIERS):
            tier = [entry for entry in entries if entry.kind in kinds]
            late = _signal_and_wait(tier, signal.SIGTERM, grace_seconds)
            stuck = _signal_and_wait(late, signal.SIGKILL, 5)
            killed += [entry.name for entry in late]
            self.entries = [entry for entry in self.entries if entry not in tier or entry in stuck]
            self.write()
            if stuck:
                raise ClusterError(f"{', '.join(entry.name for entry in stuck)} cannot be killed")
        return killed


def _signal_and_wait(entries: list[Entry], number: signal.Signals, seconds: float) -> list[Entry]:
    """Signal all and return those that still run after so long."""
    waiting = [entry for entry in entries if entry.mark.signal(number)]
    deadline = time.monotonic() + seconds
    while waiting and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        waiting = [entry for entry in waiting if entry.mark.alive]
    return waiting
