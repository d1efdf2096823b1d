"""Pieces: where a channel's value lies. A value that grows at its end lies in several, which are joined."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence

GROWING = b'[{"'
"""First bytes of the JSON values that can grow at their end: lists, objects, texts."""
SEALED_AT = 32
"""So many pieces of one level become one of the next: a value is read from at most 31 pieces a level, and each of its
bytes is written again once for each factor of 32 in the number of its pieces."""
_KEPT_BYTES = 16 * 1024
_LEVEL_BYTES = 4096


class Carrier:
    """A message with values of a checkpoint."""

    __slots__ = ("sequence", "written")

    def __init__(self, sequence: int = 0, written: float = 0.0) -> None:
        self.sequence = sequence
        """Its stream sequence; 0 until it is stored."""
        self.written = written or time.time()


class Piece:
    """A value, or a part of one, in a message under a name."""

    __slots__ = ("carrier", "key", "raw", "size")

    def __init__(self, carrier: Carrier, key: str, raw: bytes) -> None:
        self.carrier, self.key, self.size = carrier, key, len(raw)
        self.raw: bytes | None = raw if len(raw) <= _KEPT_BYTES else None
        """Its JSON, unless it is large."""


def digest(raw: bytes) -> bytes:
    """What tells whether two values are equal."""
    return hashlib.blake2b(raw, digest_size=16).digest()


def joined(parts: Sequence[bytes]) -> bytes:
    """The JSON value that was cut into these parts at its end: lists, objects or texts, the first part in front."""
    filled = [part for part in parts if len(part) > 2] or parts[:1]  # without what is empty
    if len(filled) == 1:
        return filled[0]
    glue = b"" if filled[0][:1] == b'"' else b","
    return filled[0][:1] + glue.join(part[1:-1] for part in filled) + filled[0][-1:]


class Growth:
    """A channel whose value can grow at its end: its pieces in levels, the last level for the newest pieces; and what
    tells whether a new value begins with the present one."""

    __slots__ = ("_hash", "length", "levels")

    def __init__(self, piece: Piece, raw: bytes) -> None:
        self.levels: list[list[Piece]] = [[piece]] + [[] for _ in range(_level_of(len(raw)))]
        self.length = len(raw)
        """Bytes of the value's JSON."""
        self._hash = hashlib.blake2b(raw[:-1], digest_size=16)

    @classmethod
    def loaded(cls, levels: Iterable[Iterable[Piece]], raw: bytes) -> Growth:
        """As it was read."""
        known = [list(level) for level in levels]
        found = cls(known[0][0] if known[0] else known[-1][0], raw)
        if sum(map(len, known)) > 1:
            found.levels = known
        return found

    @property
    def pieces(self) -> list[Piece]:
        """All pieces, the oldest first."""
        return [piece for level in self.levels for piece in level]

    def rest(self, raw: bytes) -> bytes | None:
        """What `raw` has more than the present value, as a value of its own (empty when they are equal); None when it
        does not begin with it."""
        here = self.length - 1
        if len(raw) < self.length or hashlib.blake2b(raw[:here], digest_size=16).digest() != self._hash.digest():
            return None
        if len(raw) == self.length:
            return b""
        glue = b"" if raw[:1] == b'"' else b","
        if self.length <= 2 or raw[here : here + len(glue)] != glue:
            return None
        return raw[:1] + raw[here + len(glue) :]

    def grown(self, part: bytes) -> None:
        """The value has grown by `part`, which is not empty and was not taken for a piece yet."""
        glue = b"" if part[:1] == b'"' else b","
        self._hash.update(glue + part[1:-1])
        self.length += len(part) - 2 + len(glue)


def _level_of(size: int) -> int:
    """How many levels are below a value that comes as a whole: small ones are soon sealed with what follows them."""
    level = 0
    while size > _LEVEL_BYTES:
        size, level = size // SEALED_AT, level + 1
    return level
