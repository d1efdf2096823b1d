"""The checkpoints of a run, and the labels that hold some of them."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from .interrupts import Answered
from .values import VERSION, BlobRef

Source = Literal["input", "loop", "code", "update", "fork", "say"]
"""What led to a checkpoint: the run's input; a superstep; `ctx.checkpoint()`; an edit from outside; the state that
another run left; a message that was said to the run."""


class Cell(Struct, frozen=True, omit_defaults=True):
    """One stored value: its JSON inline; the same encrypted; or a reference to either in the object store."""

    json: Raw | UnsetType = UNSET
    sealed: str | None = None
    """The JSON as a Fernet token."""
    ref: BlobRef | None = None
    secret: bool = False
    """Whether what `ref` names is a Fernet token."""


class Checkpoint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A snapshot from which a run continues: `cb.run.{root}.{run}.checkpoint`, of a subgraph `….checkpoint@{ns}`.

    Its id is the stream sequence of its message. A channel's value stands in `put`, or lies in another message of the
    log, of this run or of another: `kept`, `alias` and `grown` say in which."""

    attempt: int
    n: int
    """(attempt, n) names the write; 0 when no attempt wrote it."""
    source: Source
    agent: str
    step: int = 0
    """Supersteps that are done, or checkpoints of the code, counted from 1."""
    ns: str = ""
    """Whose state it is: empty for the run's own, else the path of the subgraph."""
    scope: str = ""
    """Of a subgraph: the execution of its node to which the state belongs."""
    parent: int = 0
    """Id of the checkpoint before it; 0 for the first."""
    since: int = 0
    """Journal entries after this sequence are not in the state; 0: those after the checkpoint itself."""
    heard: int = 0
    """Stream sequence up to which the code has taken what was said to the run."""
    took: list[Answered] = []
    """The answers that the code had taken and the run's record did not know as taken: an attempt that goes on from here
    does not read the journal before, and takes none of them again."""
    version: str = ""
    """Version of the agent that wrote it."""
    fingerprint: str = ""
    """Of its graph."""
    schema: str = ""
    """Version of its state's schema."""
    next: list[str] = []
    """The nodes that are to be carried out next."""
    ran: list[str] = []
    """The nodes whose writes led to it."""
    label: str = ""
    """A name by which the checkpoint is kept and found."""
    as_node: str = ""
    """Of an edit: the node that it is taken to come from. What comes next follows from there, not from `next`."""
    place: tuple[int, int] | None = None
    """Of a code agent: how many operations and branches its own task has asked for."""
    put: dict[str, Cell] = {}
    """The values that this message holds. Of a channel in `grown`: what was appended."""
    kept: dict[str, int] = {}
    """Channels that did not change: the message that holds the value, under the channel's name."""
    alias: dict[str, tuple[int, str]] = {}
    """Channels whose value equals one that stands under another name: the message (0: this one) and the name."""
    grown: dict[str, list[list[int]]] = {}
    """Channels that grew at their end: the messages that hold the pieces before the one in `put`, the oldest first,
    in levels of which each was sealed from several of the next. Each number is the difference to the one before."""
    plan: Cell | None = None
    """What the engine needs besides, in its own form."""
    v: int = VERSION


class Label(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cb.label.{run}.{name}`: a checkpoint that pruning keeps; the last message counts. The name `@{run}` holds what a
    fork began from; `@pruned` says up to where checkpoints may be missing."""

    checkpoint: int
    """0: the label is taken away."""
    open: bool = False
    """Of `@pruned`: what lies before is being removed at this moment."""
    v: int = VERSION
