"""Serving the application: uvicorn with a shutdown that ends event streams first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

from ..topics.config import BrokerSettings
from ..topics.errors import InvalidInput
from .app import create_app
from .config import GatewaySettings
from .desk import Desk

log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """Leaves signals to its caller, and tells streams to end before it waits for connections."""

    on_shutdown: Callable[[], None]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.on_shutdown()
        await super().shutdown(sockets)


async def serve(
    settings: GatewaySettings | None = None,
    broker: BrokerSettings | None = None,
    *,
    stop: asyncio.Event | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serves until `stop` is set; without it, until SIGTERM or SIGINT. `ready` is called with the URL.

    Then: no new connections, event streams end with a hint to connect again, open requests get the grace time. Raises
    InvalidInput when the address cannot be listened on; ServerTooOld, JetStreamDisabled as soon as a broker is found
    that cannot be used."""
    settings = settings or GatewaySettings()
    app = create_app(settings, broker)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", http="httptools", ws="none", server_header=False,
        timeout_graceful_shutdown=max(1, round(settings.shutdown_grace_s)), timeout_keep_alive=30,
    )  # fmt: skip
    server = _Server(config)
    server.on_shutdown = lambda: _end_streams(app)
    listener = _listen(settings)
    url = f"http://{_host_text(settings.host)}:{listener.getsockname()[1]}"
    with _until(stop, server):
        task = asyncio.create_task(server.serve(sockets=[listener]), name="gateway")
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        if server.started:
            log.info("gateway at %s", url)
            if ready is not None:
                ready(url)
            await _ended(app, server, task)
        await task


async def _ended(app: FastAPI, server: uvicorn.Server, task: asyncio.Task[None]) -> None:
    """Waits for the end. Raises what makes the broker one that cannot be used."""
    desk: Desk = app.state.desk
    refused = asyncio.create_task(desk.link.refused(), name="gateway-refused")
    try:
        await asyncio.wait((task, refused), return_when=asyncio.FIRST_COMPLETED)
        if refused.done():
            server.should_exit = True
            await task
            raise refused.result()
    finally:
        refused.cancel()


def _end_streams(app: FastAPI) -> None:
    desk: Desk = app.state.desk
    desk.hubs.end_streams()


def _listen(settings: GatewaySettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(2048)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise InvalidInput(
            f"cannot listen on {settings.host} port {settings.port} ({error.strerror or error}): choose another port",
            host=settings.host, port=settings.port,
        ) from error  # fmt: skip
    return listener


def _host_text(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@contextlib.contextmanager
def _until(stop: asyncio.Event | None, server: uvicorn.Server) -> Iterator[None]:
    """Ends the server when `stop` is set, or at a signal when the caller has none."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        server.should_exit = True

    async def watch(event: asyncio.Event) -> None:
        await event.wait()
        end()

    signals = (signal.SIGTERM, signal.SIGINT) if stop is None else ()
    for one in signals:
        loop.add_signal_handler(one, end)
    watcher = None if stop is None else asyncio.create_task(watch(stop), name="gateway-stop")
    try:
        yield
    finally:
        for one in signals:
            loop.remove_signal_handler(one)
        if watcher is not None:
            watcher.cancel()
