"""The turns of a thread: which run is at work in it, which ones wait, and what became of one that was started there."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from .fork import Tip
from .values import VERSION

Policy = Literal["enqueue", "reject", "interrupt", "rollback", "fork", "optimistic"]
"""What a run does that is started in a thread where another one is at work: waits for its turn; ends `rejected`; has
the other interrupted, or rolled back, and follows it; works in a thread of its own, forked from there; or works at once
beside it, and is kept only if the thread has not changed meanwhile."""
POLICIES: tuple[str, ...] = get_args(Policy)

Deed = Literal["", "started", "queued", "rejected", "interrupted", "rolled_back", "forked", "alongside"]


class Turn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of a run in a thread: by which policy it takes its turn there, and what that has led to."""

    policy: Policy
    state: Literal["asking", "waiting", "taken", "refused"] = "asking"
    """`asking`: the thread does not know the run yet; `waiting`: others come before it; `taken`: it may work."""
    did: Deed = ""
    """What became of the wish: `started` at once, `queued`, `rejected`, `interrupted` or `rolled_back` the other run,
    `forked`, or works `alongside`. Empty while it asks."""
    met: str | None = None
    """The run that was at work in the thread when this one came."""
    holder: str | None = None
    """Of a child: the run above it whose turn this is."""
    origin: str | None = None
    """Of a fork: the thread it was forked from."""
    branch: str | None = None
    """Of an optimistic run: the thread that has its messages until they are kept."""
    base: int | None = None
    """The thread's version when the run began."""
    tip: Tip | None = None
    """The thread's state when the run began."""

    @property
    def held(self) -> bool:
        """Whether the run may not work yet."""
        return self.state in ("asking", "waiting")


class Entry(Struct, frozen=True, array_like=True):
    """A run in a thread's order: `[run, policy, met, begins, attempt]`."""

    run: str
    policy: Policy
    met: str | None = None
    begins: Tip | None = None
    """Of a run that begins from a checkpoint: that one. From its turn on it is the state of the thread."""
    attempt: int = 0
    """Of an optimistic run that is about to be kept: the attempt that has completed."""


class ThreadHead(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cb.thread.{thread}.head`: the last one is the truth. Only coordinators write it, each under the fence of the one
    before."""

    version: int = 0
    """Rises with each run that leaves something in the thread."""
    active: Entry | None = None
    """The run at work."""
    waiting: list[Entry] = []
    """Who comes next: first those that replace the active run, then those that wait, each in the order they came."""
    tip: Tip | None = None
    """The state of the thread: the last checkpoint of the last run that left one."""
    v: int = VERSION

    @property
    def state(self) -> Tip | None:
        """The state of the thread now, as far as the head knows: of a fork that is at work, where it began."""
        return (self.active.begins if self.active is not None else None) or self.tip


class Origin(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a forked thread begins."""

    thread: str
    at: int
    """Stream sequence of the last message that it shares with that thread."""
    without: str | None = None
    """The run that was at work then: what it said is not shared."""
    version: int = 0
    tip: Tip | None = None
    """The state of that thread then."""
