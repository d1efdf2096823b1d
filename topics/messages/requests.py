"""What anybody may ask for."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from .fork import Fork
from .interrupts import Answer
from .limits import Priority
from .run import RunRecord, Status
from .turn import Policy, Turn
from .values import BlobRef, ErrorInfo, Payload
from .work import Outcome


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
    policy: Policy | None = None
    """What is done if another run is at work in the thread; `enqueue` when it is not given."""
    metadata: dict[str, Any] | None = None
    trace: str | None = None
    run_at: datetime | float | None = None
    """When it may begin: a time with a zone, or seconds from when the request is taken. The run exists before that."""
    deadline_s: float | None = None
    """How long the run may take in all, in seconds from when it may begin; otherwise as its agent says."""
    wait_timeout_s: float | None = None
    """How long the run may wait for a worker each time it is queued, in seconds; otherwise as its agent says."""
    priority: Priority = "normal"
    """Which goes first when the agent has limits."""
    version: str | None = None
    """The version of the agent to which the run is pinned, whatever the registration says."""
    fork: Fork | None = None
    """The checkpoint that the run begins from; then neither agent nor topic need be named."""

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
    thread: str | None = None
    """The thread in which the run works: of a fork, the new one."""
    turn: Turn | None = None
    """What the policy has led to."""
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
    scope: Literal["run", "tree", "children"] = "tree"
    """Of `cancel`: the run alone, the run with all below it, or only what is below it."""
    action: Literal["cancel", "interrupt", "rollback"] = "cancel"
    """Of `cancel`: how the runs end."""
    by: str = ""
    """Of `cancel`: the run above on which it was asked for. Of `escalate` and `say`: who does it."""
    version: str = ""
    """Of `retry`: the version of the agent to which the run is pinned that goes on; empty: as the run was."""
    effect: str = ""
    """Of `reconcile`: the place or the name of the unknown effect."""
    happened: bool = False
    """Of `reconcile`: whether it happened."""
    value: Payload | None = None
    """Of `reconcile`: what the effect's function would have returned. Of `say`: what is said."""
    answers: list[Answer] | None = None
    """Of `resume`: to open interrupts of the run, or of runs below it."""
    interrupt: str = ""
    """Of `escalate`: the open interrupt."""
    to: str | None = None
    """Of `escalate`: the person who is asked now."""
    agent: str | None = None
    """Of `escalate`: the agent that is asked now."""
    key: str = ""
    """Of `resume`, `say` and `fork`: names the command, so that it is carried out once however often it arrives. By
    default a durable command has its sequence for a name."""
    task: TaskRequest | None = None
    """Of `fork`: the run that begins from a checkpoint of this one, as `cb.rpc.submit` takes it."""
    due: datetime | None = None
    """Of `interrupt_due`: what the timer was set to."""
    sequence: int = 0
    """Of the notice `said`: stream sequence of what was said."""


class Alive(Struct, frozen=True, omit_defaults=True):
    """A run that a cancel has reached and that has not ended yet: where it is, and why."""

    run: str
    agent: str
    status: Status
    worker: str | None = None
    reason: str | None = None


class CommandReply(Struct, frozen=True, omit_defaults=True):
    """Answer of `cb.rpc.command`: the run after it, or `error`. Of a cancel also what is still alive below the run."""

    record: RunRecord | None = None
    alive: list[Alive] | None = None
    error: ErrorInfo | None = None
