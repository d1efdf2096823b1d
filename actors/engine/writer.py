"""Writes of one attempt: fenced, in order, one at a time, what waits is joined.

The broker refuses a second fenced write on one subject while the first is being replicated; so while one write is
under way, entries wait, and those of one kind travel in one message. A write whose answer got lost is repeated: its
entries carry (attempt, n), and readers drop the second copy. A checkpoint, which names messages that were written
before it, is encoded when its turn has come, and is a message of its own. While the log is full, entries wait for
room: what was done is not done again because it could not be written down. A refused fence means that the run is owned
by somebody else: `on_lost` is called once, and nothing is written any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Protocol

from ...store.log import EventLog
from ...topics.errors import BrokerError, StaleFence, StorageFull, Unavailable, WriteInFlight
from ...topics.messages import Artifact, Event, Step, encode
from .place import apart

log = logging.getLogger(__name__)

Entry = Step | Event | Artifact
_Passing = Unavailable | WriteInFlight | StorageFull
_LAZY = 100
"""Entries that may wait for one that has to be written."""
_FULL = 1000
"""Entries that may wait; above it `room` makes the writer's callers wait."""
_PAUSE_S = 0.02
_PAUSE_MAX_S = 1.0


class Sheet(Protocol):
    """What is written down when its turn has come: it refers to messages that were stored before it."""

    def body(self) -> bytes:
        """The message."""

    def written(self, sequence: int) -> None:
        """It is stored."""


class _Waiting(NamedTuple):
    kind: str
    data: bytes | Sheet
    done: asyncio.Future[int]


class Writer:
    """The pen of one attempt."""

    def __init__(
        self,
        event_log: EventLog,
        run: str,
        fence: int,
        limit_bytes: int,
        on_lost: Callable[[BaseException], None],
        refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._log, self._run, self._fence = event_log, run, fence
        self._limit = limit_bytes
        self._on_lost, self._refused = on_lost, refused
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._busy = False
        self._broken: BaseException | None = None
        self._missed: BaseException | None = None
        self._retry: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._n = 0
        self._remembering: dict[str, Callable[[Entry], None]] = {}
        self.got_on = False
        """Whether the result of a step, or a checkpoint, was written or is about to be."""

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

    def put(self, kind: str, entry: Entry, *, lazily: bool = False) -> asyncio.Future[int]:
        """Queues an entry; the future gives the sequence of its message when it is stored, however long the broker is
        away or full. `lazily`: it travels with the next entry of its kind, or before the next one of another, and need
        not be stored before that. Raises, by the future, StaleFence, PayloadTooLarge, BrokerError."""
        if isinstance(entry, Step) and entry.status == "done":
            self.got_on = True
        done = self._queue(kind, encode(entry), lazily=lazily)
        for prefix, remember in self._remembering.items():
            if entry.at.startswith(prefix):
                done.add_done_callback(partial(_remembered, remember, entry))
        return done

    @contextmanager
    def remembering(self, prefix: str, remember: Callable[[Entry], None]) -> Iterator[None]:
        """What is stored meanwhile of the places below `prefix` is told to `remember`."""
        self._remembering[prefix] = remember
        try:
            yield
        finally:
            del self._remembering[prefix]

    def put_sheet(self, kind: str, sheet: Sheet) -> asyncio.Future[int]:
        """Like `put`, for what is a message of its own."""
        self.got_on = True
        return self._queue(kind, sheet)

    def _queue(self, kind: str, data: bytes | Sheet, *, lazily: bool = False) -> asyncio.Future[int]:
        done: asyncio.Future[int] = self._loop.create_future()
        done.add_done_callback(_retrieved)
        if self._broken is not None:
            done.set_exception(self._broken)
            return done
        self._waiting.append(_Waiting(kind, data, done))
        if not self._busy and not (lazily and len(self._waiting) < _LAZY):
            self._next()
        return done

    async def room(self) -> None:
        """Waits while too many entries wait: what produces faster than the broker stores is slowed down."""
        while len(self._waiting) > _FULL and self._broken is None:
            await asyncio.wait((self._waiting[0].done,))

    async def flush(self) -> None:
        """Waits until all entries are stored. Raises what made the first of them fail for good."""
        if self._waiting and not self._busy and self._broken is None:
            self._next()
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
        batch, parts = self._take()
        self._write(batch, parts[0] if len(parts) == 1 else b"[" + b",".join(parts) + b"]")

    def _take(self) -> tuple[list[_Waiting], list[bytes]]:
        """The next message: the entries that travel in it, and their bodies."""
        first = self._waiting.popleft()
        if not isinstance(first.data, bytes):
            return [first], [first.data.body()]
        batch, parts, size = [first], [first.data], len(first.data)
        while self._waiting and self._waiting[0].kind == first.kind:
            data = self._waiting[0].data
            size += len(data) + 1 if isinstance(data, bytes) else self._limit
            if size > self._limit or not isinstance(data, bytes):
                break
            batch.append(self._waiting.popleft())
            parts.append(data)
        return batch, parts

    def _write(self, batch: list[_Waiting], data: bytes) -> None:
        try:
            future = self._log.append(self._run, batch[0].kind, data, self._fence)
        except BrokerError as error:
            self._settle(batch, 0, error)
            return
        future.add_done_callback(lambda done: self._written(batch, data, done))

    def _written(self, batch: list[_Waiting], data: bytes, done: asyncio.Future[int]) -> None:
        error = done.exception()
        if isinstance(error, _Passing) and self._broken is None:
            self._retry = apart(self._again(batch, data, error))
        else:
            self._settle(batch, 0 if error is not None else done.result(), error)

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
                sequence = await self._log.append(self._run, batch[0].kind, data, self._fence)
            except BrokerError as again:
                error = again
            else:
                self._settle(batch, sequence, None)
                return
        self._settle(batch, 0, error)

    def _settle(self, batch: list[_Waiting], sequence: int, error: BaseException | None) -> None:
        self._retry = None
        for one in batch:
            if error is None and not isinstance(one.data, bytes):
                one.data.written(sequence)
            if not one.done.done():
                one.done.set_result(sequence) if error is None else one.done.set_exception(error)
        self._missed = self._missed or error
        if isinstance(error, StaleFence) and self._broken is None:
            self._broken = error
            self._refused(batch[0].kind)
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


def _retrieved(done: asyncio.Future[int]) -> None:
    if not done.cancelled():
        done.exception()  # an event's failure is reported by the next flush, not by the event loop


def _remembered(remember: Callable[[Entry], None], entry: Entry, done: asyncio.Future[int]) -> None:
    if not done.cancelled() and done.exception() is None:
        remember(entry)
