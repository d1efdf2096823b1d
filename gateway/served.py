"""Agents, their versions, and live workers, as they go out over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from pydantic import Field

from ..store.served import ServedVersion
from ..topics.messages import AgentInfo, WorkerInfo
from .models import Asked, Model


class AgentVersionOut(Model):
    """One version of an agent, those of the live workers that have it, and how many runs that have not ended are pinned
    to it."""

    version: str
    """Empty: none."""
    current: bool
    """Whether new runs follow it."""
    pin: bool
    registered: bool
    workers: list[str]
    pinned: int


class AgentOut(Model):
    """A registered agent and the workers that serve it at this moment."""

    name: str
    topics: list[str]
    version: str
    description: str
    timeout_s: float | None
    max_attempts: int
    workers: list[str]
    pin: bool
    """Whether its runs are pinned to their version."""
    versions: list[AgentVersionOut]
    """The one that new runs follow first; that one's fields stand above."""
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None


class WorkerOut(Model):
    """A process that answered just now: a worker with its agents, or a host of other actors."""

    id: str
    agents: list[str]
    versions: dict[str, str]
    """Of those agents that have one, the version."""
    actors: list[str]
    concurrency: int
    running: list[str]
    host: str
    pid: int
    version: str
    draining: bool


class AgentPromote(Asked):
    """Which version new runs are to follow."""

    version: Annotated[str, Field(max_length=64)]


class AgentPromoted(Model):
    """The version that new runs follow now."""

    agent: str
    version: str


class AgentList(Model):
    """Agents by name, and live workers."""

    agents: list[AgentOut]
    workers: list[WorkerOut]


def agent(info: AgentInfo, workers: list[WorkerInfo], versions: list[ServedVersion]) -> AgentOut:
    """An agent with its versions, and those of the live workers that serve it."""
    return AgentOut(
        name=info.name, topics=info.topics, version=info.version, description=info.description,
        timeout_s=info.timeout_s,
        max_attempts=info.retry.max_attempts, input_schema=info.input_schema, output_schema=info.output_schema,
        workers=[one.id for one in workers if info.name in one.agents], pin=info.pin,
        versions=[AgentVersionOut(**msgspec.structs.asdict(one)) for one in versions],
    )  # fmt: skip


def worker(info: WorkerInfo) -> WorkerOut:
    """A live worker."""
    return WorkerOut(
        id=info.id, agents=info.agents, versions=info.versions, actors=info.actors,
        concurrency=info.concurrency, running=info.running, host=info.host,
        pid=info.pid,
        version=info.version, draining=info.draining,
    )  # fmt: skip
