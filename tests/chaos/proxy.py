"""A TCP proxy on loopback in front of one nats-server, which drops, holds and delays what passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from callboard.runtime.nats_port import LOOPBACK, free_ports

_PIECE = 64 * 1024


class Proxy:
    """Listens on `port` and passes everything on to `target`. All faults end with `heal()`."""

    def __init__(self, port: int, target: int) -> None:
        self.port, self.target = port, target
        self._latency_s = 0.0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._refusing = False

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"nats://{LOOPBACK}:{self.port}"

    @property
    def connections(self) -> int:
        """How many pass through it now."""
        return len(self._tasks)

    async def start(self) -> None:
        """Begins to listen."""
        self._server = await asyncio.start_server(self._accept, LOOPBACK, self.port)

    async def close(self) -> None:
        """Ends all connections."""
        if self._server is not None:
            self._server.close()
        self.drop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- faults -------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """Resets every connection; what was on its way is lost."""
        for writer in list(self._writers):
            writer.transport.abort()

    def refuse(self) -> None:
        """Drops all, and takes no new connection."""
        self._refusing = True
        self.drop()

    def hold(self) -> None:
        """Nothing passes any more, and no side is told: a link that has gone silent."""
        self._flowing.clear()

    def delay(self, seconds: float) -> None:
        """Every piece of data takes so much longer."""
        self._latency_s = seconds

    def heal(self) -> None:
        """Passes everything on at once again."""
        self._latency_s, self._refusing = 0.0, False
        self._flowing.set()

    # -- passing on ---------------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not self._refusing:
                await self._connected(reader, writer)
        except OSError:
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(LOOPBACK, self.target)
        self._writers |= {writer, back}
        try:
            ways = [asyncio.create_task(self._pass(reader, back)), asyncio.create_task(self._pass(there, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            self._writers -= {writer, back}
            back.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_PIECE):
                if self._latency_s:
                    await asyncio.sleep(self._latency_s)
                if not self._flowing.is_set():
                    await self._flowing.wait()
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def before(url: str) -> AsyncIterator[Proxy]:
    """A proxy before the server at `url`; `proxy.url` is where to connect."""
    proxy = Proxy(free_ports(1)[0], int(url.rpartition(":")[2]))
    await proxy.start()
    try:
        yield proxy
    finally:
        proxy.heal()
        await proxy.close()
