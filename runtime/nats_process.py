"""One nats-server as a child process: start, readiness, stop. Synchronous; `nats_server` is its asyncio face."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..topics.errors import BrokerError, InvalidInput
from ..topics.server import require_server
from .nats_binary import require_binary
from .nats_folder import Record, StateFolder
from .nats_mark import ProcessMark
from .nats_port import LOOPBACK, free_ports, reported_port, server_info
from .nats_settings import ServerSettings

START_WITHIN = timedelta(seconds=30)
GRACE = timedelta(seconds=10)
POLL_SECONDS = 0.02
PORT_ATTEMPTS = 5
TAIL_LINES = 15
_KEEPER = Path(__file__).with_name("nats_keeper.py")
_TAKEN = "address already in use"


class ServerStartFailed(BrokerError):
    """The nats-server ended while starting or was not ready in time. Facts: `log` (path), `exit_code` (None: runs)."""

    code = "server_start_failed"


class ServerProcess:
    """A nats-server in a state folder, on loopback.

    It runs in a session of its own, so a terminal's Ctrl-C does not reach it before its owner has decided, and it is
    stopped when the owner's process dies in any way (`nats_keeper`). Not safe for use from several threads at once.
    """

    def __init__(
        self,
        state_dir: Path | str,
        settings: ServerSettings | None = None,
        *,
        start_within: timedelta = START_WITHIN,
        grace: timedelta = GRACE,
    ) -> None:
        self.settings = settings or ServerSettings()
        self.folder = StateFolder(Path(state_dir))
        self.start_within = start_within
        self.grace = grace
        self.info: dict[str, Any] = {}
        self._keeper: subprocess.Popen[bytes] | None = None
        self._binary: Path | None = None
        self._pid: int | None = None
        self._port = 0
        self._log_start = 0
        self._deadline = 0.0
        self._attempts_left = 0

    @property
    def url(self) -> str:
        """Where clients connect; the same after each start of this object."""
        return f"nats://{LOOPBACK}:{self._port}"

    @property
    def port(self) -> int:
        """The client port."""
        return self._port

    @property
    def pid(self) -> int | None:
        """Pid of the server itself; None when it is not up."""
        return self._pid

    @property
    def exit_code(self) -> int | None:
        """The server's exit code as a shell shows it (137: killed); None while it runs or before the first start."""
        return None if self._keeper is None else self._keeper.poll()

    @property
    def running(self) -> bool:
        """Whether the server was started and has not ended."""
        return self._keeper is not None and self._keeper.poll() is None

    def start(self) -> None:
        """Start the server and return when it accepts clients and JetStream is up.

        Raises:
            ServerBinaryUnusable, ServerTooOld: see `nats_binary.require_binary`.
            StateFolderInUse: another process serves the folder.
            ServerStartFailed: it ended or was not ready in time; the message shows its last log lines.
        """
        self.begin()
        while not self.poll():
            time.sleep(POLL_SECONDS)

    def begin(self) -> None:
        """Start the server without waiting: `poll` until it is ready. Nothing is left running when this raises."""
        if self.running:
            return
        if self.settings.config_file is not None and self.settings.port is None:
            raise InvalidInput("settings with a config_file must name the client port that the file comes to")
        self._binary, _ = require_binary()
        lock = self.folder.acquire(self.grace)
        self._deadline = time.monotonic() + self.start_within.total_seconds()
        self._attempts_left = PORT_ATTEMPTS
        self._port = self._port or self.settings.port or self.folder.last_port() or free_ports(1)[0]
        try:
            self._spawn(lock)
        except BaseException:
            self.folder.release()
            raise

    def _spawn(self, lock: int) -> None:
        folder = self.folder
        folder.forget_start()
        self._log_start = folder.log.stat().st_size if folder.log.exists() else 0
        config = self.settings.config_file
        if config is None:
            config = folder.config
            config.write_text(self.settings.render(folder.path, self._port))
        command = [str(self._binary), "-c", str(config), "--ports_file_dir", str(folder.path)]
        with folder.errors.open("wb") as errors:
            self._keeper = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", _KEEPER, folder.pid_file, str(self.grace.total_seconds()), *command],
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                cwd=folder.path,
                env={**os.environ, **self.settings.environment},
                pass_fds=(lock,),
                start_new_session=True,
            )

    def poll(self) -> bool:
        """Whether the server that `begin` started is ready; a port that was taken meanwhile is replaced.

        Raises:
            ServerStartFailed: see `start`; the server is stopped.
            ServerTooOld, JetStreamDisabled: see `nats_binary.require_server`; the server is stopped.
        """
        try:
            return self._ready()
        except BaseException:
            self.stop()
            raise

    def _ready(self) -> bool:
        if not self.running:
            self._retry_or_fail()
            return False
        if time.monotonic() > self._deadline:
            raise self._failed(f"was not ready within {self.start_within.total_seconds():g} s")
        pid = self._server_pid()
        # The ports file carries the pid in its name: it proves that this server listens, not one that took the port.
        if pid is None or self._binary is None:
            return False
        if reported_port(self.folder.path / f"{self._binary.name}_{pid}.ports") != self._port:
            return False
        info = server_info(LOOPBACK, self._port)
        if info is None:
            return False
        require_server(info)
        return self._note_ready(info, pid)

    def _note_ready(self, info: dict[str, Any], pid: int) -> bool:
        keeper = -1 if self._keeper is None else self._keeper.pid
        owner, guard, server = (ProcessMark.of(each) for each in (os.getpid(), keeper, pid))
        if owner is None or guard is None or server is None:  # it has just ended
            return False
        self.info, self._pid = info, pid
        self.folder.write_record(Record(owner, guard, server, self.url), self._port)
        return True

    def _server_pid(self) -> int | None:
        try:
            return int(self.folder.pid_file.read_text())
        except (OSError, ValueError):
            return None

    def _retry_or_fail(self) -> None:
        # Clients know the port already where it was asked for, or where this object was ready on it before.
        pinned = self.settings.port is not None or self.settings.config_file is not None or bool(self.info)
        if pinned or _TAKEN not in self.log_tail() or self._attempts_left == 0:
            raise self._failed(f"ended with exit code {self.exit_code} while starting")
        self._attempts_left -= 1
        self._close_lifeline()
        self._port = free_ports(1)[0]
        self._spawn(self.folder.acquire(self.grace))

    def log_tail(self) -> str:
        """Return the last lines that the server logged since its start."""
        logged = _read_from(self.folder.log, self._log_start) + _read_from(self.folder.errors, 0)
        return "\n".join(logged.splitlines()[-TAIL_LINES:])

    def _failed(self, what: str) -> ServerStartFailed:
        tail = self.log_tail() or "(nothing was logged)"
        return ServerStartFailed(
            f"nats-server {what}. Its last log lines ({self.folder.log}):\n{tail}",
            log=str(self.folder.log),
            exit_code=self.exit_code,
        )

    def kill(self) -> None:
        """End the server with SIGKILL, as a crash would; `begin` or `start` brings it back on the same port."""
        if self._pid is not None and self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._await_keeper(self.grace)
        self._closed()

    def stop(self) -> None:
        """Stop the server: SIGTERM, after `grace` SIGKILL. Returns when it is gone; does nothing when it is not up."""
        if self._keeper is not None and self.running:
            self._keeper.terminate()
        self._await_keeper(self.grace + timedelta(seconds=2))
        self._closed()

    def _await_keeper(self, within: timedelta) -> None:
        if self._keeper is None:
            return
        try:
            self._keeper.wait(within.total_seconds())
        except subprocess.TimeoutExpired:
            # Keeper and server are the whole process group, and the keeper was not reaped: the group is still theirs.
            os.killpg(self._keeper.pid, signal.SIGKILL)
            self._keeper.wait()

    def _closed(self) -> None:
        self._close_lifeline()
        self._pid = None
        self.folder.release()

    def _close_lifeline(self) -> None:
        if self._keeper is not None and self._keeper.stdin is not None:
            self._keeper.stdin.close()


def _read_from(path: Path, offset: int) -> str:
    """Return the file's text from an offset on, all of it when it was rotated meanwhile."""
    try:
        data = path.read_bytes()
    except OSError:
        return ""
    return data[offset if offset <= len(data) else 0 :].decode(errors="replace")
