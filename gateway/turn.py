"""How a run takes its turn in its thread, as it goes out over HTTP."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from ..topics.messages import Deed, Policy


class TipOut(BaseModel):
    """The state of a thread: the checkpoint of the last run that left one there."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    run: str
    checkpoint: int
    agent: str


class TurnOut(BaseModel):
    """How a run takes its turn in its thread, and what that has led to."""

    model_config = ConfigDict(frozen=True)

    policy: Policy
    state: Literal["asking", "waiting", "taken", "refused"]
    did: Deed
    """`started`, `queued`, `rejected`, `interrupted` or `rolled_back` (the other run), `forked`, `alongside`."""
    met: str | None = None
    """The run that was at work in the thread when this one came."""
    holder: str | None = None
    """Of a child: the run above it whose turn it belongs to."""
    origin: str | None = None
    """Of a fork: the thread it was forked from."""
    branch: str | None = None
    """Of an optimistic run: the thread that has its messages until they are kept."""
    base: int | None = None
    """The thread's version when the run began."""
    tip: TipOut | None = None
    """The thread's state when the run began."""
