"""What waits for a person, as it goes out over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from ..store.attention import Item
from .models import Model, Run


class AttentionItem(Model):
    """One thing that waits for a person, with what can be done about it."""

    id: str
    """A run's id, `queue:{agent}`, `queue:{agent}@{version}`, `queue:@{topic}` or `dead:{number}`."""
    kind: Literal[
        "failed", "timed_out", "orphaned", "not_undone", "input_required", "auth_required", "no_worker", "dead_letter"
    ]  # fmt: skip
    since: datetime
    actions: list[str]
    """`retry`, `resume`, `escalate`, `reconcile`, `fail`, `cancel`, `replay`, `drop`, `start_worker`."""
    run: str | None = None
    agent: str | None = None
    version: str | None = None
    """Of a queue of runs that are pinned: the version of the agent that no worker has."""
    topic: str | None = None
    thread: str | None = None
    code: str | None = None
    reason: str | None = None
    subject: str | None = None
    """Of a dead letter: where it was sent."""
    runs: int = 0
    """Of a queue: how many runs waited when it was noticed."""
    interrupts: list[str]
    """Ids of the interrupts that are open."""
    to: list[str]
    """Whose task it is to answer them, as far as that was said."""
    effects: list[str]
    """Places of the effects of which it is not known whether they happened."""


class AttentionList(Model):
    """All that waits for a person, newest first."""

    items: list[AttentionItem]


class RunRetried(Run):
    """The run that goes on from one that ended without a result."""

    retry_of: str | None
    """The run that was retried. Null while no coordinator answers: the request is kept, and that run is shown."""


def shown(item: Item) -> AttentionItem:
    """One thing that waits."""
    return AttentionItem(
        id=item.id, kind=item.kind, since=item.since, actions=list(item.actions), run=item.run, agent=item.agent,
        version=item.version, topic=item.topic, thread=item.thread,
        code=item.code, reason=item.reason, subject=item.subject, runs=item.runs,
        interrupts=item.interrupts or [], to=item.to or [], effects=item.effects or [],
    )  # fmt: skip
