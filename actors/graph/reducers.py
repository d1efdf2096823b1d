"""Reducers: what becomes of a channel when a node writes to it. Named by `Annotated[list[str], append]`.

    append     a list that grows; a list adds its items, anything else itself
    add        the sum: numbers, strings, whatever has `+`
    merge      a dict, updated key by key
    maximum    the largest value that was written
    union      a set that grows
    messages   a list of messages with ids: a known id replaces, `Remove(id)` takes out, others come on at the end

Any function `(old, update) -> new` is a reducer as well; its first `old` is the field's default, or what the field's
type gives when it is called. Reducers are applied in a fixed order, whatever the order in which nodes end.
"""

from __future__ import annotations

import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from .copying import copied
from .fitting import Fit, fitter
from .grown import Grown

T = TypeVar("T")
NOTHING: Any = type("Nothing", (), {"__repr__": lambda _: "NOTHING", "__slots__": ()})()
"""The value of a channel that has none."""


class Applied(NamedTuple):
    """The new value, and the items that were appended if that is all that happened."""

    value: Any
    appended: Sequence[Any] | None = None


class Reducer(ABC, Generic[T]):
    """How a channel takes updates. The reducers of this module are instances; authors name them, or pass a function."""

    name = ""
    grows = False
    """Values are `Grown` lists."""

    def empty(self, type_: Any) -> Any:
        """The value before the first update."""
        return NOTHING

    def update_type(self, type_: Any) -> Any:
        """The type of the updates of a channel of this type, as they are kept."""
        return type_

    def prepare(self, type_: Any) -> Fit:
        """Makes what a node returned an update, of `update_type`; raises EncodeError or DecodeError."""
        return fitter(self.update_type(type_))

    @abstractmethod
    def apply(self, old: Any, update: Any, mark: str) -> Applied:
        """The channel's next value. `mark` names the write, the same in every attempt."""

    def __repr__(self) -> str:
        return self.name


class _Append(Reducer[Any]):
    name = "append"
    grows = True

    def empty(self, type_: Any) -> Any:
        return Grown([])

    def prepare(self, type_: Any) -> Fit:
        whole, one = fitter(type_), fitter(item_type(type_))
        return lambda update: whole(update) if isinstance(update, list) else [one(update)]

    def apply(self, old: Any, update: Any, mark: str) -> Applied:
        return Applied(old.plus(update), update)


class _Add(Reducer[Any]):
    name = "add"

    def empty(self, type_: Any) -> Any:
        return made(type_)

    def apply(self, old: Any, update: Any, mark: str) -> Applied:
        return Applied(update if old is NOTHING else old + update)


class _Merge(Reducer[Any]):
    name = "merge"

    def empty(self, type_: Any) -> Any:
        return {}

    def apply(self, old: Any, update: Any, mark: str) -> Applied:
        return Applied({**old, **update})


class _Maximum(Reducer[Any]):
    name = "maximum"

    def apply(self, old: Any, update: Any, mark: str) -> Applied:
        return Applied(update if old is NOTHING or update > old else old)


class _Union(Reducer[Any]):
    name = "union"

    def empty(self, type_: Any) -> Any:
        return set()

    def prepare(self, type_: Any) -> Fit:
        fit = fitter(type_)
        return lambda update: fit(set(update) if isinstance(update, (list, tuple, frozenset)) else update)

    def apply(self, old: Any, update: Any, mark: str) -> Applied:
        return Applied(old | update)


class Custom(Reducer[Any]):
    """A function of the author's. It may return the list or dict that it was given; it is given copies."""

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        self.fn = fn
        self.name = getattr(fn, "__name__", type(fn).__name__)

    def empty(self, type_: Any) -> Any:  # noqa: D102
        return made(type_)

    def update_type(self, type_: Any) -> Any:
        """What the function's second parameter is annotated with; plain JSON without."""
        try:
            hints = typing.get_type_hints(self.fn, include_extras=True)
        except Exception:  # noqa: BLE001  # built-in functions, unresolved names: nothing is known
            return Any
        hints.pop("return", None)
        return list(hints.values())[1] if len(hints) == 2 else Any

    def apply(self, old: Any, update: Any, mark: str) -> Applied:  # noqa: D102
        return Applied(self.fn(None if old is NOTHING else copied(old), copied(update)))


def made(type_: Any) -> Any:
    """What the type gives when it is called without arguments: 0, "", [], {}."""
    kind = typing.get_origin(type_) or type_
    if kind in (int, float, str, bool, bytes, list, dict, set, tuple, frozenset):
        return kind()
    return NOTHING


def item_type(type_: Any) -> Any:
    """The type of a list's items."""
    inner = typing.get_args(type_)
    return inner[0] if typing.get_origin(type_) is list and inner else Any


append: Reducer[Any] = _Append()
add: Reducer[Any] = _Add()
merge: Reducer[Any] = _Merge()
maximum: Reducer[Any] = _Maximum()
union: Reducer[Any] = _Union()


def find_reducer(marks: Iterable[Any]) -> tuple[Reducer[Any] | None, list[Any]]:
    """The reducer among the marks of an `Annotated`, and the others."""
    found: list[Reducer[Any]] = []
    rest: list[Any] = []
    for mark in marks:
        if isinstance(mark, Reducer):
            found.append(mark)
        elif callable(mark) and not isinstance(mark, type):
            found.append(Custom(mark))
        else:
            rest.append(mark)
    return (found[-1] if found else None), rest
