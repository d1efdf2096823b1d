"""A state as it was read: a checkpoint, and the JSON of each channel's value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from ...topics.errors import InvalidMessage
from ...topics.messages import VERSION, Cell, Checkpoint
from ...topics.reads import Stored
from .piece import Piece

KIND = "checkpoint"
_decode = msgspec.json.Decoder(Checkpoint).decode


def is_checkpoint(kind: str) -> bool:
    """Whether events of this kind are checkpoints, of a run or of a subgraph in it."""
    return kind == KIND or kind.startswith(f"{KIND}@")


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint in the log."""

    run: str
    sequence: int
    time: datetime
    size_bytes: int
    """Of its message, without what lies in the object store."""
    checkpoint: Checkpoint

    @property
    def id(self) -> str:
        """Its name: the sequence of its message, as text."""
        return str(self.sequence)

    @property
    def parent(self) -> str | None:
        """The id of the checkpoint before it."""
        return str(self.checkpoint.parent) if self.checkpoint.parent else None

    @property
    def since(self) -> int:
        """Journal entries after this sequence are not in the state."""
        return self.checkpoint.since or self.sequence

    @property
    def channels(self) -> list[str]:
        """The channels that have a value, sorted."""
        found = self.checkpoint
        return sorted({*found.put, *found.kept, *found.alias, *found.grown})

    @classmethod
    def of(cls, stored: Stored) -> Saved:
        """From its message. Raises InvalidMessage."""
        return cls(stored.subject.split(".")[3], stored.sequence, stored.time, len(stored.data), decoded(stored))


@dataclass(frozen=True, slots=True)
class State:
    """A checkpoint with all its values."""

    saved: Saved
    raws: dict[str, bytes]
    """The JSON of each value, by channel."""
    levels: dict[str, list[list[Piece]]]
    """Where it lies."""
    plan: bytes | None
    """What the engine needs besides."""

    @property
    def values(self) -> dict[str, Any]:
        """The values as plain JSON."""
        return {name: msgspec.json.decode(raw) for name, raw in self.raws.items()}


def decoded(stored: Stored) -> Checkpoint:
    """The checkpoint in a message. Raises InvalidMessage."""
    try:
        found = _decode(stored.data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidMessage(
            f"message {stored.sequence} on {stored.subject} is no checkpoint: {error}", sequence=stored.sequence
        ) from error
    if found.v > VERSION:
        raise InvalidMessage(
            f"message {stored.sequence} on {stored.subject} was written by a newer Callboard (wire version {found.v}, "
            f"this one knows {VERSION}): upgrade",
            sequence=stored.sequence,
        )
    return found


def pointers(saved: Saved) -> dict[str, list[list[tuple[int, str]]]]:
    """Where the pieces of each channel lie, in levels: the sequence of a message, and the name in it."""
    own, found = saved.sequence, saved.checkpoint
    where = {name: [[(own, name)]] for name in found.put if name not in found.grown}
    where |= {name: [[(sequence, name)]] for name, sequence in found.kept.items()}
    where |= {name: [[(sequence or own, key)]] for name, (sequence, key) in found.alias.items()}
    for name, levels in found.grown.items():
        where[name], last = [], 0
        for level in levels:
            numbers = []
            for step in level:
                last = last + step if step else last
                numbers.append((last if step else own, name))
            where[name].append(numbers)
    return where


def cell_of(checkpoint: Checkpoint, key: str, sequence: int) -> Cell:
    """The value that a message holds under a name. Raises InvalidMessage."""
    cell = checkpoint.put.get(key)
    if cell is None:
        raise InvalidMessage(f"checkpoint {sequence} holds no value of {key!r}", sequence=sequence)
    return cell
