"""The newest part of a log: blocks in a row, bounded in bytes, so that a client that keeps up never reads the log."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from .block import Block, Kinds
from .position import Position, log_after

_CHUNK = 128 * 1024


class Chunk(NamedTuple):
    """What one client is sent at once: joined frames, how many, and the position after them."""

    data: bytes
    frames: int
    end: Position


class Tail:
    """Blocks that cover `(base, end]` without a hole; `base` moves up as old blocks go."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._blocks: list[Block] = []
        self._lasts: list[int] = []
        self._size = 0
        self._chunks: dict[tuple[Position, Position | None, Kinds | None], Chunk | None] = {}
        self.base = 0
        self.end = 0

    def begin(self, sequence: int) -> None:
        """Starts after `sequence`: what lies before is history."""
        self.base = self.end = sequence

    def add(self, block: Block) -> None:
        """Appends the block that follows `end`."""
        self._blocks.append(block)
        self._lasts.append(block.last)
        self._size += block.size
        self.end = block.last
        self._chunks.clear()
        gone = 0
        while self._size > self._limit and gone < len(self._blocks) - 1:
            self._size -= self._blocks[gone].size
            gone += 1
        if gone:
            self.base = self._lasts[gone - 1]
            del self._blocks[:gone], self._lasts[:gone]

    def chunk(self, after: Position, until: Position | None, kinds: Kinds | None) -> Chunk | None:
        """What follows `after`, which must not lie before `base`; None when there is nothing yet.

        Clients at the same place are given the same bytes."""
        key = (after, until, kinds)
        if key not in self._chunks:
            self._chunks[key] = self._join(after, until, kinds)
        return self._chunks[key]

    def _join(self, after: Position, until: Position | None, kinds: Kinds | None) -> Chunk | None:
        parts: list[bytes] = []
        size = count = 0
        end: Position | None = None
        for index in range(bisect_right(self._lasts, log_after(after)), len(self._blocks)):
            block = self._blocks[index]
            data, frames = block.read(after, until, kinds)
            parts.append(data)
            size, count, end = size + len(data), count + frames, block.end
            if size >= _CHUNK:
                break
        if end is None:
            return None
        return Chunk(parts[0] if len(parts) == 1 else b"".join(parts), count, end)
