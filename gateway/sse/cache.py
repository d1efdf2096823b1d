"""Encoded history that all event streams of this process share, bounded in bytes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from .block import Block, Key

_Place = tuple[str, int]


class BlockCache:
    """Least recently used blocks go first. A log never changes, so a block is valid for as long as it is kept."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._blocks: OrderedDict[_Place, Block] = OrderedDict()
        self._ends: dict[_Place, Block] = {}
        self._loading: dict[_Place, asyncio.Task[Block | None]] = {}
        self.size = 0

    async def get(
        self, subject: str, after: int, load: Callable[[int, frozenset[Key]], Awaitable[Block | None]]
    ) -> Block | None:
        """The block of `subject` that follows sequence `after`; None at the end of the log.

        Who asks while another loads the same block waits for that one. Raises what `load` raises."""
        place = (subject, after)
        block = self._blocks.get(place)
        if block is not None:
            self._blocks.move_to_end(place)
            return block
        task = self._loading.get(place)
        if task is None:
            task = asyncio.create_task(self._load(place, load), name="sse-block")
            self._loading[place] = task
            task.add_done_callback(lambda _: self._loading.pop(place, None))
        return await asyncio.shield(task)

    async def _load(
        self, place: _Place, load: Callable[[int, frozenset[Key]], Awaitable[Block | None]]
    ) -> Block | None:
        previous = self._ends.get(place)
        block = await load(place[1], previous.keys if previous is not None else frozenset())
        if block is not None:
            self._keep(place, block)
        return block

    def _keep(self, place: _Place, block: Block) -> None:
        if block.size > self._limit // 4:
            return
        self._blocks[place] = block
        self._ends[place[0], block.last] = block
        self.size += block.size
        while self.size > self._limit:
            (subject, _), old = self._blocks.popitem(last=False)
            self.size -= old.size
            if self._ends.get((subject, old.last)) is old:
                del self._ends[subject, old.last]
