"""Runs that begin from a checkpoint of another one, as they are asked for over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from ..topics.messages import Fork, Policy, TaskRequest
from .models import Asked, RunIdText, Seconds, Token


class ForkCreate(Asked):
    """What the new run begins from, and where it works."""

    checkpoint: Annotated[int, Field(ge=0, lt=2**63)] | Annotated[str, Field(min_length=1, max_length=128)] = 0
    """The id of a checkpoint of the run, or a label; 0: the newest."""
    thread: Token | None = None
    """Where it works; otherwise in the thread of the run that is forked."""
    new_thread: bool = False
    """It works in a thread of its own, forked from that run's."""
    policy: Policy | None = None
    update: dict[str, Any] | None = None
    """An edit of the state: new values by channel."""
    as_node: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """The node from which the edit is taken to come."""
    input: Any = None
    """An input of its own, which is added to the state. Left out, the run goes on where the other one was."""
    metadata: dict[str, Any] | None = None
    idempotency_key: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    run: RunIdText | None = None
    """The id to use for the new run."""
    version: Annotated[str, Field(max_length=64)] | None = None
    """The version of its agent to which it is pinned."""
    deadline_s: Seconds | None = None

    @model_validator(mode="after")
    def _one_place(self) -> ForkCreate:
        if self.new_thread and (self.thread is not None or self.policy is not None):
            raise ValueError("new_thread goes with neither thread nor policy")
        return self


def asked(source: str, checkpoint: int, body: ForkCreate, key: str | None, trace: str | None) -> TaskRequest:
    """The request for the coordinators, without input and edit."""
    return TaskRequest(
        run=body.run, key=key, thread=body.thread, policy="fork" if body.new_thread else body.policy,
        metadata=body.metadata, version=body.version, deadline_s=body.deadline_s, trace=trace,
        fork=Fork(run=source, checkpoint=checkpoint, as_node=body.as_node),
    )  # fmt: skip
