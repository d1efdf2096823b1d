"""`Command`: what a node returns that both writes to the state and says where to go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from .errors import InvalidUpdate
from .ground import Send

Goes = TypeVar("Goes", covariant=True)
START = "__start__"
"""Where a graph begins: the source of its first edges."""
END = "__end__"
"""Where a graph ends: the target of its last edges."""


@dataclass(frozen=True, slots=True)
class Command(Generic[Goes]):
    """`update` is written as if returned alone; `goto` (a node, END, a `Send`, or several) is taken instead of the
    node's edges. The node says where it may go: `node(..., goes=["b", "c"])`, or `-> Command[Literal["b", "c"]]`."""

    update: Mapping[str, Any] = field(default_factory=dict)
    goto: str | Send | Sequence[str | Send] | None = None

    def targets(self, source: str) -> tuple[str | Send, ...] | None:
        """Where to go; None: along the edges. Raises InvalidUpdate, which names `source`."""
        if self.goto is None or isinstance(self.goto, (str, Send)):
            return None if self.goto is None else (self.goto,)
        if not isinstance(self.goto, (list, tuple)) or not all(isinstance(one, (str, Send)) for one in self.goto):
            raise InvalidUpdate(
                f"{source} returned a Command with goto={self.goto!r}: give the name of a node, END, a Send, or a list "
                "of these",
                source=source,
            )
        return tuple(self.goto)

    def changes(self, source: str) -> dict[str, Any]:
        """What is written. Raises InvalidUpdate, which names `source`."""
        update: Any = self.update
        if update is not None and not isinstance(update, Mapping):
            raise InvalidUpdate(
                f"{source} returned a Command whose update is {type(update).__name__}: give a dict of the channels "
                "that change",
                source=source,
            )
        return dict(update or {})
