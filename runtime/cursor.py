"""How far an actor has come in the topics it subscribes to, for one partition of its keys.

`cb.actor.{actor}.{partition}` holds an `Ownership`; it is written by the owner only, under the fence of its own last
write. The write that names a new owner makes every later write of the old one fail: that is the whole of the lock.
"""

from __future__ import annotations

from collections import deque

import msgspec
from msgspec import Struct

from ..topics.errors import InvalidMessage


class TopicCursor(Struct, omit_defaults=True):
    """Every message up to stream sequence `floor` is handled, and those of `done` above it."""

    floor: int = 0
    done: list[int] = []
    tries: dict[int, int] = {}
    """Failed deliveries of messages that are not done."""


class Ownership(Struct, kw_only=True, omit_defaults=True):
    """Body of `cb.actor.{actor}.{partition}`."""

    owner: str
    """The host's id; empty when it was handed back."""
    cursors: dict[str, TopicCursor] = {}
    trying: tuple[str, int] | None = None
    """Topic and sequence of the one message in hand, while the owner is cautious (see Partition)."""


def read_ownership(data: bytes) -> Ownership:
    """The body of an ownership. Raises InvalidMessage."""
    try:
        return msgspec.json.decode(data, type=Ownership)
    except msgspec.MsgspecError as error:
        raise InvalidMessage(f"not an ownership of a partition: {error}") from error


class Progress:
    """One topic's cursor while it moves. Sequences are taken in ascending order and finished in any."""

    __slots__ = ("_done", "_order", "floor", "read", "tries", "wanted")

    def __init__(self, cursor: TopicCursor) -> None:
        self.floor = cursor.floor
        self.read = cursor.floor
        """The highest sequence that was read."""
        self.wanted = 0
        """The highest sequence that is known to be stored."""
        self.tries = dict(cursor.tries)
        self._done = set(cursor.done)
        self._order: deque[int] = deque()

    def take(self, sequence: int) -> bool:
        """A message was read; False if it was handled before."""
        self.read = sequence
        if sequence <= self.floor:
            return False
        self._order.append(sequence)
        if sequence in self._done:
            self._advance()
            return False
        return True

    def finish(self, sequence: int) -> None:
        """A message is handled."""
        self.tries.pop(sequence, None)
        self._done.add(sequence)
        self._advance()

    def _advance(self) -> None:
        while self._order and self._order[0] in self._done:
            self.floor = self._order.popleft()
            self._done.discard(self.floor)

    def cursor(self) -> TopicCursor:
        """What to store."""
        return TopicCursor(self.floor, sorted(self._done), dict(self.tries))
