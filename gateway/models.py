"""What goes in and out over HTTP, as pydantic models: the source of `/openapi.json`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from ..topics.messages import Policy, Priority, Status
from .moments import RunAt
from .turn import TurnOut

Token = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^\s.*>\x00-\x20\x7f]+$")]
"""One token of a subject."""
Seconds = Annotated[float, Field(gt=0, le=316_224_000)]
"""A limit of time."""
RunIdText = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]


class Model(BaseModel):
    """Base of the answers."""

    model_config = ConfigDict(frozen=True)


class Asked(BaseModel):
    """Base of the request bodies: an unknown field is an error, so that a misspelt one is not lost."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Problem(Model):
    """Any error (RFC 9457); further members are the facts of the error."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str
    """Stable; docs/http.md lists all."""
    instance: str
    retryable: bool


class BlobRefOut(Model):
    """A value that lies in the object store because it is large; `/input`, `/result` and the like give its content."""

    name: str
    size: int
    bucket: str


class ErrorOut(Model):
    """Why a run or a step failed."""

    code: str
    message: str
    type: str | None = None
    retryable: bool = False
    traceback: str | None = None
    details: dict[str, Any] | None = None


class ForkedFrom(Model):
    """A checkpoint of another run."""

    run: str
    checkpoint: int


class RunSummary(Model):
    """A run in a list."""

    id: str
    root: str
    agent: str
    """Empty while no agent serves the topic."""
    status: Status
    terminal: bool
    created_at: datetime
    updated_at: datetime
    parent: str | None = None
    topic: str | None = None
    thread: str | None = None
    reason: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attempt: int = 0
    steps: int = 0
    rev: int = 1
    version: str = ""
    """Version of its agent."""
    pin: bool = False
    """Whether only workers of that version carry it out."""
    forked_from: ForkedFrom | None = None
    """The checkpoint of another run with which it began."""
    error: ErrorOut | None = None
    metadata: dict[str, Any] | None = None
    sequence: int | None = None
    """Stream sequence of the state that is shown, where it is known."""


class Run(RunSummary):
    """A run, whole."""

    input: Any = None
    input_ref: BlobRefOut | None = None
    result: Any = None
    result_ref: BlobRefOut | None = None
    failures: int = 0
    epoch: int = 0
    worker: str | None = None
    waits: list[list[str]] | None = None
    wake_at: datetime | None = None
    timeout_s: float | None = None
    detached: bool = False
    turn: TurnOut | None = None
    idempotency_key: str | None = None


class RunCreate(Asked):
    """A task: for an agent by name, or for whoever serves a topic."""

    agent: Token | None = None
    topic: Token | None = None
    input: Any = None
    thread: Token | None = None
    policy: Policy | None = None
    """What is done if another run is at work in the thread; `enqueue` when it is not given."""
    metadata: dict[str, Any] | None = None
    idempotency_key: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """The same key and request give the same run; may be given as the header `Idempotency-Key` instead."""
    run: RunIdText | None = None
    """The id to use for the run."""
    run_at: RunAt | None = None
    """When it may begin: a time with a zone, or seconds from now. Until then it is queued, and can be cancelled."""
    deadline_s: Seconds | None = None
    """How long it may take in all, from when it may begin; then it ends as `timed_out`. Otherwise as its agent says."""
    wait_timeout_s: Seconds | None = None
    """How long it may wait for a worker each time it is queued; then it ends as `timed_out`."""
    priority: Priority = "normal"
    """Which goes first when its agent has limits."""

    @model_validator(mode="after")
    def _one_target(self) -> RunCreate:
        if (self.agent is None) == (self.topic is None):
            raise ValueError("give either agent or topic")
        return self


class RunCreated(Model):
    """The run is durable."""

    run: str
    runs: list[str]
    """All runs of the task: one for each agent that serves the topic."""
    status: Status
    duplicate: bool
    """The run existed already, created by the same request."""
    thread: str | None = None
    """The thread in which it works: of a fork, the new one."""
    turn: TurnOut | None = None
    """What the policy has led to."""
    links: dict[str, str]


class RunPage(Model):
    """A page of runs, newest first."""

    runs: list[RunSummary]
    next: str | None
    """Cursor of the following page."""
    applied: int
    """The list reflects at least the log up to this stream sequence."""


class RunTree(Model):
    """A run and all its descendants, oldest first; each names its parent."""

    run: str
    root: str
    runs: list[RunSummary]
    counts: dict[Status, int]


class CancelRequest(Asked):
    """What is canceled, how it ends, and why."""

    scope: Literal["run", "tree", "children"] = "tree"
    """`tree`: the run and all that it has started; `run`: the run alone; `children`: what is below it."""
    action: Literal["cancel", "interrupt", "rollback"] = "cancel"
    """How the runs end: canceled, interrupted (everything is kept), or rolled_back (the thread is as before)."""
    reason: Annotated[str, Field(max_length=1000)] | None = None


class AliveOut(Model):
    """A run that a cancel has reached and that has not ended yet."""

    run: str
    agent: str
    status: Status
    worker: str | None = None
    reason: str | None = None


class RunCanceled(Run):
    """The run after its cancel, and what is still alive in its tree (at most 100 runs)."""

    alive: list[AliveOut] = []


class StepOut(Model):
    """One entry of a run's journal."""

    sequence: int
    time: datetime
    at: str
    name: str
    attempt: int
    n: int
    kind: str
    status: str
    value: Any = None
    value_ref: BlobRefOut | None = None
    sealed: bool = False
    """Whether the value is encrypted, and not shown."""
    error: ErrorOut | None = None
    child: str | None = None
    until: datetime | None = None
    ms: float = 0.0


class StepPage(Model):
    """Entries of a journal in the order of the log."""

    steps: list[StepOut]
    next: int | None
    """Give it as `after` for the following page; null when this is the end."""


class ArtifactOut(Model):
    """A named result of a run."""

    name: str
    media_type: str
    size: int
    digest: str
    attempt: int
    href: str


class ArtifactList(Model):
    """The newest version of each artifact of a run."""

    artifacts: list[ArtifactOut]


class ThreadCreate(Asked):
    """A thread to create; with an id, creating it twice is the same thread."""

    id: Token | None = None
    metadata: dict[str, Any] | None = None


class ThreadOut(Model):
    """A thread."""

    id: str
    created_at: datetime
    metadata: dict[str, Any] | None = None
    messages: int | None = None
    """How many messages it has, in lists."""


class ThreadPage(Model):
    """A page of threads, newest first."""

    threads: list[ThreadOut]
    next: str | None
    applied: int


class MessageCreate(Asked):
    """A message to append to a thread."""

    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: Any
    run: Annotated[str, Field(min_length=1, max_length=81)] | None = None


class MessagePosted(Model):
    """The message is durable."""

    thread: str
    sequence: int


class MessageOut(Model):
    """A message of a thread."""

    sequence: int
    role: str
    content: Any = None
    content_ref: BlobRefOut | None = None
    run: str | None = None


class MessagePage(Model):
    """Messages of a thread in order."""

    messages: list[MessageOut]
    next: int | None


class DeadLetterOut(Model):
    """A message that was set aside, with the reason. `text` if the body is text, else `base64`."""

    id: int
    kind: str
    subject: str
    reason: ErrorOut
    at: datetime | None
    headers: dict[str, str] | None = None
    text: str | None = None
    base64: str | None = None
    ref: BlobRefOut | None = None


class DeadLetterPage(Model):
    """Dead letters, newest first."""

    letters: list[DeadLetterOut]
    next: int | None
    """Give it as `before` for the following page."""


class Replayed(Model):
    """The message was published again."""

    id: int
    sequence: int


class Health(Model):
    """The process answers."""

    status: Literal["ok"] = "ok"
    version: str


class ProjectionState(Model):
    """The read model."""

    state: Literal["ok", "missing", "failed"]
    applied: int = 0
    reason: str | None = None


class Readiness(Model):
    """Whether requests can be served, and why not."""

    ready: bool
    reason: str | None
    nats: str
    projection: ProjectionState
