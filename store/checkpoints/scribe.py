"""The scribe of one chain of checkpoints: knows where each value of the newest one lies, and writes the next so that
only what has changed is stored."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from ...topics.messages import Cell, Checkpoint, encode
from .cell import Cells
from .piece import GROWING, SEALED_AT, Carrier, Growth, Piece, digest, joined
from .state import State

_SMALL = 256
"""Bytes up to which a value that has grown is written as a whole."""
_NO_ALIAS = 32
"""Bytes up to which a value is written again although another channel has the same."""


Changes = Mapping[str, bytes | None]
"""What has changed since the last checkpoint, by channel: the JSON array of the items that a list has grown by at its
end, or None where the value as a whole has to be looked at."""


@dataclass(slots=True)
class Sheet:
    """A checkpoint that is ready to be written, as soon as everything before it is stored."""

    frame: Checkpoint
    """What it says besides its values."""
    carrier: Carrier
    put: dict[str, Cell] = field(default_factory=dict)
    single: dict[str, Piece] = field(default_factory=dict)
    grown: dict[str, list[list[Piece]]] = field(default_factory=dict)
    parent: Carrier | None = None

    def body(self) -> bytes:
        """The message. Called when its turn has come: the messages that it refers to have their sequences by then."""
        kept, alias = {}, {}
        for name, piece in self.single.items():
            if piece.key != name:
                alias[name] = (piece.carrier.sequence, piece.key)
            elif piece.carrier is not self.carrier:
                kept[name] = piece.carrier.sequence
        return encode(
            replace(
                self.frame,
                parent=self.parent.sequence if self.parent else 0,
                put=self.put,
                kept=kept,
                alias=alias,
                grown={name: self._differences(levels) for name, levels in self.grown.items()},
            )
        )

    def _differences(self, levels: list[list[Piece]]) -> list[list[int]]:
        """The sequences as differences, 0 for the piece in this message itself."""
        found, last = [], 0
        for level in levels:
            numbers = []
            for piece in level:
                own = piece.carrier is self.carrier
                numbers.append(0 if own else piece.carrier.sequence - last)
                last = last if own else piece.carrier.sequence
            found.append(numbers)
        return found

    def written(self, sequence: int) -> None:
        """It is stored, under this sequence."""
        self.carrier.sequence = sequence


class Scribe:
    """Makes the sheets of one chain, each in the order in which it will be written.

    `flush` waits until all sheets made before are written; `read` gives the JSON of a piece. Where values are kept for
    `kept_s` seconds only, one older than half of that is written anew."""

    def __init__(
        self,
        cells: Cells,
        read: Callable[[Piece], Awaitable[bytes]],
        flush: Callable[[], Awaitable[None]],
        *,
        budget: int,
        kept_s: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cells, self._read, self._flush = cells, read, flush
        self._budget, self._kept_s, self._clock = budget, kept_s, clock
        self._scalars: dict[str, Piece] = {}
        self._grown: dict[str, Growth] = {}
        self._digests: dict[str, bytes] = {}
        self._parent: Carrier | None = None

    def resume(self, state: State) -> None:
        """Goes on from a checkpoint that was read."""
        self._parent = Carrier(state.saved.sequence, state.saved.time.timestamp())
        for name, raw in state.raws.items():
            levels = state.levels[name]
            if raw[:1] in GROWING and len(raw) > 1:
                self._grown[name] = Growth.loaded(levels, raw)
            else:
                self._scalars[name] = levels[0][0]
            self._digests[name] = digest(raw)

    async def sheet(
        self,
        frame: Checkpoint,
        names: Collection[str],
        dump: Callable[[str], bytes],
        changes: Changes | None = None,
        plan: bytes | None = None,
    ) -> Sheet:
        """The next checkpoint: the channels that have a value, and what gives its JSON; without `changes` each of them
        is looked at. Raises what `dump` does, and as `Blobs.put` does."""
        carrier = Carrier(written=self._clock())
        raws: dict[str, bytes] = {}
        known = {*self._scalars, *self._grown}
        for gone in known.difference(names):
            self._forget(gone)
        for name in names if changes is None else [name for name in changes if name in names]:
            items = None if changes is None else changes[name]
            growth = self._grown.get(name)
            if items is not None and growth is not None and _own(growth, name):
                if len(items) > 2:
                    await self._append(name, growth, items, carrier, raws)
            else:
                await self._look(name, dump(name), carrier, raws)
        for name in self._ageing(raws) if self._kept_s else ():
            self._replace(name, dump(name), carrier, raws)
        sheet = Sheet(frame, carrier, parent=self._parent)
        await self._fill(sheet, raws, plan)
        self._parent = carrier
        return sheet

    async def _look(self, name: str, raw: bytes, carrier: Carrier, raws: dict[str, bytes]) -> None:
        """Takes in a value that may have changed, or grown, or not."""
        growth = self._grown.get(name)
        rest = growth.rest(raw) if growth is not None else None
        if rest == b"" or (rest is None and self._digests.get(name) == digest(raw)):
            return
        if rest is not None and growth is not None and _own(growth, name):
            await self._append(name, growth, rest, carrier, raws)
        else:
            self._replace(name, raw, carrier, raws)

    def _replace(self, name: str, raw: bytes, carrier: Carrier, raws: dict[str, bytes]) -> None:
        mark = digest(raw)
        piece = self._same(name, mark) if len(raw) > _NO_ALIAS else None
        if piece is None or self._old(piece):
            piece = Piece(carrier, name, raw)
            raws[name] = raw
        self._forget(name)
        self._digests[name] = mark
        if raw[:1] in GROWING and len(raw) > 1:
            self._grown[name] = Growth(piece, raw)
        else:
            self._scalars[name] = piece

    def _same(self, name: str, mark: bytes) -> Piece | None:
        """The piece of another channel with the same value, if that lies in one."""
        for other, known in self._digests.items():
            if known == mark and other != name:
                growth = self._grown.get(other)
                pieces = growth.pieces if growth is not None else [self._scalars[other]]
                return pieces[0] if len(pieces) == 1 else None
        return None

    async def _append(self, name: str, growth: Growth, part: bytes, carrier: Carrier, raws: dict[str, bytes]) -> None:
        growth.grown(part)
        self._digests.pop(name, None)
        level = len(growth.levels) - 1
        growth.levels[level].append(Piece(carrier, name, part))
        raws[name] = part
        while len(growth.levels[level]) >= SEALED_AT:
            raws[name] = await self._sealed(growth.levels[level], raws[name])
            growth.levels[level] = []
            if level == 0:
                growth.levels.insert(0, [])
                level = 1
            level -= 1
            growth.levels[level].append(Piece(carrier, name, raws[name]))

    async def _sealed(self, pieces: list[Piece], newest: bytes) -> bytes:
        """The pieces of a level as one; the newest of them has just been made."""
        if any(piece.raw is None and not piece.carrier.sequence for piece in pieces[:-1]):
            await self._flush()
        parts = [await self._read(piece) if piece.raw is None else piece.raw for piece in pieces[:-1]]
        return joined([*parts, newest])

    def _old(self, piece: Piece) -> bool:
        return bool(self._kept_s) and self._clock() - piece.carrier.written > self._kept_s / 2

    def _ageing(self, fresh: Collection[str]) -> list[str]:
        """Channels of which a part would be gone before long."""
        old = [name for name, piece in self._scalars.items() if self._old(piece)]
        old += [name for name, growth in self._grown.items() if any(map(self._old, growth.pieces))]
        return [name for name in old if name not in fresh or name in self._grown]

    def _forget(self, name: str) -> None:
        self._scalars.pop(name, None)
        self._grown.pop(name, None)
        self._digests.pop(name, None)

    async def _fill(self, sheet: Sheet, raws: dict[str, bytes], plan: bytes | None) -> None:
        """The cells of what is new, the largest of them as blobs if all together are too much for a message; and where
        everything else lies."""
        size = sum(len(raw) for raw in raws.values() if len(raw) <= self._cells.inline_limit) + len(plan or b"")
        for name in sorted(raws, key=lambda name: -len(raws[name])):
            raw = raws[name]
            inline = len(raw) > self._cells.inline_limit or size <= self._budget
            size -= 0 if inline else len(raw)
            sheet.put[name] = await self._cells.make(raw, inline=inline)
        if plan is not None:
            sheet.frame = replace(sheet.frame, plan=await self._cells.make(plan))
        sheet.single = dict(self._scalars)
        for name, growth in self._grown.items():
            pieces = growth.pieces
            if len(pieces) == 1:
                sheet.single[name] = pieces[0]
            else:
                sheet.grown[name] = [list(level) for level in growth.levels]


def _own(growth: Growth, name: str) -> bool:
    """Whether a value is worth growing by a piece, and stands under its channel's own name."""
    return growth.length > _SMALL and growth.pieces[0].key == name
