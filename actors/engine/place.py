"""Places: where in an agent's code an operation stands, the same in every attempt.

An operation is named by the order of the calls within its asyncio task: `0`, `1`, `2` … in the agent's own task,
`b0:0` for the first operation of the first task below it that used the context, `b0:b1:0` for one in a task below
that. So parallel branches count by themselves, whatever their timing; only the order in which branches use the
context for the first time must not depend on chance, and asyncio starts tasks in the order of their creation.
"""

from __future__ import annotations

import asyncio
import contextvars


class Scope:
    """The counter of one task of one attempt."""

    __slots__ = ("branches", "count", "owner", "prefix", "task")

    def __init__(self, owner: Places, prefix: str, task: asyncio.Task[object] | None) -> None:
        self.owner = owner
        self.prefix = prefix
        self.task = task
        self.count = 0
        self.branches = 0


_scope: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("callboard_scope", default=None)


class Places:
    """Gives each operation of one attempt its place."""

    def next(self) -> str:
        """The place of the operation that is called now."""
        task = asyncio.current_task()
        scope = _scope.get()
        if scope is None or scope.owner is not self:
            scope = self._enter(Scope(self, "", task))
        elif scope.task is not task:
            prefix = f"{scope.prefix}b{scope.branches}:"
            scope.branches += 1
            scope = self._enter(Scope(self, prefix, task))
        place = f"{scope.prefix}{scope.count}"
        scope.count += 1
        return place

    @staticmethod
    def _enter(scope: Scope) -> Scope:
        _scope.set(scope)
        return scope


def order(place: str) -> tuple[str, int]:
    """A place as scope and position in it."""
    prefix, colon, count = place.rpartition(":")
    return prefix + colon, int(count)
