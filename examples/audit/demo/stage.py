"""The processes of the demo: started, watched, and stopped whatever happens.

Each is a process group of its own, so that Ctrl-C in the terminal reaches the demo alone, which then stops them in
order. Each ends by itself when the demo dies, because its standard input closes then.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from callboard.runtime.nats_server import ServerProcess

from ..executions import VARIABLE
from .errors import DemoError
from .patience import Patience

ROOT = Path(__file__).resolve().parents[3]
AGENTS = "examples.audit.agents"
CONCURRENCY = 4
"""Runs at a time in each worker. Their steps compute, so more would only wait for the processor."""
READY_WITHIN_S = 45.0
GRACE_S = 12.0
LEASE_S = 5
"""A worker that dies between receiving a work message and claiming it is known to nobody; its lease ends then."""
DRAIN_S = 5
TAIL_LINES = 12


class Role:
    """One process of Callboard."""

    def __init__(self, name: str, words: list[str], environment: dict[str, str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name.replace(' ', '-')}.log"
        self._said = self.log.with_suffix(".out")
        self.killed = False
        with self.log.open("wb") as log, self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "callboard.cli", *words, "--end-with-stdin"],
                stdin=subprocess.PIPE, stdout=said, stderr=log, cwd=folder, env=environment, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Its pid, also after its end."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Negative: ended by that signal. None while it runs."""
        return self._process.poll()

    @property
    def greeting(self) -> list[str]:
        """The words of the line by which it says that it is ready; empty before."""
        line, end, _ = self._said.read_text(errors="replace").partition("\n")
        return line.split() if end else []

    def kill(self) -> None:
        """Ends it as a crash would."""
        self.killed = True
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """Asks it to end."""
        if self.exit_code is None:
            self._process.terminate()

    def end(self) -> None:
        """Kills its whole group, if it still runs."""
        if self.exit_code is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])


class Stage:
    """nats-server, a coordinator, a gateway with projector and two workers, within a `with` block."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self.folder = Path(tempfile.mkdtemp(prefix="callboard-demo-"))
        self.executions = self.folder / "executions.jsonl"
        self._server = ServerProcess(self.folder / "nats")
        self.roles: list[Role] = []
        self.workers: dict[str, Role] = {}
        """By the id under which the broker knows them."""
        self.gateway_url = ""

    @property
    def nats_url(self) -> str:
        """Where the broker is."""
        return self._server.url

    @property
    def nats_pid(self) -> int | None:
        """Pid of nats-server."""
        return self._server.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Starts everything, and returns when all is ready. Raises DemoError, Interrupted, CallboardError."""
        self._server.begin()
        while not self._server.poll():
            self._patience.pause(0.02)
        environment = self._environment()
        serve = ["worker", AGENTS, "--concurrency", str(CONCURRENCY)]
        plan = [
            ("coordinator", ["coordinator"]),
            ("gateway", ["gateway", "--host", "127.0.0.1", "--port", "0"]),
            ("worker 1", serve),
            ("worker 2", serve),
        ]
        for name, words in plan:
            self._patience.check()
            self.roles.append(Role(name, words, environment, self.folder))
        self._await_ready()
        self.gateway_url = self.role("gateway").greeting[2]  # gateway at URL on NATS …
        self.workers = {role.greeting[1]: role for role in self.roles if role.name.startswith("worker")}

    def role(self, name: str) -> Role:
        """The process of this name."""
        return next(role for role in self.roles if role.name == name)

    def _environment(self) -> dict[str, str]:
        """The demo's own installation, whatever the shell around it is set up for."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("NATS_", "CALLBOARD_"))}
        path = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
        return environment | {
            "NATS_URL": self._server.url,
            "PYTHONPATH": os.pathsep.join(path),
            "CALLBOARD_PROJECTION": str(self.folder / "projection.db"),
            "CALLBOARD_LEASE_S": str(LEASE_S),
            "CALLBOARD_GRACE_S": str(DRAIN_S),
            VARIABLE: str(self.executions),
        }

    def _await_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while lacking := [role for role in self.roles if not role.greeting]:
            self.check()
            if time.monotonic() > deadline:
                names = ", ".join(role.name for role in lacking)
                told = f"not ready within {READY_WITHIN_S:g} s: {names}. The last log lines of the first:"
                raise DemoError(f"{told}\n{lacking[0].tail()}")
            self._patience.pause(0.05)

    def check(self) -> None:
        """Raises DemoError when a process has ended that nobody killed."""
        for role in self.roles:
            if role.exit_code is not None and not role.killed:
                told = f"{role.name} ended with exit code {role.exit_code}. Its last log lines:"
                raise DemoError(f"{told}\n{role.tail()}")
        if self._server.exit_code is not None:
            raise DemoError(f"nats-server ended. Its last log lines:\n{self._server.log_tail()}")

    def stop(self) -> dict[str, int | None]:
        """Stops what runs and gives the exit codes of those that were asked to end; may be called again.

        First the workers, which hand in or hand back what they hold, then gateway and coordinator: SIGTERM, after the
        grace time SIGKILL. nats-server goes last."""
        asked = [role for role in self.roles if role.exit_code is None]
        try:
            for workers in (True, False):
                self._end([role for role in self.roles if role.name.startswith("worker") == workers])
        finally:
            self._server.stop()
        return {role.name: role.exit_code for role in asked}

    def _end(self, roles: list[Role]) -> None:
        for role in roles:
            role.terminate()
        deadline = time.monotonic() + GRACE_S
        while any(role.exit_code is None for role in roles):
            if time.monotonic() > deadline or self._patience.hurried:
                break
            time.sleep(0.02)
        for role in roles:
            role.end()

    def save_logs(self, folder: Path) -> None:
        """Copies the logs of all processes to a folder, which is made anew."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in [*self.folder.glob("*.log"), *self.folder.glob("nats/*.log")]:
            shutil.copy(file, folder)
