"""One connection for one command, and how a command's coroutine is run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import typer

from ..store.blobs import Blobs
from ..store.log import EventLog
from ..topics.bus import Bus
from ..topics.errors import Unavailable
from ..topics.server import require_server
from .environment import Globals, broker_settings
from .errors import NotInstalled
from .exits import OK
from .wording import masked

if TYPE_CHECKING:
    from ..store.checkpoints import Checkpoints
    from ..store.submit import Submitter


class Session:
    """What a command works with."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.log = EventLog(bus)
        self.blobs = Blobs(bus)

    @property
    def checkpoints(self) -> Checkpoints:
        """States of runs."""
        from ..store.checkpoints import Checkpoints

        return Checkpoints(self.bus, self.blobs)

    @property
    def submitter(self) -> Submitter:
        """The client's side of the run protocol."""
        from ..store.submit import Submitter

        return Submitter(self.bus, self.blobs)

    async def require_streams(self) -> None:
        """Raises NotInstalled when the namespace has no streams, which direct gets would report as a lost broker."""
        subjects = self.bus.subjects
        if await self.bus.api(f"STREAM.INFO.{subjects.events}", missing_ok=True) is None:
            raise NotInstalled(
                f"{self.bus.settings.nats_url.rpartition('@')[2]} has no streams of namespace {subjects.namespace!r}: "
                "start a coordinator there (callboard coordinator), or check --nats-url and --namespace",
                namespace=subjects.namespace,
            )


async def connect_now(chosen: Globals, name: str) -> Bus:
    """A connection, or Unavailable at once when no server listens; one that only is slow gets three seconds."""
    settings = broker_settings(chosen, quick=True)
    problems = [await _refusal(url.strip(), settings.connect_timeout_s) for url in settings.nats_url.split(",")]
    if all(problems):
        where = masked(settings.nats_url)
        raise Unavailable(f"no NATS server answers at {where} ({problems[0]}): start one, or set NATS_URL", url=where)
    return await Bus.connect(settings, name=name)


async def _refusal(url: str, within_s: float) -> str | None:
    """Why nothing can be connected to there; None when something can, or when the URL is for the client to judge."""
    try:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        host, port = parts.hostname, parts.port or 4222
    except ValueError:
        return None
    if host is None:
        return None
    try:
        async with asyncio.timeout(within_s):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return "no answer in time"
    except OSError as error:
        return os.strerror(error.errno).lower() if error.errno else str(error)
    writer.close()
    return None


@asynccontextmanager
async def connected(chosen: Globals) -> AsyncIterator[Session]:
    """A session without any check of the streams. Raises Unavailable, ServerTooOld, JetStreamDisabled."""
    bus = await connect_now(chosen, "callboard-cli")
    try:
        require_server(bus.server_info)
        yield Session(bus)
    finally:
        await bus.close()


def globals_of(ctx: typer.Context) -> Globals:
    """The global options of this invocation."""
    found = ctx.find_root().obj
    return found if isinstance(found, Globals) else Globals()


def run(ctx: typer.Context, work: Callable[[Session], Coroutine[Any, Any, int | None]]) -> None:
    """Runs a command's work with a session, and ends the command with the exit code it returns (None is 0).

    Ctrl-C cancels the work and leaves as KeyboardInterrupt, which `app` turns into 130."""
    from .logs import set_up

    chosen = globals_of(ctx)
    set_up(chosen.verbose, quiet=True)

    async def whole() -> int:
        async with connected(chosen) as session:
            await session.require_streams()
            return await work(session) or OK

    code = asyncio.run(whole())
    if code != OK:
        raise typer.Exit(code)
