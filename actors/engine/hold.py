"""Durable waits: what an attempt waits for that needs no process, and when it is time to let go of the worker's
slot."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from msgspec.structs import replace

from ...topics import units
from ...topics.messages import ErrorInfo, Interrupt, UnknownEffect, encode

_RECHECK_S = 0.05
_SHORT_CHARS = 300
LEFT_OUT = timedelta(seconds=30)
_QUESTION_S = 0.05
"""A person takes longer than any patience: a run that needs one is let go of at once."""


class Group:
    """Children that are waited for together: the run need not wake before all of them have ended."""

    __slots__ = ("children",)

    def __init__(self) -> None:
        self.children: set[str] = set()


class _Unit:
    """A part of the code that works by itself beside others: what it waits for, counted. Parts inside of it count too:
    they wait or work in its place."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting = 0


_unit: contextvars.ContextVar[_Unit | None] = contextvars.ContextVar("callboard_unit", default=None)


class _Working:
    """A class, because a generator would cost each step a microsecond."""

    __slots__ = ("_hold",)

    def __init__(self, hold: Hold) -> None:
        self._hold = hold

    def __enter__(self) -> None:
        self._hold.at_work += 1

    def __exit__(self, *error: object) -> None:
        self._hold.at_work -= 1


class Hold:
    """Knows what the attempt waits for. After `patience()` seconds of waiting with no step under way, `suspend` is
    called."""

    def __init__(self, patience: Callable[[], float], suspend: Callable[[], None]) -> None:
        self._patience, self._suspend = patience, suspend
        self._groups: dict[Group, int] = {}
        self._sleeps: list[datetime] = []
        self.unknown: list[UnknownEffect] = []
        """What a person has to decide before the code can go on."""
        self.asked: list[Interrupt] = []
        """The interrupts that are open, in the order in which they were asked."""
        self.hearing = 0
        """How many of the code's branches wait for a message."""
        self.news = False
        """Something that is waited for may have ended: it is looked at before the attempt is let go of."""
        self.at_work = 0
        """How many steps are under way."""
        self._units: set[_Unit] = set()
        self._timer: asyncio.Handle | None = None
        self._since = 0.0

    def working(self) -> _Working:
        """A step is under way: it would be lost, so the attempt is not suspended."""
        return _Working(self)

    @contextmanager
    def unit(self) -> Iterator[None]:
        """A node of a graph is at work: the attempt is not suspended unless each node that is waits for something."""
        unit, around = _Unit(), _unit.get()
        self._units.add(unit)
        token = _unit.set(unit)
        if around is not None:
            around.waiting += 1
        try:
            yield
        finally:
            _unit.reset(token)
            self._units.discard(unit)
            if around is not None:
                around.waiting -= 1

    @contextmanager
    def for_child(self, group: Group, child: str) -> Iterator[None]:
        """The code waits for a child run."""
        group.children.add(child)
        self._groups[group] = self._groups.get(group, 0) + 1
        self._waits()
        try:
            yield
        finally:
            group.children.discard(child)
            self._groups[group] -= 1
            if not self._groups[group]:
                del self._groups[group]
            self._disarm()

    @contextmanager
    def until(self, moment: datetime) -> Iterator[None]:
        """The code waits for a moment."""
        self._sleeps.append(moment)
        self._waits()
        try:
            yield
        finally:
            self._sleeps.remove(moment)
            self._disarm()

    @contextmanager
    def for_person(self, question: UnknownEffect) -> Iterator[None]:
        """The code waits for a person's word on an effect: no attempt outlives that."""
        self.unknown.append(question)
        self._waits()
        try:
            yield
        finally:
            self.unknown.remove(question)
            self._disarm()

    @contextmanager
    def for_answer(self, interrupt: Interrupt) -> Iterator[None]:
        """The code waits for an answer: no attempt outlives that, unless it has something else to do."""
        self.asked.append(interrupt)
        self._waits()
        try:
            yield
        finally:
            self.asked.remove(interrupt)
            self._disarm()

    @contextmanager
    def for_message(self) -> Iterator[None]:
        """The code waits for a message to the run."""
        self.hearing += 1
        self._waits()
        try:
            yield
        finally:
            self.hearing -= 1
            self._disarm()

    @property
    def busy(self) -> bool:
        """Whether anything is under way or waited for."""
        return bool(self.at_work or self._pending)

    @property
    def children(self) -> set[str]:
        """All children that are waited for at this moment."""
        return {child for group in self._groups for child in group.children}

    def groups(self, limit: int) -> list[list[str]]:
        """The groups with the suffixes of their children, at most `limit` names in all: a longer group is cut,
        which only means that the run wakes early and waits for the rest. When groups are left out, see `look_at`."""
        found: list[list[str]] = []
        for group in self._groups:
            names = sorted(child.partition("~")[2] for child in group.children)[:limit]
            limit -= len(names)
            if names:
                found.append(names)
            if limit <= 0:
                break
        return found

    def questions(self, room: int) -> list[UnknownEffect]:
        """The effects that a person is asked about, without the traces of their errors: the first ones, as many as have
        room in so many bytes, and one at least. The run asks for the others once it has been told of these."""
        found: list[UnknownEffect] = []
        for one in self.unknown:
            asked = replace(one, error=one.error and _in_short(one.error))
            room -= len(encode(asked))
            if found and room < 0:
                break
            found.append(asked)
        return found

    def look_at(self, groups: int) -> datetime | None:
        """The next moment that is waited for. A run that waits for more groups of children than so many, which it can
        tell of, looks now and then whether one of the others has ended."""
        left_out = [units.now() + LEFT_OUT] if groups < len(self._groups) else []
        return min([*self._sleeps, *left_out], default=None)

    @property
    def _active(self) -> bool:
        return self.news or self.at_work > 0 or any(not unit.waiting for unit in self._units)

    @property
    def _pending(self) -> bool:
        return bool(self._groups or self._sleeps or self.unknown or self.asked or self.hearing)

    def _limit(self) -> float:
        return min(_QUESTION_S, self._patience()) if self.unknown or self.asked else self._patience()

    def _waits(self) -> None:
        unit = _unit.get()
        if unit is not None:
            unit.waiting += 1
        if self._timer is None:
            self._since = asyncio.get_running_loop().time()
            self._arm()

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        left = self._since + self._limit() - loop.time()
        soon = _RECHECK_S if self._active else min(max(left, 0.001), _RECHECK_S)
        self._timer = loop.call_later(soon, self._expired)

    def _disarm(self) -> None:
        unit = _unit.get()
        if unit is not None:
            unit.waiting -= 1
        if not self._pending and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expired(self) -> None:
        """Looks again now and then: patience ends sooner when others come to want the slot."""
        self._timer = None
        if not self._pending:
            return
        loop = asyncio.get_running_loop()
        if self._active or loop.time() < self._since + self._limit():
            self._arm()
        else:
            self._timer = loop.call_soon(self._let_go)

    def _let_go(self) -> None:
        """A turn of the loop later: what a part of the code that has just ended has set going is known by now, as a
        question that it asks."""
        self._timer = None
        if not self._pending:
            return
        if self._active:
            self._arm()
        else:
            self._suspend()

    def close(self) -> None:
        """No suspension any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _in_short(error: ErrorInfo) -> ErrorInfo:
    return replace(error, message=error.message[:_SHORT_CHARS], traceback=None, details=None)
