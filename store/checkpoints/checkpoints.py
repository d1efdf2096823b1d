"""Checkpoints of runs: everything that can be asked of them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from ...topics.bus import Bus
from ..blobs import Blobs
from ..threads import Threads
from .cell import Cells
from .difference import Difference, differences
from .editing import Edit, Editing
from .history import History
from .labels import Labels
from .prune import Choice, Pruned, Pruner
from .reader import Reader, id_number
from .scribe import Scribe
from .state import Saved, State

_DAY_S = 86_400.0


class Checkpoints:
    """Reads and writes `cb.run.{root}.{run}.checkpoint`, and `….checkpoint@{ns}` of subgraphs."""

    def __init__(self, bus: Bus, blobs: Blobs) -> None:
        self._bus = bus
        self.cells = Cells(bus, blobs)
        self.reader = Reader(bus, self.cells)
        self.labels = Labels(bus, self.reader)

    async def newest(self, run: str, namespace: str = "") -> Saved | None:
        """The newest checkpoint, without its values: one direct get."""
        return await self.reader.newest(run, namespace)

    async def load(self, run: str, checkpoint: str | None = None, namespace: str = "") -> State | None:
        """A checkpoint with its values, the newest unless `checkpoint` names one; None for a run that has none. What it
        costs does not depend on the length of the history. Raises as `Reader.state` does."""
        saved = await (self.newest(run, namespace) if checkpoint is None else self.reader.at(run, checkpoint))
        return None if saved is None else await self.reader.state(saved)

    def scribe(
        self, flush: Callable[[], Awaitable[None]], state: State | None = None, clock: Callable[[], float] = time.time
    ) -> Scribe:
        """Writes the chain that goes on from `state`, or a new one. `flush` waits until all its sheets are written."""
        scribe = Scribe(
            self.cells,
            self.reader.piece,
            flush,
            budget=self._bus.max_payload // 2,
            kept_s=self._bus.settings.retention_days * _DAY_S,
            clock=clock,
        )
        if state is not None:
            scribe.resume(state)
        return scribe

    async def history(
        self, run: str, *, before: str | None = None, limit: int = 50, namespace: str = ""
    ) -> list[Saved]:
        """At most `limit` checkpoints of a run, the newest first, only those before the one with the id `before`."""
        number = None if before is None else id_number(before)
        marks, newest = await self.labels.of(run), await self.newest(run, namespace)
        if newest is None:
            return []
        shown = lambda saved: saved.sequence == newest.sequence or marks.shows(saved)  # noqa: E731
        return await History(self._bus, run, namespace).page(number, limit, shown)

    async def difference(self, old: Saved, new: Saved) -> list[Difference]:
        """What differs between two checkpoints, which may be of two runs. Raises as `Reader.state` does."""
        return differences(await self.reader.state(old), await self.reader.state(new))

    async def prune(self, run: str, choice: Choice, *, dry_run: bool = False) -> Pruned:
        """See `Pruner.prune`."""
        return await Pruner(self._bus, self.labels).prune(run, choice, dry_run=dry_run)

    async def state_of_thread(self, thread: str) -> State | None:
        """The state of a thread: what the last run that left one there has left. None when there is none. Raises as
        `load` does."""
        tip = (await Threads(self._bus).head(thread)).order.state
        return None if tip is None else await self.reader.state(await self.reader.number(tip.checkpoint))

    async def update_state(
        self,
        run: str,
        values: Mapping[str, Any],
        *,
        append: Mapping[str, list[Any]] | None = None,
        remove: Collection[str] = (),
        as_node: str | None = None,
    ) -> Saved:
        """Gives channels new values, as the child of the newest checkpoint; gives that. Each value replaces the one
        that is there; items in `append` come on at the end of lists; what is in `remove` has no value any more.
        `as_node`: of a graph, the node that the edit is taken to come from: what follows it comes next.

        Only of a run that nobody carries out and that has not ended; the broker refuses it when that changes at the
        same moment. Raises IllegalTransition, which says what to do instead; InvalidInput when the new state does not
        fit the schema that the agent has registered; CheckpointMissing for a run without a state; EncodeError."""
        edit = Edit(values, append or {}, frozenset(remove), as_node)
        return await Editing(self._bus, self.reader).update(run, edit, self.scribe(_nothing))


async def _nothing() -> None:
    """There is nothing to wait for."""
