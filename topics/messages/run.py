"""The record of a run, and its states."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from ..versions import versioned
from .fork import Fork
from .interrupts import Answer, Answered, Interrupt
from .limits import Priority
from .turn import Turn
from .values import VERSION, ErrorInfo, Payload


class Status(enum.StrEnum):
    """The states of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    INPUT_REQUIRED = "input_required"
    AUTH_REQUIRED = "auth_required"
    CANCEL_REQUESTED = "cancel_requested"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    INTERRUPTED = "interrupted"
    ROLLED_BACK = "rolled_back"
    TIMED_OUT = "timed_out"
    REJECTED = "rejected"
    ORPHANED = "orphaned"


TERMINAL = frozenset(
    {
        Status.COMPLETED, Status.FAILED, Status.CANCELED, Status.INTERRUPTED, Status.ROLLED_BACK, Status.TIMED_OUT,
        Status.REJECTED, Status.ORPHANED,
    }
)  # fmt: skip


ASKING = frozenset({Status.INPUT_REQUIRED, Status.AUTH_REQUIRED})
"""Somebody has to answer before the run goes on."""


_LONGEST_DELAY_S = 366 * 86_400.0


class RetryPolicy(Struct, frozen=True, omit_defaults=True):
    """How failed attempts are repeated. Delays in seconds: `initial · factor^(failures-1)`, at most `maximum`."""

    max_attempts: int = 3
    initial: float = 1.0
    factor: float = 2.0
    maximum: float = 60.0
    jitter: float = 0.1
    """The part of the delay that is random, 0 to 1."""

    def delay_s(self, failures: int, jitter: float) -> float:
        """Seconds before the attempt after the `failures`-th failure: exponential, capped, the last part random.

        Of 0 to a year, whatever the policy says: it comes from a registration that anybody may have written."""
        try:
            full = min(self.maximum, self.initial * self.factor ** min(failures - 1, 64))
        except OverflowError:
            full = self.maximum
        delay = min(full, _LONGEST_DELAY_S) * (1 - min(1.0, max(0.0, self.jitter)) * jitter)
        return delay if delay > 0 else 0.0  # also for what is not a number


class CancelOrder(Struct, frozen=True, omit_defaults=True):
    """How a run is being ended, or was, by somebody's wish."""

    action: Literal["timeout", "interrupt", "cancel", "rollback"] = "cancel"
    """`cancel` ends as canceled; `interrupt` as interrupted (to look at, or to fork); `rollback` as rolled_back;
    `timeout`, which only a clock asks for, as timed_out."""
    scope: Literal["run", "tree", "children"] = "run"
    """`tree`: the run ends only when all that it started has ended."""
    by: str = ""
    """The run above on which the cancel was asked for; empty: this one."""

    @property
    def keeps(self) -> bool:
        """Whether what the run has done stays as it is: nothing is undone."""
        return self.action in ("timeout", "interrupt")

    @property
    def passed_on(self) -> Literal["interrupt", "cancel", "rollback"]:
        """The action for the runs below: their own time is not over."""
        return "cancel" if self.action == "timeout" else self.action


class UnknownEffect(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An effect of which nobody knows whether it happened: a run that needs to know waits as `input_required`."""

    at: str
    """Its place."""
    name: str
    key: str
    attempt: int
    n: int
    """(attempt, n) names the claim that was not settled."""
    error: ErrorInfo | None = None
    """What its function raised; None when its process was lost."""
    why: str = ""
    """What its `reconcile` hook had to say, if it was asked."""


class Ruling(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's word on an unknown effect. It holds for that one claim: what is called again is claimed anew."""

    at: str
    name: str
    attempt: int
    n: int
    happened: bool
    value: Payload | None = None
    """What the function would have returned, if it happened."""
    decided_at: datetime
    reason: str | None = None


class RunRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The whole of a run, body of every message on `cb.run.{root}.{run}.state`. Only the coordinator writes it."""

    id: str
    root: str
    agent: str
    status: Status
    input: Payload
    created_at: datetime
    updated_at: datetime
    v: int = VERSION
    rev: int = 1
    """Counts the states of this run from 1."""
    version: str = ""
    """The version of its agent: when it was created that of the registration, then that of the worker of its newest
    attempt."""
    pin: bool = False
    """Whether only workers of that version carry it out."""
    parent: str | None = None
    topic: str | None = None
    thread: str | None = None
    turn: Turn | None = None
    """How it takes its turn in its thread."""
    result: Payload | None = None
    error: ErrorInfo | None = None
    reason: str | None = None
    """Why the run is in this status, for people."""
    attempt: int = 0
    """How many attempts have begun."""
    dispatch: int = 0
    """How many work messages have been sent; only the newest may be claimed."""
    failures: int = 0
    """Failed attempts since the last suspension, counted against the retry policy."""
    losses: int = 0
    """Attempts lost with their process since the last suspension, or since one that had left a result; too many mark a
    poison task."""
    epoch: int = 0
    """The cancel epoch."""
    cancel: CancelOrder | None = None
    """The cancel that is under way, or by which the run ended."""
    undo: Literal["", "check", "lost", "due"] = ""
    """Of a run that is being canceled: `check`, its log is to be looked at for effects once all below has ended;
    `lost`, the same, and it was not heard of; `due`, a worker is to undo its effects, or does."""
    left: bool = False
    """That something which it has done outside was not undone, or that this is not known."""
    unknown: list[UnknownEffect] | None = None
    """What an `input_required` run needs to be told."""
    rulings: list[Ruling] | None = None
    """What it was told."""
    interrupts: list[Interrupt] | None = None
    """The open ones, in the order in which they were asked."""
    answers: list[Answer] | None = None
    """Those that were given and that the code has not taken yet."""
    answered: list[Answered] | None = None
    """What is remembered of the answers before those, the newest last."""
    hears: bool = False
    """Whether it waits for a message."""
    heard: int = 0
    """Stream sequence up to which its last attempt has read what was said to it."""
    worker: str | None = None
    lease: int = 0
    """Stream sequence of the work message whose acknowledgement is owed by `worker`; of a queued run: of the one that
    was taken from a worker which is gone, and comes to another one before what waits in the queue."""
    delivery: int = 0
    """How often that message had been delivered when it was claimed."""
    consumer_seq: int = 0
    """Consumer sequence of that delivery."""
    waits: list[list[str]] | None = None
    """Groups of children (the part of their id after `~`): the run wakes when one group is terminal as a whole."""
    wake_at: datetime | None = None
    retry: RetryPolicy | None = None
    timeout_s: float | None = None
    """Limit of one attempt, in seconds."""
    deadline_at: datetime | None = None
    """When the run ends as timed_out, whatever it does."""
    wait_timeout_s: float | None = None
    """How long it may be queued without a worker that takes it, in seconds."""
    wait_until: datetime | None = None
    """Of a queued run: when it ends as timed_out because no worker has taken it."""
    priority: Priority = "normal"
    """Which of the runs that wait at its agent's limits goes first."""
    detached: bool = False
    retry_of: str | None = None
    """The run that ended without a result, whose journal this one goes on from; attempts are counted on."""
    successor: str | None = None
    """The run that was started from its input in its place, as its checkpoint was of another version."""
    successor_of: str | None = None
    """The run in whose place this one was started."""
    forked_from: Fork | None = None
    """The checkpoint of another run that this one begins from."""
    checkpoint: int = 0
    """Its newest checkpoint when the last attempt ended: the stream sequence of its message; 0: none."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    steps: int = 0
    """Steps journaled when the last attempt ended."""
    metadata: dict[str, Any] | None = None
    key: str | None = None
    """Idempotency key it was created with."""
    fingerprint: str | None = None
    """Digest of the request that created it."""
    trace: str | None = None
    """W3C traceparent that the run's attempts are below: of the run's own span, or what the task came with when the
    coordinator that created the run records no spans."""
    trace_parent: str | None = None
    """W3C traceparent of the parent of the run's own span."""

    @property
    def queue(self) -> str:
        """The last token of the subject of its work messages: its agent, with the version if it is pinned; `@{topic}`
        while it has none."""
        if not self.agent:
            return f"@{self.topic}"
        return versioned(self.agent, self.version) if self.pin else self.agent

    @property
    def terminal(self) -> bool:
        """Whether no command can change the run any more."""
        return self.status in TERMINAL
