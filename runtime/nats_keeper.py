"""Keeps one server process: starts it, and stops it when asked or when the process that asked for it is gone.

Run as a plain script, `python -I nats_keeper.py PID_FILE GRACE_SECONDS COMMAND…`, with the standard library alone, so
that it starts in tens of milliseconds. It stands between the owner and the server because the alternatives are weaker:
the kernel's parent-death signal follows the *thread* that started the child and exists on Linux alone, and a server
that is a direct child is told nothing when its owner is killed with SIGKILL.

Standard input is the owner's lifeline: nobody writes to it, and its end means that the owner is gone. As a second
sign the parent's pid is looked at once a second, because a fork of the owner may hold the lifeline open.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import FrameType

PARENT_POLL_SECONDS = 1.0
PR_SET_PDEATHSIG = 1


class StopRequest:
    """Whether SIGTERM or SIGINT came, and a socket that becomes readable with each signal."""

    def __init__(self) -> None:
        self.asked = False
        self.readable, self._writable = socket.socketpair()
        self._writable.setblocking(False)
        signal.set_wakeup_fd(self._writable.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)
        for number in (signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, self._note)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        """Only wake the wait; the loop looks at the child itself."""


def die_with_parent() -> None:
    """Ask Linux to kill this process when the keeper dies; elsewhere the state folder's lock reveals a leftover."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def keep(server: subprocess.Popen[bytes], stop: StopRequest, owner: int) -> None:
    """Return when the server has ended by itself, a stop was asked for, or the owner is gone."""
    while server.poll() is None and not stop.asked and os.getppid() == owner:
        readable, _, _ = select.select([sys.stdin, stop.readable], [], [], PARENT_POLL_SECONDS)
        if stop.readable in readable:
            stop.readable.recv(4096)
        if sys.stdin in readable and not os.read(sys.stdin.fileno(), 4096):
            return


def end(server: subprocess.Popen[bytes], grace_seconds: float) -> int:
    """Stop the server, at first politely, and return its exit code as a shell would show it."""
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            server.kill()
    code = server.wait()
    return code if code >= 0 else 128 - code


def main(arguments: list[str]) -> int:
    """Start the command, write its pid, keep it, end it."""
    pid_file, grace_seconds, command = Path(arguments[0]), float(arguments[1]), arguments[2:]
    owner = os.getppid()
    stop = StopRequest()
    # close_fds=False hands the lock of the state folder down: whoever still serves the folder holds the lock.
    # preexec_fn is safe here because this process has one thread.
    server = subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        close_fds=False,
        preexec_fn=die_with_parent,  # noqa: PLW1509
    )
    draft = pid_file.with_suffix(".draft")
    draft.write_text(str(server.pid))
    draft.replace(pid_file)
    keep(server, stop, owner)
    return end(server, grace_seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
