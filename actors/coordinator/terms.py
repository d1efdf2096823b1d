"""On which terms a run begins: deadline, how long it may wait for a worker, priority; by request or by agent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import cast, get_args

from msgspec.structs import replace

from ...topics.errors import InvalidInput
from ...topics.messages import AgentInfo, Priority, RunRecord, TaskRequest
from ...topics.units import LONGEST_S

DEADLINE, WAIT_TIMEOUT, PRIORITY = "Callboard-Deadline", "Callboard-Wait-Timeout", "Callboard-Priority"


def of_headers(request: TaskRequest, headers: Mapping[str, str]) -> TaskRequest:
    """The request with what the headers of its task say. Raises InvalidInput."""
    if not (DEADLINE in headers or WAIT_TIMEOUT in headers or PRIORITY in headers):
        return request
    priority = headers.get(PRIORITY, "normal")
    if priority not in get_args(Priority):
        raise InvalidInput(f"header {PRIORITY} {priority[:20]!r} is none of {', '.join(get_args(Priority))}")
    return replace(
        request,
        deadline_s=_seconds(headers, DEADLINE),
        wait_timeout_s=_seconds(headers, WAIT_TIMEOUT),
        priority=cast(Priority, priority),
    )


def _seconds(headers: Mapping[str, str], name: str) -> float | None:
    if name not in headers:
        return None
    try:
        return float(headers[name])
    except ValueError:
        raise InvalidInput(f"header {name} {headers[name][:20]!r} is not a number of seconds") from None


def text(request: TaskRequest) -> str:
    """As it goes into the digest of a request; empty when it asks for nothing of its own."""
    if request.deadline_s is None and request.wait_timeout_s is None and request.priority == "normal":
        return ""
    return f"{request.deadline_s!r} {request.wait_timeout_s!r} {request.priority}"


def settled(record: RunRecord, agent: AgentInfo | None, request: TaskRequest | None = None) -> RunRecord:
    """A new run with its agent's version and policy, and with its terms: the request's, otherwise those of its agent,
    as far as it is known. Seconds count from when the run may begin."""
    if agent is not None:
        record = replace(
            record, retry=agent.retry, timeout_s=agent.timeout_s, version=agent.version, pin=is_pinned(agent)
        )
    deadline_s = _first(request.deadline_s if request else None, agent.deadline_s if agent else None)
    wait_s = _first(request.wait_timeout_s if request else None, agent.wait_timeout_s if agent else None)
    if deadline_s is None and wait_s is None:
        return record
    begins = record.wake_at or record.created_at
    return replace(
        record,
        deadline_at=record.deadline_at or (None if deadline_s is None else begins + timedelta(seconds=deadline_s)),
        wait_timeout_s=wait_s,
        wait_until=None if wait_s is None or record.wake_at else begins + timedelta(seconds=wait_s),
    )


def is_pinned(agent: AgentInfo) -> bool:
    """Whether a run that begins under this registration belongs to its version. A registration may be anybody's."""
    return agent.pin and bool(agent.version)


def _first(asked: float | None, agents: float | None) -> float | None:
    """A limit of an agent comes from a registration, which anybody may have written."""
    if asked is not None:
        return asked
    return agents if agents is not None and math.isfinite(agents) and 0 < agents <= LONGEST_S else None
