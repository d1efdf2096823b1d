"""Processes that are born with everything loaded: one process a test session imports the roles, and forks for each.

What is tested of a role is what it does once it runs; that it can be started as people start it is what tests/cli,
tests/compose and tests/examples are for. To load a role takes a processor the better part of a second, which hundreds
of starts would pay; a fork takes milliseconds. Everything else is as with a process that was started by its name: its
own environment, folder and output, the same main function, the same end. All of them are killed when the session ends.

Run as a program this file is the nursery itself; it ends when its standard input does.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_LARGEST_ORDER = 1 << 17
_LOADED = (
    "callboard.cli.app", "callboard.cli.hosting", "callboard.actors.coordinator", "callboard.actors.webhooks",
    "callboard.actors.worker", "callboard.actors.projector", "callboard.actors.graph", "callboard.gateway.server",
    "callboard.gateway.app", "callboard.cli.loading", "opentelemetry.sdk.trace.export",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
)  # fmt: skip
_REAL = not hasattr(os, "pidfd_open")  # where there are none of these, every process is started by its name


class Born:
    """A process of the nursery, with what one needs of `subprocess.Popen`."""

    def __init__(self, words: Sequence[str], link: socket.socket) -> None:
        self.args, self._link = list(words), link
        self.pid = int(link.recv(64))
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative after a signal. Raises TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._link], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._link.recv(64) or -signal.SIGKILL)
            self._link.close()
        return self.returncode

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Sends a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


Process = Born | subprocess.Popen[bytes]


def started(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: Path | None = None,
    output: IO[bytes] | None = None,
    errors: IO[bytes] | None = None,
) -> Process:
    """A new process that loads everything itself."""
    return subprocess.Popen(command, env=env, cwd=cwd, stdout=output, stderr=errors or output)


def born(
    words: Sequence[str],
    env: Mapping[str, str],
    cwd: Path | None = None,
    output: IO[bytes] | None = None,
    errors: IO[bytes] | None = None,
) -> Process:
    """A new process of `python *words`, where words are `-m`, a module and its arguments; or a file and its. Without
    `output` it prints where the test does, and without `errors` it prints those there too."""
    if _REAL:
        return started([sys.executable, *words], env, cwd, output, errors)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    order = json.dumps({"words": list(words), "env": dict(env), "cwd": str(cwd or Path.cwd())}).encode()
    assert len(order) < _LARGEST_ORDER
    with theirs:
        out = output.fileno() if output else 2
        socket.send_fds(_nursery(), [order], [theirs.fileno(), out, errors.fileno() if errors else out])
    return Born(words, mine)


@functools.cache
def _nursery() -> socket.socket:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen([sys.executable, "-P", __file__], stdin=theirs.fileno(), stdout=subprocess.DEVNULL)

    def end() -> None:
        mine.close()
        process.wait(10)

    atexit.register(end)
    return mine


# -- the nursery itself -----------------------------------------------------------------------------------------


class Nursery:
    """Forks as it is told, and tells how each child ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, tuple[int, socket.socket]] = {}
        """By the descriptor that says when one has ended: its pid, and whom to tell."""

    def serve(self) -> dict[str, Any] | None:
        """Returns in each child, with its order; and in the nursery in the end, with None."""
        while True:
            poll = select.poll()
            for descriptor in (self._control.fileno(), *self._children):
                poll.register(descriptor, select.POLLIN)
            for descriptor, _ in poll.poll():
                if descriptor in self._children:
                    self._ended(descriptor)
                elif order := self._order():
                    return order
                elif order is None:
                    self._end()
                    return None

    def _order(self) -> dict[str, Any] | None:
        """In a child its order; in the nursery nothing to do, or None when there will be no more."""
        data, descriptors, _, _ = socket.recv_fds(self._control, _LARGEST_ORDER, 3)
        if not data:
            return None
        link, *outputs = descriptors
        pid = os.fork()
        if not pid:
            os.close(link)
            self._forget()
            return {**json.loads(data), "outputs": outputs}
        for descriptor in outputs:
            os.close(descriptor)
        told = socket.socket(fileno=link)
        told.send(str(pid).encode())
        self._children[os.pidfd_open(pid)] = pid, told
        return {}

    def _ended(self, descriptor: int) -> None:
        pid, told = self._children.pop(descriptor)
        os.close(descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with told, contextlib.suppress(OSError):  # whoever started it has gone
            told.send(str(code).encode())

    def _forget(self) -> None:
        """A child keeps nothing of the nursery's."""
        self._control.close()
        for descriptor, (_, told) in self._children.items():
            os.close(descriptor)
            told.close()

    def _end(self) -> None:
        for pid, _ in self._children.values():
            os.kill(pid, signal.SIGKILL)
        for descriptor in list(self._children):
            self._ended(descriptor)


def become(order: dict[str, Any]) -> None:
    """Is the process that was ordered."""
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.path[:0] = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    for standard, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), *order["outputs"])):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    importlib.reload(importlib.import_module("callboard.topics.crash"))  # reads the environment when it is loaded
    words = order["words"]
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def main() -> None:
    """Loads, and serves."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in _LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=os.dup(0)) as control:
        order = Nursery(control).serve()
    if order is not None:
        become(order)


if __name__ == "__main__":
    main()
