"""A stretch of a log, encoded once and shared by all clients: its frames in one bytes object.

A frame is what goes over the wire for one entry:

    id: 1207
    event: step
    data: {"run":"…","sequence":1207,"time":"…","kind":"step","entry":{…}}
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from ...topics.reads import Stored
from .position import WHOLE, Position

Key = tuple[str, int, int]
"""(run, attempt, n): names an entry. A write that was repeated after a lost acknowledgement is stored twice."""
KINDS = ("state", "step", "effect", "message", "delta", "artifact", "checkpoint", "custom")

Kinds = frozenset[str]


class _Mark(msgspec.Struct):
    """The part of an entry that names it; decoding it also proves that the entry is JSON."""

    attempt: int = 0
    n: int = 0


_decode_mark = msgspec.json.Decoder(_Mark).decode
_decode_marks = msgspec.json.Decoder(list[_Mark]).decode
_decode_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode
_BROKEN = b'{"error":"not a JSON object or a list of them"}'


class Frame(NamedTuple):
    """One entry, encoded."""

    position: Position
    kind: str
    data: bytes


class Block:
    """All frames of a log in `(after, last]`, both stream sequences. Immutable."""

    __slots__ = ("_filtered", "_kinds", "_offsets", "_positions", "after", "data", "keys", "last")

    def __init__(self, after: int, last: int, frames: Sequence[Frame], keys: Iterable[Key] = ()) -> None:
        self.after, self.last = after, last
        self.data = b"".join([frame.data for frame in frames])
        self.keys = frozenset(keys)
        self._positions = [frame.position for frame in frames]
        self._kinds = [frame.kind for frame in frames]
        self._offsets: list[int] = []
        self._filtered: dict[Kinds, bytes] = {}
        total = 0
        for frame in frames:
            self._offsets.append(total)
            total += len(frame.data)

    def __len__(self) -> int:
        """How many frames it has."""
        return len(self._positions)

    @property
    def size(self) -> int:
        """About the bytes of memory it holds."""
        return len(self.data) + 200 * len(self._positions) + 200

    @property
    def end(self) -> Position:
        """The position of a client that has received it."""
        return self.last, WHOLE

    def read(self, after: Position, until: Position | None, kinds: Kinds | None) -> tuple[bytes, int]:
        """The frames in `(after, until]` of these kinds, joined, and how many they are."""
        first = bisect_right(self._positions, after)
        stop = len(self._positions) if until is None else bisect_right(self._positions, until)
        if kinds is None:
            return self._slice(first, stop), max(0, stop - first)
        chosen = [index for index in range(first, stop) if self._kinds[index] in kinds]
        if first == 0 and stop == len(self._positions):
            if kinds not in self._filtered:
                self._filtered[kinds] = b"".join([self._slice(index, index + 1) for index in chosen])
            return self._filtered[kinds], len(chosen)
        return b"".join([self._slice(index, index + 1) for index in chosen]), len(chosen)

    def _slice(self, first: int, stop: int) -> bytes:
        if first >= stop:
            return b""
        end = self._offsets[stop] if stop < len(self._offsets) else len(self.data)
        return self.data if first == 0 and end == len(self.data) else self.data[self._offsets[first] : end]


class Names(Protocol):
    """The names of entries that were seen."""

    def __contains__(self, key: object) -> bool: ...
    def add(self, key: Key, /) -> None:
        """Another one."""


def frames_of(stored: Stored, before: Container[Key], names: Names) -> list[Frame]:
    """The frames of one message, without entries in `before` or `names`; adds the names of the others to `names`."""
    _, run, kind = stored.subject.rsplit(".", 2)
    entries, marks = _entries(stored.data, kind)
    frames = []
    for index, (entry, mark) in enumerate(zip(entries, marks, strict=True), 1):
        if mark.n:
            key = (run, mark.attempt, mark.n)
            if key in names or key in before:
                continue
            names.add(key)
        frames.append(_frame(stored, run, kind, WHOLE if index == len(entries) else index, entry))
    return frames


def keys_of(stored: Stored) -> set[Key]:
    """The names of the entries of one message of a run's log."""
    names: set[Key] = set()
    frames_of(stored, (), names)
    return names


def block_of(after: int, messages: Sequence[Stored], before: Container[Key]) -> Block:
    """The block of consecutive messages of a log that follow sequence `after`; there is at least one."""
    names: set[Key] = set()
    frames: list[Frame] = []
    for stored in messages:
        frames += frames_of(stored, before, names)
    return Block(after, messages[-1].sequence, frames, names)


def _entries(data: bytes, kind: str) -> tuple[Sequence[bytes | msgspec.Raw], Sequence[_Mark]]:
    try:
        if data[:1] == b"[" and kind != "state":
            return _decode_raws(data), _decode_marks(data)
        return [data], [_decode_mark(data)]
    except msgspec.MsgspecError:
        return [_BROKEN], [_Mark()]


def _frame(stored: Stored, run: str, kind: str, part: int, entry: bytes | msgspec.Raw) -> Frame:
    sequence = stored.sequence
    body = bytes(entry)
    if b"\n" in body or b"\r" in body:  # written by hand: a line break would end the frame
        body = msgspec.json.format(body, indent=-1)
    name = str(sequence) if part == WHOLE else f"{sequence}.{part}"
    time = stored.headers.get("Nats-Time-Stamp", "")
    head = (
        f"id: {name}\nevent: {kind}\ndata: "
        f'{{"run":"{run}","sequence":{sequence},"time":"{time}","kind":"{kind}","entry":'
    )
    return Frame((sequence, part), kind, b"%b%b}\n\n" % (head.encode(), body))
