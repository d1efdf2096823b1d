"""The hub of a watched run (or tree): one live subscription, events encoded once, any number of clients.

How the log and the live tail are joined without gap or double: the hub subscribes to the live subjects, then asks the
stream's leader for the newest sequence of the log (that request travels behind the subscription, so whatever is stored
later comes in live). Everything up to there is history, read in pages from the log; everything after is the tail.

A live event is taken as it is while nothing can have been missed. After a reconnect, at a gap that `Nats-Last-Sequence`
shows, and always when the stream has replicas (a change of leader may swallow a live event), it is only a hint that
there is more to read from the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict

from ...topics import reads
from ...topics.bus import Bus, Subscription
from ...topics.client import Message
from ...topics.errors import CallboardError
from ...topics.reads import Stored
from .block import Block, Frame, Key, Kinds, block_of, frames_of, keys_of
from .cache import BlockCache
from .ending import Ending
from .newest import newest
from .position import WHOLE, Position, log_after
from .tail import Chunk, Tail

log = logging.getLogger(__name__)

_PAGE = 1000
_NAMES = 2048
_LAG_S = 0.01
_LAG_TRIES = 200
_RETRY_S = 0.2
_FILL_EVERY_S = 0.003
_FLUSH_S_A_CLIENT = 0.0004
_FLUSH_MAX_S = 0.05


class _Recent:
    """The names of the newest entries."""

    def __init__(self) -> None:
        self._names: OrderedDict[Key, None] = OrderedDict()

    def __contains__(self, key: object) -> bool:
        return key in self._names

    def add(self, key: Key, /) -> None:
        self._names[key] = None
        if len(self._names) > _NAMES:
            self._names.popitem(last=False)


class Hub:
    """See the module. `open` before use, `close` when the last client has gone."""

    def __init__(
        self, bus: Bus, cache: BlockCache, subject: str, run: str, *, tail_bytes: int, replicated: bool
    ) -> None:
        self._bus, self._cache = bus, cache
        self.subject = subject
        self._stream = bus.subjects.events
        self._replicated = replicated
        self._tail = Tail(tail_bytes)
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Future[None] = self._loop.create_future()
        self._head = 0  # everything in the log up to here was taken
        self._hint = 0  # something in the log has this sequence
        self._doubtful = True
        self._ready = False
        self._names = _Recent()
        self._frames: list[Frame] = []
        self._flush_due = False
        self._flushed_at = 0.0
        self._filled_at = 0.0
        self._filler: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None
        self.clients = 0
        self.ending = Ending(run)

    # -- life ---------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Subscribes and finds where history ends. Raises Unavailable."""
        live = self._bus.subjects.live_of(self.subject)
        self._subscription = await self._bus.subscribe(live, self._received)
        try:
            self._head = await newest(self._bus, self._stream, self.subject)
            self._tail.begin(self._head)
            for key in await self._keys_at(self._head):
                self._names.add(key)
            await self._load_ending()
        except BaseException:
            await self._subscription.close()
            raise
        self._bus.on_reconnect.append(self.doubt)
        self._ready = True
        self._doubtful = self._replicated or self._hint > self._head
        if self._hint > self._head:
            self._fill_soon()

    async def _load_ending(self) -> None:
        """Reads the states: what ended long ago has its end in the history that nobody has read yet."""
        prefix, _, last = self.subject.rpartition(".")
        pattern = f"{prefix}.*.state" if last == ">" else f"{prefix}.state"
        target = await newest(self._bus, self._stream, pattern)
        reached = 0
        for _ in range(_LAG_TRIES):
            async for page in reads.read(self._bus, self._stream, pattern, reached):
                for stored in page:
                    self.ending.see(stored)
                reached = page[-1].sequence
            if reached >= target:
                break
            await asyncio.sleep(_LAG_S)
        self._hint = max(self._hint, reached)

    async def close(self) -> None:
        """Ends the subscription."""
        if self.doubt in self._bus.on_reconnect:
            self._bus.on_reconnect.remove(self.doubt)
        if self._filler is not None:
            self._filler.cancel()
        if self._subscription is not None:
            await self._subscription.close()

    # -- for clients --------------------------------------------------------------------------------------------

    @property
    def head(self) -> int:
        """The sequence up to which the hub knows the log."""
        return self._head

    @property
    def news(self) -> asyncio.Future[None]:
        """Done when something has come after now. Wait for it without cancelling it: all clients share it."""
        return self._news

    async def chunk(self, after: Position, until: Position | None, kinds: Kinds | None) -> Chunk | None:
        """What follows `after`, as much as is good to send at once; None when there is nothing yet.

        Raises Unavailable when it has to be read from the log and the broker does not answer."""
        sequence = log_after(after)
        if sequence < self._tail.base:
            block = await self._cache.get(self.subject, sequence, self._page)
            if block is not None:
                data, count = block.read(after, until, kinds)
                return Chunk(data, count, block.end)
            after = (self._tail.base, WHOLE)  # what lay between was removed by the stream's retention
        return self._tail.chunk(after, until, kinds)

    async def _keys_at(self, sequence: int) -> set[Key]:
        """The names of the entries of the message at which somebody goes on: the next one may be its second copy."""
        stored = await reads.by_sequence(self._bus, self._stream, sequence) if sequence else None
        return set() if stored is None else keys_of(stored)

    async def _page(self, after: int, before: frozenset[Key]) -> Block | None:
        before = before or frozenset(await self._keys_at(after))
        for _ in range(_LAG_TRIES):
            messages, _ = await reads.page_after(self._bus, self._stream, self.subject, after, _PAGE)
            if messages:
                return block_of(after, messages, before)
            if not self._replicated:
                break
            await asyncio.sleep(_LAG_S)  # a replica that is behind answered
        return None

    # -- the tail -----------------------------------------------------------------------------------------------

    def doubt(self) -> None:
        """Live events may have been missed: looks into the log."""
        self._doubtful = True
        self._fill_soon()

    def _received(self, message: Message) -> None:
        headers = message.headers
        sequence = int(headers.get("Nats-Sequence", "0"))
        self._hint = max(self._hint, sequence)
        if sequence <= self._head:
            return
        if self._doubtful or int(headers.get("Nats-Last-Sequence", "0")) > self._head:
            self._doubtful = True
            self._fill_soon()
            return
        self._take(Stored.of(message))
        self._flush_soon()

    def _take(self, stored: Stored) -> None:
        self._head = stored.sequence
        if stored.kind == "state":
            self.ending.see(stored)
        self._frames += frames_of(stored, (), self._names)

    def _flush_soon(self) -> None:
        if self._flush_due:
            return
        self._flush_due = True
        pause = min(_FLUSH_S_A_CLIENT * self.clients, _FLUSH_MAX_S)
        wait = self._flushed_at + pause - self._loop.time()
        if wait > 0:
            self._loop.call_later(wait, self._flush)
        else:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        self._flushed_at = self._loop.time()
        if self._head == self._tail.end:
            return
        self._tail.add(Block(self._tail.end, self._head, self._frames))
        self._frames = []
        news, self._news = self._news, self._loop.create_future()
        news.set_result(None)

    # -- from the log -------------------------------------------------------------------------------------------

    def _fill_soon(self) -> None:
        if self._filler is None and self._ready:
            self._filler = asyncio.create_task(self._fill(), name="sse-fill")

    async def _fill(self) -> None:
        try:
            await asyncio.sleep(max(0.0, self._filled_at + _FILL_EVERY_S - self._loop.time()))
            tries = 0
            while tries < _LAG_TRIES:
                if await self._fill_once():
                    tries = 0
                elif self._hint <= self._head:
                    break
                else:  # a replica that is behind answered
                    tries += 1
                    await asyncio.sleep(_LAG_S)
            self._hint = self._head
            self._doubtful = self._replicated
        finally:
            self._filled_at = self._loop.time()
            self._filler = None

    async def _fill_once(self) -> bool:
        """Takes a page of the log after the head; False when there was none."""
        try:
            await self._bus.connected()
            messages, _ = await reads.page_after(self._bus, self._stream, self.subject, self._head, _PAGE)
        except CallboardError as error:
            log.info("events of %s: %s; trying again", self.subject, error)
            await asyncio.sleep(_RETRY_S)
            return True
        for stored in messages:
            self._take(stored)
        self._flush()
        return bool(messages)
