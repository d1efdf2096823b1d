"""The chain of a run's checkpoints, walked from its newest end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from ...topics import reads
from ...topics.bus import Bus
from .reader import kind_of
from .state import Saved


class History:
    """The checkpoints of one namespace of one run.

    Each names the one before it, so a page costs one direct get for each of its entries, whatever lies before. Where
    pruning has made a gap, the rest, which is not much then, is read from its beginning."""

    def __init__(self, bus: Bus, run: str, namespace: str = "") -> None:
        self._bus, self._stream = bus, bus.subjects.events
        self._subject = bus.subjects.event(run, kind_of(namespace))

    async def page(
        self, before: int | None, limit: int, shown: Callable[[Saved], bool] = lambda _: True
    ) -> list[Saved]:
        """At most `limit` checkpoints, the newest first, of those with an id below `before` that are `shown`."""
        found: list[Saved] = []
        if limit > 0:
            async for saved in self._walk(before):
                if shown(saved):
                    found.append(saved)
                    if len(found) >= limit:
                        break
        return found

    async def all(self) -> list[Saved]:
        """Every checkpoint, the oldest first; a write that was repeated because its answer got lost counts once."""
        found: dict[tuple[int, int], Saved] = {}
        async for page in reads.read(self._bus, self._stream, self._subject):
            for stored in page:
                saved = Saved.of(stored)
                made = saved.checkpoint
                mark = (made.attempt, made.n) if made.n else (-1, saved.sequence)
                found.pop(mark, None)
                found[mark] = saved
        return sorted(found.values(), key=lambda saved: saved.sequence)

    async def _walk(self, before: int | None) -> AsyncIterator[Saved]:
        at = await self._start(before)
        while at is not None:
            if before is None or at.sequence < before:
                yield at
            parent = at.checkpoint.parent
            if not parent:
                return
            stored = await reads.leader_by_sequence(self._bus, self._stream, parent)
            if stored is None:
                for saved in reversed(await self.all()):
                    if saved.sequence < at.sequence and (before is None or saved.sequence < before):
                        yield saved
                return
            at = Saved.of(stored) if stored.subject == self._subject else None

    async def _start(self, before: int | None) -> Saved | None:
        """Where to begin: the named checkpoint itself, if it is there and one of these, else the newest."""
        if before is not None:
            stored = await reads.leader_by_sequence(self._bus, self._stream, before)
            if stored is not None and stored.subject == self._subject:
                return Saved.of(stored)
        newest = await reads.last_from_leader(self._bus, self._stream, self._subject)
        return None if newest is None else Saved.of(newest)
