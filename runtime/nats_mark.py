"""The identity of a process that outlives its pid: the pid together with the moment it was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """A process that can be recognised later, also by another process.

    Pids are used again; a pid with its start time is not. `started` is opaque: compare it, do not read it.
    """

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessMark | None:
        """Return the mark of a process that is running now; None when there is none or only its exit code is left."""
        started = _started_linux(pid) if sys.platform == "linux" else _started_ps(pid)
        return None if started is None else cls(pid, started)

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return ProcessMark.of(self.pid) == self

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to this very process; False when it is gone. A process that took over the pid gets none."""
        if not self.alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def _started_linux(pid: int) -> str | None:
    try:
        # The command name in parentheses may hold spaces and parentheses itself: count from the last one.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    state, ticks = fields[0], fields[19]
    return None if state in {"Z", "X"} else f"{boot}:{ticks}"


def _started_ps(pid: int) -> str | None:
    done = subprocess.run(  # noqa: S603
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    state, _, started = done.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()
