"""Which version of its agent a run belongs to, as pure functions over its record.

A run that is not pinned is carried out by workers of any version, and has the version of its newest attempt. A pinned
one has the version under which it began, for good. It is pinned when it is created under a registration that says so,
or when a worker of such a version begins it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from ...topics.messages import AgentInfo, RunRecord, Status
from .decision import STALE, Decision, queued
from .run_commands import Claim, Unattended
from .terms import is_pinned


def belongs(record: RunRecord, queue: str) -> bool:
    """Whether a work message of the run may lie on this queue (empty: not told). A run that its first attempt has
    pinned has one on the queue of the agent until that attempt is over."""
    return queue in ("", record.queue) or (record.pin and queue == record.agent)


def is_elsewhere(record: RunRecord, claim: Claim) -> bool:
    """Whether the run belongs to workers of another version than the one that claims it."""
    return record.pin and claim.version != record.version


def sent_there(record: RunRecord, claim: Claim, now: datetime, losses: int) -> Decision:
    """The work message came to a worker of another version, after the one that it came to first had pinned the run."""
    found = f"version {claim.version}" if claim.version else "no version"
    reason = f"pinned to version {record.version} of its agent, and found by a worker with {found}"
    return queued(record, now, reason, losses=losses)


def at_claim(record: RunRecord, claim: Claim) -> dict[str, Any]:
    """What a claim changes: the version is that of the worker, and may pin a run that has not begun."""
    if record.pin or record.undo:
        return {}
    info = claim.agent
    pins = record.attempt == 0 and info is not None and info.version == claim.version and is_pinned(info)
    return {"version": claim.version, "pin": pins}


def at_registration(info: AgentInfo | None) -> dict[str, Any]:
    """What the registration of its agent, for which a run has waited, changes."""
    return {} if info is None else {"version": info.version, "pin": is_pinned(info)}


def unattended(record: RunRecord, command: Unattended) -> Decision:
    """The reason is noted; the time of the last change stays, as the work message is still that of then."""
    waits = record.status is Status.QUEUED and record.wake_at is None and record.dispatch == command.dispatch
    if not waits or record.reason == command.reason:
        return STALE
    return Decision("changed", replace(record, rev=record.rev + 1, reason=command.reason))
