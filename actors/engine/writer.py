"""Writes of one attempt: fenced, in order, one at a time, what waits is joined.

The broker refuses a second fenced write on one subject while the first is being replicated; so while one write is
under way, entries wait, and those of one kind travel in one message. A write whose answer got lost is repeated: its
entries carry (attempt, n), and readers drop the second copy. While the log is full, entries wait for room: what was
done is not done again because it could not be written down. A refused fence means that the run is owned by somebody
else: `on_lost` is called once, and nothing is written any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ...store.log import EventLog
from ...topics.errors import BrokerError, StaleFence, StorageFull, Unavailable, WriteInFlight
from ...topics.messages import Artifact, Event, Step, encode
from .place import apart

log = logging.getLogger(__name__)

Entry = Step | Event | Artifact
_Passing = Unavailable | WriteInFlight | StorageFull
_FULL = 1000
"""Entries that may wait; above it `room` makes the writer's callers wait."""
_PAUSE_S = 0.02
_PAUSE_MAX_S = 1.0


class _Waiting(NamedTuple):
    kind: str
    data: bytes
    done: asyncio.Future[None]


class Writer:
    """The pen of one attempt."""

    def __init__(
        self, event_log: EventLog, run: str, fence: int, limit_bytes: int, on_lost: Callable[[BaseException], None]
    ) -> None:
        self._log, self._run, self._fence = event_log, run, fence
        self._limit = limit_bytes
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._busy = False
        self._broken: BaseException | None = None
        self._missed: BaseException | None = None
        self._retry: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._n = 0
        self.steps = 0

    @property
    def fence(self) -> int:
        """Sequence of the running state under which the attempt writes."""
        return self._fence

    def number(self) -> int:
        """The number of the next entry of this attempt, from 1."""
        self._n += 1
        return self._n

    @property
    def numbered(self) -> int:
        """The number of the newest entry."""
        return self._n

    def put(self, kind: str, entry: Entry) -> asyncio.Future[None]:
        """Queues an entry; the future is done when it is stored, however long the broker is away or full. Raises, by
        the future, StaleFence, PayloadTooLarge, BrokerError."""
        done: asyncio.Future[None] = self._loop.create_future()
        done.add_done_callback(_retrieved)
        if self._broken is not None:
            done.set_exception(self._broken)
            return done
        self._waiting.append(_Waiting(kind, encode(entry), done))
        if not self._busy:
            self._next()
        return done

    async def room(self) -> None:
        """Waits while too many entries wait: what produces faster than the broker stores is slowed down."""
        while len(self._waiting) > _FULL and self._broken is None:
            await asyncio.wait((self._waiting[0].done,))

    async def flush(self) -> None:
        """Waits until all entries are stored. Raises what made the first of them fail for good."""
        while self._busy:
            if self._waiting:
                await asyncio.wait((self._waiting[-1].done,))
            else:
                self._drained = self._drained or self._loop.create_future()
                await self._drained
        if self._broken is not None or self._missed is not None:
            raise self._broken or self._missed  # type: ignore[misc]  # one of them it is

    def close(self, why: BaseException) -> None:
        """Nothing is written any more."""
        self._broken = self._broken or why
        if self._retry is not None:
            self._retry.cancel()
        self._fail_waiting(self._broken)
        self._idle()

    def _next(self) -> None:
        if not self._waiting:
            self._idle()
            return
        self._busy = True
        batch = self._take()
        data = batch[0].data if len(batch) == 1 else b"[" + b",".join(one.data for one in batch) + b"]"
        self._write(batch, data)

    def _take(self) -> list[_Waiting]:
        first = self._waiting.popleft()
        batch, size = [first], len(first.data)
        while self._waiting and self._waiting[0].kind == first.kind:
            size += len(self._waiting[0].data) + 1
            if size > self._limit:
                break
            batch.append(self._waiting.popleft())
        return batch

    def _write(self, batch: list[_Waiting], data: bytes) -> None:
        try:
            future = self._log.append(self._run, batch[0].kind, data, self._fence)
        except BrokerError as error:
            self._settle(batch, error)
            return
        future.add_done_callback(lambda done: self._written(batch, data, done))

    def _written(self, batch: list[_Waiting], data: bytes, done: asyncio.Future[int]) -> None:
        error = done.exception()
        if isinstance(error, _Passing) and self._broken is None:
            self._retry = apart(self._again(batch, data, error))
        else:
            self._settle(batch, error)

    async def _again(self, batch: list[_Waiting], data: bytes, error: BaseException) -> None:
        pause, warned = _PAUSE_S, False
        while isinstance(error, _Passing):
            if isinstance(error, StorageFull) and not warned:
                log.warning("run %s: its log has no room: it waits: %s", self._run, error)
                warned = True
            log.debug("run %s: write repeated: %s", self._run, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX_S)
            try:
                await self._log.append(self._run, batch[0].kind, data, self._fence)
            except BrokerError as again:
                error = again
            else:
                self._settle(batch, None)
                return
        self._settle(batch, error)

    def _settle(self, batch: list[_Waiting], error: BaseException | None) -> None:
        self._retry = None
        for one in batch:
            if not one.done.done():
                one.done.set_result(None) if error is None else one.done.set_exception(error)
        self._missed = self._missed or error
        if isinstance(error, StaleFence) and self._broken is None:
            self._broken = error
            self._fail_waiting(error)
            self._on_lost(error)
        self._next()

    def _fail_waiting(self, error: BaseException) -> None:
        while self._waiting:
            done = self._waiting.popleft().done
            if not done.done():
                done.set_exception(error)

    def _idle(self) -> None:
        self._busy = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None


def _retrieved(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()  # an event's failure is reported by the next flush, not by the event loop
