"""The projection: one object that applies the stream and answers queries.

What it promises: rows and `applied` change together; a message applied twice changes nothing; a query reflects at least
what was applied when it began; a rebuild from the same log gives the same content, byte for byte (`content_digest`).

Messages that the stream's retention removes keep their rows, so the projection may know runs that the log has
forgotten, and a rebuild then knows less; `forget` (the feed's `follow_retention`) removes them instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from ...topics.reads import Stored
from .apply import Applier
from .database import Database
from .digest import content_digest
from .errors import ProjectionBehind
from .query import Query

log = logging.getLogger(__name__)

_POLL_MIN_S, _POLL_MAX_S = 0.002, 0.05


class Projection(Query):
    """Make it with `await Projection.open(path)`; end it with `close()`. Any number of processes may share the file."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._applier = Applier(database)
        self._moved = asyncio.Event()
        self._applied = 0
        self._waiting: list[int] = []
        self.on_wanted: Callable[[], None] | None = None
        """Called when somebody begins to wait for a sequence; a feed in the same process hurries then."""

    @classmethod
    async def open(cls, path: str | Path) -> Projection:
        """Opens or creates the file with its folder. A damaged file is moved aside, one of another schema version
        emptied: both are filled again by a feed. Raises ProjectionError when the file cannot be used."""
        projection = cls(await Database.open(Path(path)))
        try:
            await projection.position()
        except BaseException:
            await projection.close()
            raise
        return projection

    async def close(self) -> None:
        """Closes the file; idempotent."""
        await self._database.close()

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._database.path

    # -- the stream's position ----------------------------------------------------------------------------------

    @property
    def applied(self) -> int:
        """The stream sequence up to which rows reflect the log, as this process last saw it."""
        return self._applied

    @property
    def wanted(self) -> int:
        """The highest sequence that somebody in this process waits for, 0 if nobody waits."""
        return max(self._waiting, default=0)

    async def position(self) -> int:
        """Sequence of the last message applied, read from the database. `applied` may be greater: see `mark`."""
        meta = await self._database.meta()
        self._note(max(meta["applied"], meta["seen"]), exact=True)
        return int(meta["applied"])

    async def wait_applied(self, sequence: int, timeout_s: float = 5.0) -> int:
        """Waits until the stream is applied up to `sequence`, here or by another process; returns how far it is.

        So a write is read back: wait for the sequence that its publish returned. Raises ProjectionBehind."""
        if self._applied >= sequence:
            return self._applied
        self._waiting.append(sequence)
        if self.on_wanted is not None:
            self.on_wanted()
        try:
            async with asyncio.timeout(timeout_s):
                await self._await(sequence)
        except TimeoutError:
            raise ProjectionBehind(
                f"the projection stands at sequence {self._applied} and did not reach {sequence} within "
                f"{timeout_s:g} s: is a projector running?",
                applied=self._applied, sequence=sequence,
            ) from None  # fmt: skip
        finally:
            self._waiting.remove(sequence)
        return self._applied

    async def _await(self, sequence: int) -> None:
        delay = _POLL_MIN_S
        while True:
            await self.position()
            if self._applied >= sequence:
                return
            self._moved.clear()
            try:
                async with asyncio.timeout(delay):
                    await self._moved.wait()
            except TimeoutError:
                delay = min(delay * 2, _POLL_MAX_S)
            if self._applied >= sequence:
                return

    def _note(self, applied: int, *, exact: bool = False) -> None:
        if applied > self._applied or exact:
            self._applied = applied
            self._moved.set()

    # -- writing ------------------------------------------------------------------------------------------------

    async def apply(self, batch: Sequence[Stored], after: int | None = None) -> int:
        """Applies messages in stream order, in one transaction with their sequence; returns the sequence reached.

        Messages at or below what is applied are dropped. `after`: the sequence up to which the caller has read before
        this batch; ProjectionMoved is raised when the database stands earlier. Any error: nothing was applied."""
        if not batch:
            return await self.position()
        applied = await self._applier.apply(batch, after)
        self._note(applied)
        return applied

    async def mark(self, sequence: int, position: int) -> None:
        """Says that all rows up to `sequence` are there, although the stream's messages behind `position` have none.

        For waiting only: it is never taken for the position to read on from. Nothing happens if the database stands
        before `position`."""
        await self._applier.mark(sequence, position)
        await self.position()

    async def reset(self, origin: str | None = None) -> None:
        """Empties the projection. A feed (in any process) then reads the stream from its beginning."""
        await self._applier.reset(origin)
        await self.position()

    async def adopt(self, origin: str, last: int) -> None:
        """Says which stream is applied, and its last sequence: rows of another stream, or of one that has lost messages
        which were applied, are thrown away."""
        meta = await self._database.meta()
        if meta["origin"] == origin and meta["applied"] <= last:
            return
        if meta["applied"]:
            log.warning(
                "the projection %s holds sequence %d of %s, the stream is %s and ends at %d: it is built again",
                self.path, meta["applied"], meta["origin"] or "an unnamed stream", origin, last,
            )  # fmt: skip
        await self.reset(origin)

    async def replace(self, why: Exception) -> None:
        """Moves a damaged file aside and begins a new one."""
        await self._database.replace(why)
        await self.position()

    async def forget(self, first: int) -> int:
        """Removes what only messages before sequence `first` told, of ended runs; returns how many rows went."""
        total = 0
        while gone := await self._applier.forget(first):
            total += gone
        return total

    # -- proof --------------------------------------------------------------------------------------------------

    async def content_digest(self) -> str:
        """SHA-256 of all content at one moment; equal digests mean equal rows. Reads the whole database."""
        return await content_digest(self._database)
