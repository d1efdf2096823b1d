"""`Grown`: a list that only grows, so that a thousand snapshots of it cost one list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload


class Grown(Sequence[Any]):
    """The first `n` items of a list that later values share; immutable. Growing the newest value copies nothing."""

    __slots__ = ("_items", "_length", "positions")

    def __init__(self, items: list[Any], length: int | None = None) -> None:
        self._items = items
        self._length = len(items) if length is None else length
        self.positions: dict[Any, int] | None = None
        """Where a reducer notes the positions of items by some key; handed on as the list is."""

    def plus(self, items: Sequence[Any]) -> Grown:
        """The value with these items at its end. An older value than the newest is copied: two histories."""
        newest = len(self._items) == self._length
        base = self._items if newest else self.items()
        base.extend(items)
        grown = Grown(base)
        grown.positions = self.positions if newest else None
        return grown

    def items(self) -> list[Any]:
        """A list of one's own, with the same items."""
        return self._items[: self._length]

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self.items()[index]
        return self._items[range(self._length)[index]]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Grown):
            return self.items() == other.items()
        return self.items() == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.items())
