"""What keeps a projection up to date: the stream read in order, applied in batches, whatever happens.

Restarts of the server, elections, a deleted consumer, a lost connection, a reset by another process: each ends a
session, and the next begins where the database stands. A full disk stops it with a reason until there is space; a
damaged file is replaced.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from ...topics.bus import Bus
from ...topics.errors import CallboardError, Unavailable
from .errors import ProjectionCorrupt, ProjectionMoved
from .projection import Projection
from .reader import OrderedReader

log = logging.getLogger(__name__)

_IDLE_S = 1.0
_HURRY_S = 0.003
_BACKOFF_S = (0.1, 5.0)
_FOLLOWER_S = 0.25
_RETENTION_S = 60.0
_SURE_S = 2.0
# Far behind, a consumer with several filters costs the server 2.3 ms a message (10,000 subjects, nats-server 2.15.1:
# it goes through the subjects of a block for each), one without filters 0.03 ms. At the stream's end both cost the
# same, and only the filtered one spares this process the steps and deltas. So the history is read whole, the rest
# filtered.
_FAR, _NEAR = 5000, 500


class ProjectionFeed:
    """`await run()` until `await stop()`. `batch`: messages in one transaction at most; `window_s`: under load, seconds
    between two transactions (a first message after silence, or one that somebody waits for, is applied at once).

    `follow_retention`: remove the rows of what the stream's retention has removed. Default: rows stay."""

    def __init__(
        self,
        bus: Bus,
        projection: Projection,
        *,
        batch: int = 500,
        window_s: float = 0.05,
        follow_retention: bool = False,
    ) -> None:
        self.bus, self.projection = bus, projection
        self.problem: str | None = None
        """Why nothing is applied at this moment; None when all is well."""
        self.events = 0
        """Messages applied by this feed."""
        self._batch, self._window_s = batch, window_s
        self._follow_retention = follow_retention
        self._stream = bus.subjects.events
        self._reader: OrderedReader | None = None
        self._position = self._taken = 0
        self._stopping, self._woken = asyncio.Event(), asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()
        self._rebuild = False
        self._checked = self._cleaned = 0.0
        self._loop = asyncio.get_running_loop()

    @property
    def filters(self) -> list[str]:
        """The subjects that have rows."""
        subjects = self.bus.subjects
        return [
            f"{subjects.run}.*.*.state",
            f"{subjects.run}.*.*.artifact",
            f"{subjects.thread}.>",
        ]

    @property
    def pending(self) -> int:
        """Messages with rows that are known to wait, without asking the server."""
        reader = self._reader
        return 0 if reader is None else reader.pending + reader.buffered

    @property
    def _wanted(self) -> bool:
        return self.projection.wanted > self.projection.applied

    async def lag(self) -> int:
        """Stream sequences between the last stored message and what is applied; 0 when nothing is missing.

        Raises BrokerError when the server does not answer."""
        last, _, _ = await self._stream_state()
        await self.projection.position()
        if self.projection.applied < last:
            await self._mark(last)
        return max(0, last - self.projection.applied)

    async def run(self) -> None:
        """Applies until `stop()`. Raises nothing but cancellation; what is wrong stands in `problem`."""
        delay = _BACKOFF_S[0]
        self._ended.clear()
        self.projection.on_wanted = self._poke
        try:
            while not self._stopping.is_set():
                before = self.events
                try:
                    await self._session()
                    delay = 0.0
                except ProjectionCorrupt as error:
                    await self._replace(error)
                except CallboardError as error:
                    delay = _BACKOFF_S[0] if self.events > before else delay
                    self._report(error)
                await self._pause(delay)
                delay = min(max(delay, _BACKOFF_S[0]) * 2, _BACKOFF_S[1])
        finally:
            self.projection.on_wanted = None
            self._ended.set()

    async def stop(self) -> None:
        """Ends `run` behind the transaction under way."""
        self._stopping.set()
        self._poke()
        await self._ended.wait()

    async def rebuild(self) -> None:
        """Empties the projection and reads the stream from its beginning, in this feed if it runs."""
        self._rebuild = True
        await self.projection.reset()
        self._poke()

    # -- a session ----------------------------------------------------------------------------------------------

    async def _session(self) -> None:
        await self._connected()
        if self._stopping.is_set():
            return
        await self._adopt()
        self._rebuild = False
        self._position = self._taken = await self.projection.position()
        last, _, _ = await self._stream_state()
        wide = last - self._position > _FAR
        while not self._stopping.is_set() and not self._rebuild:
            await self._read(wide)
            wide = not wide

    async def _read(self, wide: bool) -> None:
        """Reads all subjects (`wide`), or those with rows alone, until the other is cheaper."""
        reader = OrderedReader(self.bus, self._stream, [] if wide else self.filters, self._position)
        try:
            await reader.open()
            self._reader = reader
            if self.problem is not None:
                log.info("the projection goes on at sequence %d", self._position)
                self.problem = None
            while not self._stopping.is_set() and not self._rebuild:
                await self._turn(reader)
                if (self.pending <= _NEAR) if wide else (reader.pending > _FAR):
                    return
        finally:
            self._reader = None
            await reader.close()

    async def _turn(self, reader: OrderedReader) -> None:
        batch = await reader.next(self._batch, _HURRY_S if self._wanted else _IDLE_S)
        if not batch:
            await self._idle()
            return
        began = self._loop.time()
        self._taken = batch[-1].sequence
        self._position = await self.projection.apply(batch, after=self._position)
        self.events += len(batch)
        if len(batch) < self._batch and not reader.buffered >= self._batch:
            await self._breathe(began)

    async def _breathe(self, began: float) -> None:
        """Lets messages gather for the next transaction: for the window, or less when somebody begins to wait."""
        self._woken.clear()
        rest = began + self._window_s - self._loop.time()
        if not self._wanted and rest > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await self._woken.wait()
        await self._pause(began + _HURRY_S - self._loop.time())

    async def _idle(self) -> None:
        """Nothing came: what the stream holds beyond has no rows. And now and then, what has gone from it."""
        now = self._loop.time()
        if not self._wanted and now - self._checked < _IDLE_S * 0.9:
            return
        self._checked = now
        if (standing := await self.projection.position()) < self._position:
            raise ProjectionMoved(f"the projection was reset to sequence {standing}", applied=standing)
        last, first, _ = await self._stream_state()
        if last > self.projection.applied:
            await self._mark(last)
        if self._follow_retention and now - self._cleaned > _RETENTION_S:
            self._cleaned = now
            gone = await self.projection.forget(first)
            if gone:
                log.info("%d rows went from the projection with the messages before sequence %d", gone, first)

    async def _mark(self, last: int) -> None:
        reader = self._reader
        if reader is None:
            return
        if self.bus.replicas > 1:
            # `last` is the leader's; the consumer may stand on a follower that is a moment behind.
            await asyncio.sleep(_FOLLOWER_S)
        delivered, pending = await reader.info()
        taken_all = not pending and not reader.buffered and delivered == reader.received
        if taken_all and self._reader is reader and self._taken == self._position:
            await self.projection.mark(last, self._position)

    async def _adopt(self) -> None:
        """Throws the rows away if the stream is another one, or has lost what was applied."""
        last, _, origin = await self._stream_state()
        if await self.projection.position() > last:
            await self._pause(_SURE_S)  # a leader just elected may not have applied all that it holds
            last, _, origin = await self._stream_state()
        await self.projection.adopt(origin, last)

    async def _stream_state(self) -> tuple[int, int, str]:
        info = await self.bus.api(f"STREAM.INFO.{self._stream}") or {}
        state = info["state"]
        return int(state["last_seq"]), int(state["first_seq"]), f"{self._stream} of {info['created']}"

    # -- waiting and telling ------------------------------------------------------------------------------------

    async def _connected(self) -> None:
        if self.bus.is_up:
            return
        waits = [asyncio.ensure_future(self.bus.connected()), asyncio.ensure_future(self._stopping.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def _pause(self, seconds: float) -> None:
        """Sleeps; `stop()` ends it early."""
        if seconds <= 0:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _poke(self) -> None:
        self._woken.set()
        if self._reader is not None:
            self._reader.poke()

    async def _replace(self, error: ProjectionCorrupt) -> None:
        try:
            await self.projection.replace(error)
        except (CallboardError, OSError) as failed:
            self._report(failed)

    def _report(self, error: Exception) -> None:
        """Keeps what is wrong, and logs it when it is new: as a warning what the server or the disk must mend."""
        text = str(error)
        if text != self.problem:
            passing = isinstance(error, Unavailable | ProjectionMoved)
            log.log(logging.INFO if passing else logging.WARNING, "the projection waits: %s", text)
        self.problem = text
