"""The answer of an event stream: one client's way through a log, at its own pace.

A client that reads slowly holds its own connection back and nothing else: no queue grows for it, what it has not read
yet stays in the shared tail, or in the log once the tail has moved on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...topics.errors import CallboardError
from .block import Kinds
from .hub import Hub
from .hubs import Hubs
from .position import WHOLE, Position

_RETRY = b"retry: 1000\n\n"
_PING = b": ping\n\n"
_CLOSING = b": the gateway closes; connect again\nretry: 200\n\n"
_UNAVAILABLE_S = 0.25
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no", "content-type": "text/event-stream; charset=utf-8"}


class EventStream(Response):
    """Streams a log as server-sent events, from `after` on. Takes over a hub that was acquired, and releases it."""

    def __init__(
        self,
        hubs: Hubs,
        hub: Hub,
        after: Position,
        *,
        kinds: Kinds | None,
        follow: bool,
        ping_s: float,
        sent: Callable[[int], None],
    ) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._hubs, self._hub, self._position = hubs, hub, after
        self._kinds, self._ping_s, self._sent = kinds, ping_s, sent
        self._until = None if follow else (hub.head, WHOLE)

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Sends until the run has ended, the client has gone or the gateway closes."""
        sender = asyncio.create_task(self._send(send), name="sse-send")
        gone = asyncio.create_task(_disconnected(receive), name="sse-gone")
        try:
            await asyncio.wait((sender, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sender, gone):
                task.cancel()
            await asyncio.wait((sender, gone))
            self._hubs.release(self._hub)
        if not sender.cancelled():
            await sender

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": _RETRY, "more_body": True})
        async with aclosing(self._chunks()) as chunks:
            async for data in chunks:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        hub, closing, time = self._hub, self._hubs.closing, asyncio.get_running_loop().time
        spoke = time()  # news that the client did not ask for, and a broker that is away, are silence to a proxy
        while not closing.done():
            news = hub.news
            done = self._over()
            if done is not None:
                yield done
                return
            if time() - spoke >= self._ping_s:
                spoke = time()
                yield _PING
            try:
                chunk = await hub.chunk(self._position, self._until, self._kinds)
            except CallboardError:  # the broker is away: the stream stays open and goes on when it is back
                await asyncio.wait((closing,), timeout=_UNAVAILABLE_S)
                continue
            if chunk is not None:
                self._position = chunk.end
                if chunk.data:
                    self._sent(chunk.frames)
                    spoke = time()
                    yield chunk.data
                continue
            left = max(0.0, spoke + self._ping_s - time())
            await asyncio.wait((news, closing), timeout=left, return_when=asyncio.FIRST_COMPLETED)
        yield _CLOSING

    def _over(self) -> bytes | None:
        end = self._hub.ending.at
        if end is not None and self._position >= (end, WHOLE):
            return self._end(end, b"true")
        if self._until is not None and self._position >= self._until:
            return self._end(self._position[0], b"false")
        return None

    def _end(self, sequence: int, ended: bytes) -> bytes:
        """The last frame. A browser connects again by itself, with the last id: where the last events were perhaps not
        of the kinds that it asked for, this frame has the id that says that it has seen all."""
        seen = b"" if self._kinds is None else b"id: %d\n" % sequence
        return b'%bevent: end\ndata: {"sequence":%d,"ended":%b}\n\n' % (seen, sequence, ended)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
