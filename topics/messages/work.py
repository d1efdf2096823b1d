"""What workers and coordinators say to each other."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from .interrupts import Answered, Interrupt
from .run import RunRecord, Status, UnknownEffect
from .turn import Policy
from .values import ErrorInfo, Payload

SUSPECT_LOSSES = 2
"""A run whose process has died this often in a row is carried out beside no other such run."""


class Work(Struct, frozen=True, omit_defaults=True):
    """`cb.work.{agent}`, of a pinned run `cb.work.{agent}@{version}`: an attempt is ready."""

    run: str
    dispatch: int
    version: str = ""
    """Of a pinned run that waits at its agent's gate: the version of the workers that it is for."""


class Claim(Struct, frozen=True, omit_defaults=True):
    """One work message that a worker wants to carry out."""

    run: str
    dispatch: int
    lease: int
    """Stream sequence of the work message."""
    delivery: int = 1
    """How often that message was delivered."""
    agent: str = ""
    """The queue it was found on, `{agent}` or `{agent}@{version}`: a run that belongs on another one is not granted.
    Empty: not checked."""
    version: str = ""
    """The version of the agent that the worker has."""
    consumer_seq: int = 0
    """Consumer sequence of this delivery: should the worker die, a coordinator can hand the message back in its name.
    0: not told."""
    beside: bool = False
    """The worker carries out a run whose process has died `SUSPECT_LOSSES` times in a row, and that has left no result
    since: another such run is not granted, or they would die together."""


class ClaimRequest(Struct, frozen=True):
    """`cb.rpc.claim`: several claims of one worker in one request."""

    worker: str
    claims: list[Claim]


class Grant(Struct, frozen=True, omit_defaults=True):
    """Answer to one claim. `granted`: carry it out. `gone`: acknowledge the message, there is nothing to do.
    `later`: hand the message back, try again in a moment."""

    run: str
    verdict: Literal["granted", "gone", "later"]
    fence: int = 0
    """Stream sequence of the running state; every write of the attempt carries it."""
    record: RunRecord | None = None
    """As the attempt begins; left out when the answer had no room: it is the message with sequence `fence`."""


class ClaimReply(Struct, frozen=True, omit_defaults=True):
    """Answers in the order of the claims, or `error` when the request as a whole cannot be understood."""

    grants: list[Grant] = []
    error: ErrorInfo | None = None


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an attempt ended: one entry of `cb.rpc.outcome`, or body of `cb.cmd.{run}.outcome`.

    kinds: `completed` (value), `failed` (error), `suspended` (waits, wake_at or hears), `input_required` (unknown or
    interrupts, and what else it waits for), `released` (handed back unharmed), `stopped` (ended after a cancel
    request), `timed_out`."""

    run: str
    attempt: int
    kind: Literal["completed", "failed", "suspended", "input_required", "released", "stopped", "timed_out"]
    epoch: int = 0
    worker: str | None = None
    value: Payload | None = None
    error: ErrorInfo | None = None
    waits: list[list[str]] | None = None
    wake_at: datetime | None = None
    unknown: list[UnknownEffect] | None = None
    """The effects that the run needs to be told of."""
    interrupts: list[Interrupt] | None = None
    """All that it asks at this moment."""
    taken: list[Answered] | None = None
    """The answers that stand in the journal now."""
    hears: bool = False
    """Whether it waits for a message."""
    heard: int = 0
    """Stream sequence up to which the attempt has read what was said to the run."""
    abandoned: list[str] | None = None
    """The steps of the attempt whose functions go on in their threads."""
    undone: bool = False
    """Nothing outside is left that a cancel would have to undo: the run has no effects, or they were undone as far as
    that is possible; `error` says what was not."""
    steps: int = 0
    anew: bool = False
    """Of `failed`: its checkpoint cannot be loaded, and another run is to start from its input in its place."""
    checkpoint: int = 0
    """The newest checkpoint of the run: the stream sequence of its message; 0: none."""


class OutcomeRequest(Struct, frozen=True):
    """`cb.rpc.outcome`: the outcomes of several attempts of one worker."""

    outcomes: list[Outcome]


class OutcomeVerdict(Struct, frozen=True, omit_defaults=True):
    """`accepted` when the outcome is durable (now or before); `stale` when the attempt no longer owned the run;
    `retry` when it could not be stored now."""

    run: str
    verdict: Literal["accepted", "stale", "retry"]
    status: Status | None = None


class OutcomeReply(Struct, frozen=True, omit_defaults=True):
    """Answers in the order of the outcomes, or `error` when the request as a whole cannot be understood."""

    verdicts: list[OutcomeVerdict] = []
    error: ErrorInfo | None = None


class ChildRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One child to start."""

    run: str
    """Its id, from `child_run_id`."""
    agent: str
    input: Payload
    detached: bool = False
    thread: str | None = None
    """A thread of its own choice; without it a child belongs to its parent's turn, a detached one to no thread."""
    policy: Policy | None = None
    metadata: dict[str, Any] | None = None
    trace: str | None = None
    retry_of: str | None = None
    """The child that the run which the parent retries had started here: its result is taken, or it is retried."""


class ChildrenRequest(Struct, frozen=True, omit_defaults=True):
    """`cb.rpc.children`: a running attempt starts children. Idempotent by their ids."""

    parent: str
    attempt: int
    epoch: int
    children: list[ChildRequest]
    again: bool = False
    """The request may have been carried out in part before."""


class ChildState(Struct, frozen=True, omit_defaults=True):
    """What a parent needs to know of a child.

    `ended`: its outcome didn't fit beside the others; the parent reads it from the child's record."""

    run: str
    status: Status
    agent: str = ""
    result: Payload | None = None
    error: ErrorInfo | None = None
    ended: bool = False


class ChildrenReply(Struct, frozen=True, omit_defaults=True):
    """The children in the order of the request, or why none was started."""

    children: list[ChildState] = []
    error: ErrorInfo | None = None
