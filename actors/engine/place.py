"""Places: where in an agent's code an operation stands, the same in every attempt.

An operation is named by the order of the calls within its asyncio task: `0`, `1`, `2` … in the agent's own task, `b0:0`
for the first operation of the first task that it created, `b0:b1:0` for one in a task below that, and `3s:0` for one
that the function of step `3` asks for. So parallel branches count by themselves, whatever their timing: a branch has
its number from the moment in which its task was created (the worker's loop has a task factory for that). What must not
depend on chance is the order in which the code of an agent, outside of its steps, calls the context and creates tasks.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class Tries:
    """The tries of one execution of a node, each of which asks for its operations from the first on. One that another
    try has finished keeps its place, and so is remembered; any other gets a place of this try, and is done anew."""

    __slots__ = ("_finished", "_now", "_prefixes")

    def __init__(self, place: str, most: int, finished: Callable[[str], bool]) -> None:
        self._prefixes = [f"{place}:", *(f"{place}:r{number}:" for number in range(2, most + 1))]
        self._finished, self._now = finished, -1

    def again(self) -> None:
        """A try begins."""
        self._now = min(self._now + 1, len(self._prefixes) - 1)

    def place(self, within: str) -> str:
        """Where the operation stands that has this place within its try."""
        for prefix in self._prefixes:
            if self._finished(prefix + within):
                return prefix + within
        return self._prefixes[max(self._now, 0)] + within


_TRY = re.compile(r":r\d+:")


def untried(place: str) -> str:
    """The place of an operation, the same in each try of its node."""
    return _TRY.sub(":", place)


class Scope:
    """The counter of one task of one attempt."""

    __slots__ = ("_task", "branches", "count", "owner", "prefix", "tries")

    def __init__(self, owner: Places, prefix: str, task: asyncio.Task[Any] | None, tries: Tries | None = None) -> None:
        self.owner = owner
        self.prefix = prefix
        self._task = None if task is None else weakref.ref(task)  # whose context holds this scope
        self.tries = tries
        """Of a node that may be tried again; `prefix` is that within a try."""
        self.again()

    def again(self) -> None:
        """Counts from the first operation."""
        self.count = 0
        self.branches = 0

    @property
    def begun(self) -> bool:
        """Whether its task has begun to use it."""
        return self._task is not None

    def begin(self, task: asyncio.Task[Any] | None) -> None:
        """This task is the one that it counts for."""
        self._task = None if task is None else weakref.ref(task)

    def is_of(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether it counts for this task."""
        return self._task is not None and self._task() is task

    def branch(self) -> Scope:
        """The scope of the next task below this one."""
        prefix = f"{self.prefix}b{self.branches}:"
        self.branches += 1
        return Scope(self.owner, prefix, None, self.tries)


_scope: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("callboard_scope", default=None)


class Places:
    """Gives each operation of one attempt its place, and its name (`run … of agent …`) to each task of its code."""

    def __init__(self, title: str = "run") -> None:
        self.title = title

    def enter(self, position: tuple[int, int] | None = None) -> None:
        """The task that calls this is the agent's own. It counts on from `position`, where a checkpoint was."""
        scope = Scope(self, "", asyncio.current_task())
        scope.count, scope.branches = position or (0, 0)
        _scope.set(scope)

    def next(self) -> str:
        """The place of the operation that is called now."""
        scope = _scope.get()
        task = asyncio.current_task()
        if scope is None or scope.owner is not self:
            scope = Scope(self, "x:", task)  # called by a task that is no descendant of the agent's own
            _scope.set(scope)
        elif not scope.begun:
            scope.begin(task)
        elif not scope.is_of(task):  # a task that was created past the loop's factory
            scope = scope.branch()
            scope.begin(task)
            _scope.set(scope)
        place = f"{scope.prefix}{scope.count}"
        scope.count += 1
        return place if scope.tries is None else scope.tries.place(place)

    @property
    def own(self) -> bool:
        """Whether the task that asks is the agent's own, outside of its steps."""
        scope = _scope.get()
        if scope is None or scope.owner is not self or scope.prefix or scope.tries is not None:
            return False
        return scope.is_of(asyncio.current_task())

    def position(self) -> tuple[int, int]:
        """How many operations and branches the agent's own task, which asks, has asked for."""
        scope = _scope.get()
        assert scope is not None
        return scope.count, scope.branches

    @contextmanager
    def inside(self, place: str) -> Iterator[None]:
        """Operations that the function of the step at `place` asks for count by themselves: they are not asked for when
        the step is remembered."""
        token = _scope.set(Scope(self, f"{place}s:", asyncio.current_task()))
        try:
            yield
        finally:
            _scope.reset(token)

    @contextmanager
    def within(self, place: str, tries: Tries | None = None) -> Iterator[Scope]:
        """The node of a graph at `place` counts by itself."""
        scope = Scope(self, f"{place}:" if tries is None else "", asyncio.current_task(), tries)
        token = _scope.set(scope)
        try:
            yield scope
        finally:
            _scope.reset(token)


def apart(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task of the engine's own, begun by an agent's call: it is no branch of the agent's code."""
    context = contextvars.copy_context()
    context.run(_scope.set, None)
    return asyncio.get_running_loop().create_task(coroutine, context=context)


class _Factory:
    """Gives each task that an agent's code creates its branch; others pass through."""

    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        if options.get("context") is None:
            scope = _scope.get()
            if scope is not None:
                options["context"] = context = contextvars.copy_context()
                context.run(_scope.set, scope.branch())
                if options.get("name") is None:
                    options["name"] = scope.owner.title
        if self._before is None:
            return asyncio.Task(coroutine, loop=loop, **options)
        return self._before(loop, coroutine, **options)


def number_branches(loop: asyncio.AbstractEventLoop) -> None:
    """Has the tasks of agents on this loop numbered as they are created; a factory that was set before stays in use."""
    before = loop.get_task_factory()
    if not isinstance(before, _Factory):
        loop.set_task_factory(_Factory(before))
