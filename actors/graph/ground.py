"""What the superstep engine stands on: where it begins, what it leaves behind, and whom its nodes may ask.

The engine knows nothing of messages or disks. `Ground` is one namespace of one execution: the root graph has one, each
subgraph has its own below it. In process it is a dictionary, on a worker the run's log; the engine is the same.

How an execution goes on a ground, in this order:

1. `load()`: the newest snapshot of this namespace. Without one the engine applies the input to `base()` (or to
   nothing), plans the first tasks, and `save()`s that as superstep 0 with source "input".
2. For superstep n+1: the tasks are `snapshot.next`. Those in `noted(n + 1)` ended in an earlier attempt: their writes
   are taken as they are. The others run, each inside `inside(n + 1, task)`. One that ends while others are at work, or
   have failed, is `note()`d.
3. When all have ended: their writes are reconciled in the order of `snapshot.next`, what was `heard()` is added, the
   next tasks are planned, and the new snapshot is `save()`d. If one failed, its error is raised; if one asked a
   question that has no answer yet, `Unanswered` is raised with all open questions, after the others have ended; in
   both cases after `flush()`.
4. `next` is empty: `save(..., last=True)` was the last call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..answer import Answer
from ..migrations import Migration

Source = Literal["input", "loop", "update", "fork"]
When = Literal["inside", "before", "after"]
Durability = Literal["sync", "async", "exit"]
"""When a snapshot is durable: before the next superstep begins; soon after, at most a few behind; or only at the end
and before a question."""


@dataclass(frozen=True, slots=True)
class Task:
    """One execution of a node that is planned for the next superstep."""

    node: str
    number: int | None = None
    """None: the node reads the state. Else the task was sent with an `input` of its own, as the n-th to this node."""
    input: Any = None

    @property
    def key(self) -> str:
        """What names the task within its superstep: `node`, or `node#2`. Stable over attempts."""
        return self.node if self.number is None else f"{self.node}#{self.number}"


@dataclass(frozen=True, slots=True)
class Send:
    """Runs `node` in the next superstep with `input` instead of the state: fan-out with an input for each item.

    A dict for a node that takes the state itself gives that node the state with these channels replaced."""

    node: str
    input: Any


@dataclass(frozen=True, slots=True)
class Writes:
    """What one finished task leaves to be reconciled."""

    updates: Mapping[str, Any] = field(default_factory=dict)
    """By channel; in the form that the channel's `prepare` gave it."""
    goto: tuple[str | Send, ...] | None = None
    """Where to go instead of along the node's edges; None: along its edges."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state after a superstep, and everything that the engine needs to go on from it.

    Immutable; values are shared between snapshots and never handed to nodes without a copy. A snapshot says what it
    changed: a channel in neither `replaced` nor `appended` has the very value that its parent has."""

    step: int
    """How many supersteps are done; 0 after the input."""
    source: Source
    values: Mapping[str, Any]
    """By channel, in the channel's own form (see `Shape`). A channel without a value is absent."""
    replaced: tuple[str, ...] = ()
    """Channels with a new whole value; sorted."""
    appended: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Channels that only grew, with the items that came on at the end."""
    next: tuple[Task, ...] = ()
    """The tasks of the next superstep in the order in which they are reconciled. Empty: the graph has ended."""
    ran: tuple[str, ...] = ()
    """Keys of the tasks that made this snapshot, in order; empty unless the source is "loop"."""
    joins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Joins that wait: by name of the join, the sources that have come; sorted."""
    deferred: tuple[Task, ...] = ()
    """Tasks of deferred nodes, which wait until nothing else is planned."""
    heard: int = 0
    """Position up to which what was said to the run is in the state; see `Ground.heard`."""
    id: str = ""
    """The ground's name of this checkpoint; the engine leaves it empty in what it saves."""
    parent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a run waits to be told: `interrupt(payload)` in a node, or `interrupt_before` and `interrupt_after`."""

    step: int
    """The superstep that asks; for "after" the one that has ended."""
    task: str
    """The key of the task."""
    when: When = "inside"
    index: int = 0
    """How many questions this execution of the task has asked before, for "inside"."""
    id: str = ""
    """The author's own id; "": the ground makes one from namespace, step, task and index."""
    payload: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else `interrupt(...)` was given and differs from its default, by the name of the parameter."""


def names_of(question: Question, place: str) -> tuple[str, ...]:
    """The ids that a question may have, the first that is free counts: the author's own; that with the superstep, for
    a node that comes by again, or a subgraph that several nodes run; its place."""
    return (question.id, f"{question.id}@{question.step}", place) if question.id else (place,)


_OPERATION = re.compile(r"(\?\d+|[:!].*|#\d+)$")


def task_of(place: str) -> str:
    """The execution of a node in which an operation stands: `2/review#0` of `2/review#0?1` and of `2/review#0:b1:3`."""
    before, mark, last = place.rpartition("/")
    return before + mark + _OPERATION.sub("", last)


class Unanswered(BaseException):
    """Ends a task, or an execution, that cannot go on without answers. No `Exception`: nobody's handler swallows it."""

    def __init__(self, *questions: Question) -> None:
        super().__init__(*questions)
        self.questions = questions


@dataclass(frozen=True, slots=True)
class Said:
    """Messages that were said to the run since a position, and the position up to which they now are known."""

    messages: tuple[Any, ...]
    position: int


class Desk(Protocol):
    """What one task of one superstep may ask. `interrupt()` finds it through a context variable."""

    @property
    def context(self) -> Any:
        """The `ctx` of a node that takes one. Its operations are remembered under superstep and task."""

    def again(self) -> None:
        """The node is called: for the first time, or tried again. Its operations are counted from the first; those that
        an earlier try has finished give what they gave then."""

    def answer(self, question: Question) -> Answer:
        """The answer to a question of this task, with its value as plain JSON (of "approve": the payload). Raises
        Unanswered while there is none. Not async: sync nodes ask too; may be called in another thread than the
        loop's."""


class Ground(Protocol):
    """One namespace of one execution. All calls come from the loop, `save` and `load` never at the same time."""

    async def load(self) -> Snapshot | None:
        """The newest snapshot of this namespace in this run, with `id`; None: it has not begun."""

    async def edited(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the edits that came with answers to questions that are asked behind it: an edit is written
        where its question stood, once, also when the supersteps before that are run again."""

    async def base(self) -> Snapshot | None:
        """What the input of a new run is added to: the state of its thread, or of a fork. None: an empty state. The
        snapshot of the input is its child; its `next`, joins and `heard` are not taken over."""

    async def save(self, snapshot: Snapshot, *, last: bool = False) -> str:
        """Keeps the snapshot as the child of the one that was loaded or saved before; gives its id. How durable it is
        on return is the ground's setting (`Durability`). `last`: nothing is planned any more."""

    async def flush(self) -> None:
        """The execution ends for now, with a question or an error: whatever was saved and noted becomes durable."""

    def noted(self, step: int) -> Mapping[str, Writes]:
        """Writes of tasks of this unfinished superstep, by task key, that an earlier attempt noted."""

    async def note(self, step: int, task: Task, writes: Writes) -> None:
        """Keeps the writes of a finished task until its superstep is saved."""

    def inside(self, step: int, task: Task, tries: int = 1) -> AbstractContextManager[Desk]:
        """The scope in which a task runs, entered in the asyncio task that calls the node, at most `tries` times."""

    def asked(self, question: Question) -> Answer:
        """The answer to a question of the engine itself ("before", "after"). Raises Unanswered."""

    def ask(self) -> None:
        """A task has ended with a question while others of its superstep are at work: they may be so for long."""

    async def heard(self, position: int) -> Said | None:
        """What was said to the run after this position; None: nothing. Only asked by graphs that have an inbox."""

    def below(self, step: int, task: Task, shape: Shape) -> Ground:
        """The ground of the subgraph that this task runs; the same in every attempt."""


class Host(Protocol):
    """What the `ctx` of an attempt offers a graph agent's function. That function returns the graph's result, raises
    what a node raised, or lets `Unanswered` pass, which ends the attempt as one that waits for answers."""

    @property
    def threads(self) -> Executor | None:
        """Where sync nodes run; None: the loop's own threads."""

    def ground(self, shape: Shape, durability: Durability) -> Ground:
        """The ground of the run's root graph."""


class Shape(Protocol):
    """What a ground has to know of a compiled graph to write its snapshots down as JSON and read them again.

    All `dump_…` give JSON text, and raise EncodeError that names the channel or node."""

    @property
    def name(self) -> str:
        """The graph's name."""

    @property
    def fingerprint(self) -> str:
        """Changes with nodes, edges and channels of the graph; 16 hex digits."""

    @property
    def schema_version(self) -> int:
        """The author's number of the state's form."""

    @property
    def version(self) -> str:
        """The version of the agent whose graph it is; empty for a subgraph, and an agent without one."""

    def steps(self, version: str, schema: str) -> Sequence[Migration]:
        """What brings a state of that version of the agent, and of the schema, into today's form. Raises
        MigrationMissing."""

    def dump(self, channel: str, value: Any) -> bytes:
        """A whole value of a snapshot."""

    def dump_items(self, channel: str, items: Sequence[Any]) -> bytes:
        """Items that a snapshot appended, as a JSON array."""

    def restore(self, channel: str, whole: bytes | None, appended: Sequence[bytes] = ()) -> Any:
        """The value of a snapshot: a whole one (None: the empty list) and the arrays of items appended after it.

        `channel` may be a former name. Raises DecodeError; UnknownChannel for a name that the state has no more."""

    def channel(self, name: str) -> str | None:
        """Today's name of a channel that may have been renamed; None: there is none."""

    def node(self, name: str) -> str | None:
        """Today's name of a node that may have been renamed; None: there is none."""

    def dump_input(self, task: Task) -> bytes | None:
        """The input of a sent task; None for a task that reads the state."""

    def load_task(self, node: str, number: int | None, input: bytes | None) -> Task:
        """A planned task as it was; `node` may be a former name. Raises UnknownNode, DecodeError."""

    async def edited(self, snapshot: Snapshot, values: Any, as_node: str | None = None) -> Snapshot:
        """The child of a snapshot with these values written through the reducers, as if `as_node` had ended, if given.
        Raises InvalidUpdate, UnknownChannel, UnknownNode."""

    def dump_writes(self, task: Task, writes: Writes) -> bytes:
        """Writes of a finished task."""

    def load_writes(self, data: bytes) -> Writes:
        """The same again."""
