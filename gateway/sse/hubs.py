"""All hubs of this gateway: one for each watched run or tree, while it is watched and a moment longer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..config import GatewaySettings
from ..link import Link
from .cache import BlockCache
from .hub import Hub
from .newest import is_replicated

_LINGER_S = 2.0

T = TypeVar("T")


class Hubs:
    """Opens hubs, shares them, verifies them each ping interval against the log, closes them."""

    def __init__(self, settings: GatewaySettings, link: Link) -> None:
        self._settings, self._link = settings, link
        self._cache = BlockCache(settings.sse_cache_bytes)
        self._hubs: dict[str, Hub] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._closers: set[asyncio.Task[None]] = set()
        self._verifier: asyncio.Task[None] | None = None
        self.closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the gateway shuts down: streams end."""

    @property
    def clients(self) -> int:
        """How many clients are connected."""
        return sum(hub.clients for hub in self._hubs.values())

    @property
    def cached_bytes(self) -> int:
        """Memory that encoded history takes."""
        return self._cache.size

    def start(self) -> None:
        """Begins to verify."""
        self._verifier = asyncio.create_task(self._verify(), name="sse-verify")

    def end_streams(self) -> None:
        """Tells every stream to end, with a hint to connect again."""
        if not self.closing.done():
            self.closing.set_result(None)

    async def unless_closing(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`, or None when the gateway begins to shut down before it is there."""
        task = asyncio.create_task(work)
        try:
            await asyncio.wait((task, self.closing), return_when=asyncio.FIRST_COMPLETED)
            return await task if task.done() else None
        finally:
            task.cancel()

    async def close(self) -> None:
        """Ends all hubs."""
        self.end_streams()
        tasks = [task for task in (self._verifier, *self._closers) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for hub in self._hubs.values():
            await hub.close()
        self._hubs.clear()

    async def acquire(self, run: str, *, tree: bool) -> Hub:
        """The hub of a run, or of its whole tree, for one client, who must `release` it. Raises Unavailable."""
        subjects = self._link.bus.subjects
        subject = subjects.tree(run) if tree else subjects.log(run)
        async with self._opening.setdefault(subject, asyncio.Lock()):
            hub = self._hubs.get(subject) or await self._open(subject, run)
            hub.clients += 1
        return hub

    def release(self, hub: Hub) -> None:
        """The client has gone."""
        hub.clients -= 1
        if not hub.clients and not self.closing.done():
            task = asyncio.create_task(self._close_unused(hub), name="sse-linger")
            self._closers.add(task)
            task.add_done_callback(self._closers.discard)

    async def _open(self, subject: str, run: str) -> Hub:
        bus = self._link.bus
        replicated = await is_replicated(bus, bus.subjects.events)
        tail_bytes = self._settings.sse_tail_bytes
        hub = Hub(bus, self._cache, subject, run, tail_bytes=tail_bytes, replicated=replicated)
        await hub.open()
        self._hubs[subject] = hub
        return hub

    async def _close_unused(self, hub: Hub) -> None:
        await asyncio.sleep(_LINGER_S)
        if hub.clients == 0 and self._hubs.get(hub.subject) is hub:
            del self._hubs[hub.subject]
            self._opening.pop(hub.subject, None)
            await hub.close()

    async def _verify(self) -> None:
        while True:
            await asyncio.sleep(self._settings.ping_s)
            for hub in list(self._hubs.values()):
                hub.doubt()
