"""The bounded inbox of one actor: one message at a time per key, several keys at once, none of it with a lock.

Everything runs in one event loop, so the order of `put` is the order of handling within a key. A message is a task of
its own from the moment it starts; nothing is kept of it afterwards.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_EAGER: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}


class Mailbox(Generic[T]):
    """Hands each item to `handle`; `done` is told how that ended (None: well), in the loop, and must not raise.

    `capacity` bounds the items in it, running ones included; the caller looks at `room` before it puts. `concurrency`
    bounds the keys that run at once. Items put without a key start at once and in no order."""

    def __init__(
        self,
        handle: Callable[[T], Coroutine[Any, Any, None]],
        done: Callable[[T, BaseException | None], None],
        capacity: int,
        concurrency: int,
    ) -> None:
        self._handle, self._done = handle, done
        self._capacity, self._concurrency = capacity, concurrency
        self._loop = asyncio.get_running_loop()
        self._running: dict[asyncio.Task[None], tuple[T, str | None]] = {}
        self._lanes: dict[str, deque[T]] = {}  # a key is here while one of its items runs or waits
        self._ready: deque[str] = deque()  # keys that have an item and no running one, in turn
        self._busy = 0
        self._waiting = 0
        self._reserved = 0
        self._closed = False
        self._idle: list[asyncio.Future[None]] = []

    @property
    def room(self) -> int:
        """How many more items it takes."""
        return 0 if self._closed else self._capacity - len(self._running) - self._waiting - self._reserved

    @property
    def is_full(self) -> bool:
        """Whether it holds as many items as it may, whatever room is reserved."""
        return self._closed or len(self) >= self._capacity

    def reserve(self, count: int) -> int:
        """Keeps room for up to `count` items that are being fetched, and returns for how many; negative gives back."""
        granted = min(count, max(0, self.room))
        self._reserved += granted
        return granted

    def __len__(self) -> int:
        return len(self._running) + self._waiting

    def put(self, key: str | None, item: T) -> None:
        """Takes an item, also beyond the capacity: whoever asked for it has looked at `room`. Ignored after `close`."""
        if self._closed:
            return
        if key is None:
            self._start(None, item)
            return
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = deque()
            if self._busy < self._concurrency:
                self._busy += 1
                self._start(key, item)
                return
            self._ready.append(key)
        lane.append(item)
        self._waiting += 1

    def _start(self, key: str | None, item: T) -> None:
        # eager where Python can: what needs no waiting never goes through the loop's queue
        task = asyncio.Task(self._handle(item), loop=self._loop, **_EAGER)
        self._running[task] = (item, key)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        item, key = self._running.pop(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if key is not None:
            self._busy -= 1
            if self._lanes[key]:
                self._ready.append(key)
            else:
                del self._lanes[key]
            self._next()
        self._done(item, error)
        if self._idle and not self._running:
            self._tell_idle()

    def _next(self) -> None:
        while self._ready and self._busy < self._concurrency:
            key = self._ready.popleft()
            self._waiting -= 1
            self._busy += 1
            self._start(key, self._lanes[key].popleft())

    def remove(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Takes out the waiting items that are `unwanted`, and returns them; running ones stay."""
        out: list[T] = []
        for key, lane in list(self._lanes.items()):
            keep = deque(item for item in lane if not unwanted(item))
            out.extend(item for item in lane if unwanted(item))
            self._waiting -= len(lane) - len(keep)
            if lane and not keep and key in self._ready:
                self._ready.remove(key)
                del self._lanes[key]
            else:
                self._lanes[key] = keep
        return out

    def close(self) -> list[T]:
        """Takes no more, and returns the items that had not started. Running ones go on."""
        out = self.remove(lambda _: True)
        self._closed = True
        return out

    async def join(self, timeout_s: float) -> bool:
        """Waits until nothing runs; False after `timeout_s` seconds."""
        if not self._running:
            return True
        idle: asyncio.Future[None] = self._loop.create_future()
        self._idle.append(idle)
        done, _ = await asyncio.wait((idle,), timeout=timeout_s)
        return bool(done)

    def _tell_idle(self) -> None:
        waiters, self._idle = self._idle, []
        for future in waiters:
            if not future.done():
                future.set_result(None)

    async def cancel(self, which: Callable[[T], bool] = lambda _: True) -> None:
        """Cancels the running items that are meant, and waits at most a second for them to end."""
        tasks = [task for task, (item, _) in self._running.items() if which(item)]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)
