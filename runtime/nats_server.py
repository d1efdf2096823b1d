"""The embedded nats-server for `callboard dev`, tests and demos: a child process that never outlives its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from .nats_binary import ServerBinaryUnusable, binary_version, find_binary, require_binary
from .nats_folder import StateFolderInUse
from .nats_process import GRACE, START_WITHIN, ServerProcess, ServerStartFailed
from .nats_settings import ServerSettings

__all__ = [
    "EmbeddedServer",
    "ServerBinaryUnusable",
    "ServerProcess",
    "ServerSettings",
    "ServerStartFailed",
    "StateFolderInUse",
    "binary_version",
    "find_binary",
    "require_binary",
]

POLL_SECONDS = 0.02
T = TypeVar("T")


async def _completed(call: Callable[[], T]) -> T:
    """Run a blocking call in a thread; when cancelled, let it end first, so that no two calls ever overlap."""
    work = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if not work.cancelled() and (error := work.exception()) is not None:
            raise asyncio.CancelledError from error
        raise


class EmbeddedServer:
    """A nats-server that lives as long as an `async with` block.

        async with EmbeddedServer(".callboard/nats") as server:
            client = await nats.connect(server.url)

    It listens on loopback only, keeps its streams in `state_dir` and takes the same port each time where it can. One
    server serves a folder at a time. What it has acknowledged survives a kill of any process; see `ServerSettings`
    for what it takes to survive a power loss.
    """

    def __init__(
        self,
        state_dir: Path | str,
        settings: ServerSettings | None = None,
        *,
        start_within: timedelta = START_WITHIN,
        grace: timedelta = GRACE,
    ) -> None:
        self._process = ServerProcess(state_dir, settings, start_within=start_within, grace=grace)

    @property
    def url(self) -> str:
        """Where clients connect; it stays the same over `restart`."""
        return self._process.url

    @property
    def pid(self) -> int | None:
        """Pid of the server; None when it is not up."""
        return self._process.pid

    @property
    def info(self) -> dict[str, Any]:
        """The INFO that the server sent when it was ready: `version`, `max_payload`, …."""
        return self._process.info

    @property
    def log_file(self) -> Path:
        """Where the server logs."""
        return self._process.folder.log

    def log_tail(self) -> str:
        """Return the last lines that the server logged since its start."""
        return self._process.log_tail()

    async def start(self) -> None:
        """Start the server and return when clients can use JetStream. A cancelled start leaves nothing running.

        Raises:
            ServerBinaryUnusable: there is no nats-server to run.
            ServerTooOld: it is older than 2.12.
            StateFolderInUse: another process serves the folder; not retryable until that one stops.
            ServerStartFailed: it ended or was not ready in time; the message shows its last log lines.
        """
        try:
            await _completed(self._process.begin)
            while not await _completed(self._process.poll):
                await asyncio.sleep(POLL_SECONDS)
        except asyncio.CancelledError:
            await self.stop()
            raise

    async def wait(self) -> int:
        """Wait until the server has ended and return its exit code as a shell shows it (137: killed by SIGKILL)."""
        while (code := self._process.exit_code) is None:
            await asyncio.sleep(POLL_SECONDS * 5)
        return code

    async def restart(self) -> None:
        """Start the server again, after `wait` told that it ended or while it runs; url and streams stay."""
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        """Stop the server (SIGTERM, after the grace time SIGKILL); done when it is gone, also when cancelled."""
        await _completed(self._process.stop)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
