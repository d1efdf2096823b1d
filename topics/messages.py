"""The bodies of every message, as msgspec structs in JSON. Unknown fields are ignored, so that versions can mix.

`Raw` fields hold JSON that travels unread: the coordinator never decodes a user's data.
"""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

VERSION = 1
"""Version of the wire format; a field `v` in a record that is greater is refused."""


class Status(enum.StrEnum):
    """The states of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    INPUT_REQUIRED = "input_required"
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


class BlobRef(Struct, frozen=True):
    """A payload that lies in the object store because it is above the inline limit."""

    name: str
    size: int
    """Bytes."""
    bucket: str
    """Object-store bucket; any NATS client can read `name` there."""


class Payload(Struct, frozen=True, omit_defaults=True):
    """A user's value: its JSON inline, or a reference to it."""

    json: Raw | UnsetType = UNSET
    ref: BlobRef | None = None


NOTHING = Payload(json=Raw(b"null"))


class ErrorInfo(Struct, frozen=True, omit_defaults=True):
    """Why something failed. `code` is stable, `type` the exception's qualified name."""

    code: str
    message: str
    type: str | None = None
    retryable: bool = False
    traceback: str | None = None
    details: dict[str, Any] | None = None


class RetryPolicy(Struct, frozen=True, omit_defaults=True):
    """How failed attempts are repeated. Delays in seconds: `initial · factor^(failures-1)`, at most `maximum`."""

    max_attempts: int = 3
    initial: float = 1.0
    factor: float = 2.0
    maximum: float = 60.0
    jitter: float = 0.1
    """The part of the delay that is random, 0 to 1."""


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
    parent: str | None = None
    topic: str | None = None
    thread: str | None = None
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
    """Attempts lost with their process since the last suspension; too many mark a poison task."""
    epoch: int = 0
    """The cancel epoch."""
    worker: str | None = None
    lease: int = 0
    """Stream sequence of the work message whose acknowledgement is owed by `worker`."""
    delivery: int = 0
    """How often that message had been delivered when it was claimed."""
    waits: list[list[str]] | None = None
    """Groups of children (the part of their id after `~`): the run wakes when one group is terminal as a whole."""
    wake_at: datetime | None = None
    retry: RetryPolicy | None = None
    timeout_s: float | None = None
    """Limit of one attempt, in seconds."""
    detached: bool = False
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
    def terminal(self) -> bool:
        """Whether no command can change the run any more."""
        return self.status in TERMINAL


class TaskRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request to create a run: body of `cb.rpc.submit`; on `cb.task.{topic}` the body is the input alone."""

    agent: str | None = None
    topic: str | None = None
    input: Raw = Raw(b"null")
    """The input as plain JSON, below the inline limit."""
    input_ref: BlobRef | None = None
    """Where the input lies, when it is larger."""
    run: str | None = None
    """The id to use."""
    key: str | None = None
    """Idempotency key: the same key and request give the same run."""
    thread: str | None = None
    metadata: dict[str, Any] | None = None
    trace: str | None = None

    @property
    def payload(self) -> Payload:
        """The input as it travels in records."""
        return Payload(json=self.input) if self.input_ref is None else Payload(ref=self.input_ref)

    def carrying(self, payload: Payload) -> TaskRequest:
        """The same request with this input."""
        inline = payload.json if isinstance(payload.json, Raw) else Raw(b"null")
        return msgspec.structs.replace(self, input=inline, input_ref=payload.ref)


class SubmitReply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer of `cb.rpc.submit`: `run` once it is durable (with `runs` when several agents serve the topic), or
    `error`."""

    run: str | None = None
    runs: list[str] | None = None
    status: Status | None = None
    duplicate: bool = False
    error: ErrorInfo | None = None


class Work(Struct, frozen=True, omit_defaults=True):
    """`cb.work.{agent}`: an attempt is ready."""

    run: str
    dispatch: int


class Claim(Struct, frozen=True, omit_defaults=True):
    """One work message that a worker wants to carry out."""

    run: str
    dispatch: int
    lease: int
    """Stream sequence of the work message."""
    delivery: int = 1
    """How often that message was delivered."""
    agent: str = ""
    """Whose queue it was found on: a run of another agent is not granted. Empty: not checked."""


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


class ClaimReply(Struct, frozen=True):
    """Answers in the order of the claims."""

    grants: list[Grant]


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an attempt ended: one entry of `cb.rpc.outcome`, or body of `cb.cmd.{run}.outcome`.

    kinds: `completed` (value), `failed` (error), `suspended` (waits or wake_at), `released` (handed back unharmed),
    `stopped` (ended after a cancel request), `timed_out`."""

    run: str
    attempt: int
    kind: Literal["completed", "failed", "suspended", "released", "stopped", "timed_out"]
    epoch: int = 0
    worker: str | None = None
    value: Payload | None = None
    error: ErrorInfo | None = None
    waits: list[list[str]] | None = None
    wake_at: datetime | None = None
    steps: int = 0


class OutcomeRequest(Struct, frozen=True):
    """`cb.rpc.outcome`: the outcomes of several attempts of one worker."""

    outcomes: list[Outcome]


class OutcomeVerdict(Struct, frozen=True, omit_defaults=True):
    """`accepted` when the outcome is durable (now or before); `stale` when the attempt no longer owned the run;
    `retry` when it could not be stored now."""

    run: str
    verdict: Literal["accepted", "stale", "retry"]
    status: Status | None = None


class OutcomeReply(Struct, frozen=True):
    """Answers in the order of the outcomes."""

    verdicts: list[OutcomeVerdict]


class ChildRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One child to start."""

    run: str
    """Its id, from `child_run_id`."""
    agent: str
    input: Payload
    detached: bool = False
    metadata: dict[str, Any] | None = None
    trace: str | None = None


class ChildrenRequest(Struct, frozen=True, omit_defaults=True):
    """`cb.rpc.children`: a running attempt starts children. Idempotent by their ids."""

    parent: str
    attempt: int
    epoch: int
    children: list[ChildRequest]
    again: bool = False
    """The request may have been carried out in part before."""


class ChildState(Struct, frozen=True, omit_defaults=True):
    """What a parent needs to know of a child."""

    run: str
    status: Status
    agent: str = ""
    result: Payload | None = None
    error: ErrorInfo | None = None


class ChildrenReply(Struct, frozen=True, omit_defaults=True):
    """The children in the order of the request, or why none was started."""

    children: list[ChildState] = []
    error: ErrorInfo | None = None


class Command(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of `cb.cmd.{run}.{verb}`; the subject may name run and verb alone. An empty body is an empty command."""

    run: str = ""
    verb: str = ""
    reason: str | None = None
    dispatch: int = 0
    attempt: int = 0
    epoch: int = 0
    worker: str | None = None
    child: str | None = None
    outcome: Outcome | None = None


class CommandReply(Struct, frozen=True, omit_defaults=True):
    """Answer of `cb.rpc.command`: the run after it, or `error`."""

    record: RunRecord | None = None
    error: ErrorInfo | None = None


class AgentInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cb.agent.{name}`: what a worker registers, so that tasks find their agent before any worker is up again."""

    name: str
    topics: list[str] = []
    version: str = ""
    description: str = ""
    retry: RetryPolicy = RetryPolicy()
    timeout_s: float | None = None
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None


class WorkerInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cb.worker.{id}.beat`: a worker's heartbeat on core NATS; also its answer to a ping on `cb.worker.{id}`."""

    id: str
    agents: list[str]
    concurrency: int
    running: list[str] = []
    """Runs it holds."""
    host: str = ""
    pid: int = 0
    version: str = ""
    draining: bool = False
    actors: list[str] = []


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the journal, on `cb.run.{root}.{run}.step` (several that waited for one write stand in a list).

    kinds: `step` (a finished step with `value` or `error`), `child` (a child was started: `child`), `sleep` (`until`),
    `value` (now). `status` `started` marks a step that takes long and is not a result."""

    at: str
    """The operation's place in the code: scope and position, such as `3` or `1/2:0`."""
    name: str
    attempt: int
    n: int
    """Counts the writes of the attempt; (attempt, n) names the entry."""
    kind: Literal["step", "child", "sleep", "value"] = "step"
    status: Literal["done", "failed", "started"] = "done"
    value: Payload | None = None
    error: ErrorInfo | None = None
    child: str | None = None
    until: datetime | None = None
    ms: float = 0.0
    """Duration in milliseconds."""


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run tells its watchers, on `….delta`, `….custom`, `….message` (a list when several waited).

    `type` is `delta`, `progress`, `message` or the name given to `ctx.emit`."""

    at: str
    attempt: int
    n: int
    type: str
    data: Payload = NOTHING


class Artifact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A named result, on `cb.run.{root}.{run}.artifact`. Text and JSON inline as `text`, bytes as `base64`, large
    by `ref`."""

    at: str
    attempt: int
    n: int
    name: str
    media_type: str
    size: int
    digest: str
    """`sha256:…` of the content."""
    text: str | None = None
    base64: bytes | None = None
    ref: BlobRef | None = None


class ThreadRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cb.thread.{thread}.record`."""

    id: str
    created_at: datetime
    metadata: dict[str, Any] | None = None


class ThreadMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cb.thread.{thread}.message`: one entry of the thread's common history, in the broker's order."""

    role: str
    content: Payload
    run: str | None = None
    at: str | None = None


class DeadLetter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cb.dead.{kind}`: a message that was set aside, whole, with the reason. Its id is its stream sequence."""

    subject: str
    reason: ErrorInfo
    data: bytes
    """The body, base64 on the wire."""
    headers: dict[str, str] | None = None
    ref: BlobRef | None = None
    """The body, when it is too large to stand here."""
    at: datetime | None = None


encode = msgspec.json.Encoder().encode
