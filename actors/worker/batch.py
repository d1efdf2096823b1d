"""Joins many small requests of one worker: while one is under way, the next ones wait and travel together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """`await ask(item)` gives the answer to one item. `send` gets at most `limit` items of at most `limit_bytes`
    in all (by `size`), answers them in their order, and does its own repeating; what it raises is raised to all of
    the batch."""

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[list[Answer]]],
        *,
        limit: int,
        limit_bytes: int,
        size: Callable[[Item], int],
        lanes: int = 2,
    ) -> None:
        self._send, self._limit, self._limit_bytes, self._size = send, limit, limit_bytes, size
        self._free = lanes
        self._waiting: deque[tuple[Item, asyncio.Future[Answer]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, item: Item) -> asyncio.Future[Answer]:
        """Queues the item; it leaves with the others of this turn of the loop, or with the next batch."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._free:
            self._free -= 1
            task = asyncio.create_task(self._lane())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return future

    async def _lane(self) -> None:
        try:
            while self._waiting:
                await self._one([self._waiting.popleft(), *self._more()])
        finally:
            self._free += 1

    def _more(self) -> list[tuple[Item, asyncio.Future[Answer]]]:
        found: list[tuple[Item, asyncio.Future[Answer]]] = []
        room = self._limit_bytes
        while self._waiting and len(found) + 1 < self._limit:
            room -= self._size(self._waiting[0][0])
            if room < 0:
                break
            found.append(self._waiting.popleft())
        return found

    async def _one(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._send([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001  # goes to everybody who asked
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    async def close(self) -> None:
        """Ends what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._waiting:
            self._waiting.popleft()[1].cancel()
