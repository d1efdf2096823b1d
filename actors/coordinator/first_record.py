"""The record of a new run, whatever it comes from: a request, a task that waited, a parent, a run that is retried.

Pure: nothing is written here, and how the run comes into its thread is seen to afterwards (`placing`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from ...topics.ids import root_of
from ...topics.messages import AgentInfo, ChildRequest, Payload, RunRecord, Status, TaskRequest
from . import delay, terms


def of_request(
    request: TaskRequest, run: str, agent: str, info: AgentInfo | None, mark: str | None, now: datetime
) -> RunRecord:
    """The run of a request by `agent` (empty: nobody is known to serve its topic), with the digest of the request."""
    wake_at, fork = delay.to_come(request.run_at, now), request.fork
    record = _new(
        run,
        agent,
        request.payload,
        info,
        now,
        request,
        topic=request.topic,
        thread=request.thread,
        metadata=request.metadata,
        key=request.key,
        fingerprint=mark,
        wake_at=wake_at,
        trace=request.trace,
        priority=request.priority,
        forked_from=fork,
        reason=_why_it_waits(request, agent, info, wake_at),
    )
    return record if request.version is None else replace(record, version=request.version, pin=bool(request.version))


def of_sibling(
    first: RunRecord, run: str, agent: str, info: AgentInfo | None, trace: str | None, now: datetime
) -> RunRecord:
    """The run of a further agent that serves the topic of a task, whose run is `first`."""
    return _like(
        first, run, agent, info, trace, now, key=first.key, fingerprint=first.fingerprint, deadline_at=first.deadline_at
    )


def of_child(parent: RunRecord, child: ChildRequest, info: AgentInfo | None, now: datetime) -> RunRecord:
    """A child that a running attempt starts."""
    return _new(
        child.run,
        child.agent,
        child.input,
        info,
        now,
        parent=parent.id,
        thread=parent.thread,
        metadata=child.metadata,
        detached=child.detached,
        trace=child.trace or parent.trace,
        priority=parent.priority,
        reason=None if info else _unregistered(child.agent),
    )


def of_retry(before: RunRecord, run: str, info: AgentInfo | None, trace: str | None, now: datetime) -> RunRecord:
    """The run that takes up `before`, which has ended without a result: on the same version, if that was pinned."""
    reason = f"retries run {before.id}"
    record = _like(
        before, run, before.agent, info, trace, now, reason=reason, retry=before.retry, timeout_s=before.timeout_s
    )
    return replace(record, version=before.version, pin=True) if before.pin else record


def of_successor(before: RunRecord, run: str, info: AgentInfo | None, trace: str | None, now: datetime) -> RunRecord:
    """The run that starts from the input of `before` in its place, on the terms and the version of today."""
    reason = f"starts in the place of run {before.id}, whose checkpoint has no migration"
    return _like(before, run, before.agent, info, trace, now, reason=reason, successor_of=before.id)


def _like(
    other: RunRecord, run: str, agent: str, info: AgentInfo | None, trace: str | None, now: datetime, **more: Any
) -> RunRecord:
    """A run of the same task as another one."""
    return _new(
        run,
        agent,
        other.input,
        info,
        now,
        topic=other.topic,
        thread=other.thread,
        metadata=other.metadata,
        trace=trace,
        priority=other.priority,
        **more,
    )


def _new(
    run: str,
    agent: str,
    input: Payload,
    info: AgentInfo | None,
    now: datetime,
    request: TaskRequest | None = None,
    **more: Any,
) -> RunRecord:
    """What all have in common: queued, with its first work message owed, on the terms of its agent's registration."""
    record = RunRecord(
        id=run,
        root=root_of(run),
        agent=agent,
        status=Status.QUEUED,
        input=input,
        created_at=now,
        updated_at=now,
        dispatch=1,
    )
    return terms.settled(replace(record, **more), info, request)


def _why_it_waits(request: TaskRequest, agent: str, info: AgentInfo | None, wake_at: datetime | None) -> str | None:
    reason = None
    if not agent:
        reason = f"no agent serves topic {request.topic!r} yet; start a worker that does"
    elif info is None:
        reason = _unregistered(agent, request.version)
    elif request.fork is not None:
        reason = f"begins from checkpoint {request.fork.checkpoint} of run {request.fork.run}"
    if wake_at is None:
        return reason
    return f"begins at {wake_at:%Y-%m-%d %H:%M:%S} UTC" + (f"; {reason}" if reason else "")


def _unregistered(agent: str, version: str | None = None) -> str:
    return f"no worker has registered agent {agent!r}{f' version {version!r}' if version else ''} yet; start one"
