"""What waits for a person: the notices on `cb.attention.>`, and who is told of them over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

Parked = Literal["failed", "timed_out", "orphaned", "not_undone", "input_required", "auth_required", "no_worker"]
"""Why something waits: a run ended or stopped in this status, or ended while something that it had done outside was not
undone, or nobody takes the work of a queue."""


class Notice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cb.attention.run.{run}` and `cb.attention.queue.{queue}`: something waits for a person, or waits no more.

    The last message on a subject holds. Written once for each time that it begins to wait."""

    kind: Parked
    state: Literal["open", "resolved"] = "open"
    since: datetime
    """When it began to wait."""
    run: str = ""
    rev: int = 0
    """Of a run: the state in which it waits. A run that has gone on waits no more."""
    queue: str = ""
    """Of `no_worker`: the agent, `agent@version` of runs that are pinned, or `@topic` while no agent serves it."""
    runs: int = 0
    """Of `no_worker`: how many work messages lay there when it was noticed."""
    agent: str = ""
    version: str | None = None
    """Of `no_worker`, where runs are pinned: the version of the agent that no worker has."""
    topic: str | None = None
    thread: str | None = None
    reason: str | None = None
    code: str | None = None
    """Code of the error with which the run ended."""
    interrupts: list[str] | None = None
    """Ids of the interrupts that are open."""
    to: list[str] | None = None
    """Whose task it is to answer them, as far as that was said."""
    effects: list[str] | None = None
    """Places of the effects of which it is not known whether they happened."""
    by: str | None = None
    """Of `resolved`: what was done, such as `retried as RUN`."""


class Webhook(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cb.webhook.{name}`: who is told over HTTP, and of what. The last message on the subject holds."""

    name: str
    url: str
    events: list[str]
    """Event types, `run.*` for all of a kind, `*` for all."""
    secret: str
    """`whsec_` and the key in base64: what signatures are made with."""
    created_at: datetime
    after: int
    """Sequence of EVENTS up to which nothing is told."""
    after_dead: int
    """Sequence of DEAD up to which nothing is told."""
    paused: bool = False
    description: str = ""
