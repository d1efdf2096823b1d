"""The ground in memory: what `graph.run(...)` stands on. Lost with the process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from ...topics.errors import InvalidInput
from ..answer import Answer
from .ground import Question, Said, Shape, Snapshot, Task, Unanswered, Writes, names_of, task_of
from .local_context import LocalContext, LocalHost, mismatch
from .watching import below

_CALL = re.compile(r".*#\d+/")
_NONE: Mapping[str, Writes] = {}


@dataclass
class Memory:
    """Everything that one execution leaves behind. Places begin with superstep and task, as `2/review#0`."""

    snapshots: dict[str, list[Snapshot]] = field(default_factory=dict)
    """By namespace, oldest first. The n-th has the id `c{n}`, behind its namespace."""
    notes: dict[tuple[str, int], dict[str, Writes]] = field(default_factory=dict)
    """By namespace and superstep, and then by task key."""
    done: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """By place: the name of an operation inside a node, and what it gave, as JSON."""
    asked: dict[str, str] = field(default_factory=dict)
    """By place: the id of the question that was asked there."""
    open: dict[str, Question] = field(default_factory=dict)
    """By id: the questions that the execution stopped at."""
    answers: dict[str, Answer] = field(default_factory=dict)
    """By id."""
    artifacts: dict[str, Any] = field(default_factory=dict)
    """By name: the newest content."""
    said: list[Any] = field(default_factory=list)
    base: Snapshot | None = None
    keep: bool = True
    """Whether the history is kept, or only the newest snapshot of each namespace."""

    def answer(self, place: str, question: Question) -> Answer:
        """The answer to the question of this place. Raises Unanswered, JournalMismatch, InvalidInput."""
        name, names = self.asked.get(place), names_of(question, place)
        if name is None:
            name = self.asked[place] = self._name(place, names)
        elif name not in (*names, place):
            raise mismatch(place, f"interrupt {name!r}", f"interrupt {names[0]!r}")
        if name in self.answers:
            return self.answers[name]
        self.open[name] = question
        raise Unanswered(question)

    def _name(self, place: str, names: tuple[str, ...]) -> str:
        """The first of the ids that no other question of this run has; the place, if another run of the tree has it."""
        used = {name: one for one, name in self.asked.items()}
        holder = used.get(names[0])
        if holder is None or _run(holder) != _run(place):
            return names[0] if holder is None else place
        if task_of(holder) == task_of(place):
            raise InvalidInput(
                f"interrupt id {names[0]!r} is asked twice: add what differs, such as a number", interrupt=names[0]
            )
        return next((one for one in names if one not in used), place)

    def history(self, namespace: str = "") -> list[Snapshot]:
        """All snapshots of a namespace, oldest first, with their ids."""
        prefix, parent = f"{namespace}|" if namespace else "", ""
        if self.base is not None and not namespace:
            parent = self.base.id
        found = []
        for at, one in enumerate(self.snapshots.get(namespace, ())):
            found.append(replace(one, id=f"{prefix}c{at}", parent=parent))
            parent = found[-1].id
        return found

    def upto(self, number: int) -> Memory:
        """What was there when the n-th snapshot of the root was made; what came later has not happened."""
        root = self.snapshots[""][: number + 1]
        last = root[-1].step

        def before(place: str) -> bool:
            return int(place.partition("/")[0]) <= last

        asked = {place: name for place, name in self.asked.items() if before(place)}
        return Memory(
            snapshots={"": root} | {ns: list(all_) for ns, all_ in self.snapshots.items() if ns and before(ns)},
            done={place: one for place, one in self.done.items() if before(place)},
            asked=asked,
            answers={name: self.answers[name] for name in asked.values() if name in self.answers},
            said=list(self.said),
            base=self.base,
        )


def _run(place: str) -> str:
    """The part of a place that names the call of an agent in which it lies; empty in the root's own code."""
    found = _CALL.match(place)
    return found[0] if found else ""


class MemoryDesk:
    """What one task may ask; the scope in which it runs as well, since places follow from the task."""

    __slots__ = ("_context", "_host", "_place")

    def __init__(self, host: LocalHost, place: str) -> None:
        self._host, self._place = host, place
        self._context: LocalContext | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    @property
    def context(self) -> LocalContext:
        """The node's `ctx`, made when it is asked for."""
        if self._context is None:
            self._context = LocalContext(self._host, self._place)
        return self._context

    def again(self) -> None:
        """A try begins: what an earlier one has finished is remembered."""
        if self._context is not None:
            self._context.again()

    def answer(self, question: Question) -> Answer:
        """The answer to a question of this task."""
        return self._host.answer(f"{self._place}?{question.index}", question)


class MemoryGround:
    """One namespace of an execution in memory; see `Ground` for what each method promises."""

    def __init__(self, host: LocalHost, namespace: str = "") -> None:
        self._host, self._memory, self._namespace = host, host.memory, namespace
        self._prefix = f"{namespace}|" if namespace else ""
        self._snapshots = self._memory.snapshots.setdefault(namespace, [])
        self._count = len(self._snapshots)

    async def load(self) -> Snapshot | None:  # noqa: D102  # Ground says it
        return self._snapshots[-1] if self._snapshots else None

    async def edited(self, snapshot: Snapshot) -> Snapshot:  # noqa: D102
        return snapshot

    async def base(self) -> Snapshot | None:  # noqa: D102
        return None if self._namespace else self._memory.base

    async def save(self, snapshot: Snapshot, *, last: bool = False) -> str:  # noqa: D102
        name = f"{self._prefix}c{self._count}"
        self._count += 1
        if not self._memory.keep:
            self._snapshots.clear()
        self._snapshots.append(snapshot)
        if self._memory.notes:
            self._memory.notes.pop((self._namespace, snapshot.step), None)
        return name

    async def flush(self) -> None:  # noqa: D102
        return None

    def noted(self, step: int) -> Mapping[str, Writes]:  # noqa: D102
        return self._memory.notes.get((self._namespace, step), _NONE) if self._memory.notes else _NONE

    async def note(self, step: int, task: Task, writes: Writes) -> None:  # noqa: D102
        self._memory.notes.setdefault((self._namespace, step), {})[task.key] = writes

    def inside(self, step: int, task: Task, tries: int = 1) -> MemoryDesk:  # noqa: D102
        return MemoryDesk(self._host, f"{self._prefix}{step}/{task.key}")

    def asked(self, question: Question) -> Answer:  # noqa: D102
        return self._host.answer(f"{self._prefix}{question.step}/{question.task}!{question.when}", question)

    def ask(self) -> None:  # noqa: D102
        return None

    async def heard(self, position: int) -> Said | None:  # noqa: D102
        said = self._memory.said
        return Said(tuple(said[position:]), len(said)) if len(said) > position and not self._namespace else None

    def below(self, step: int, task: Task, shape: Shape) -> MemoryGround:  # noqa: D102
        host = self._host
        watch = None if host.watch is None else host.watch.below(step, task.key)
        return MemoryGround(LocalHost(self._memory, watch), below(self._namespace, step, task.key))
