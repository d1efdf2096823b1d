"""Who serves what, and who is there."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from .limits import Limits
from .run import RetryPolicy


class AgentInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker registers, so that tasks find their agent before any worker is up again: on `cb.agent.{name}` the
    version that new runs follow, on `cb.agent.{name}@{version}` each one that there is."""

    name: str
    topics: list[str] = []
    version: str = ""
    pin: bool = False
    """Whether its runs are carried out by workers of this version only."""
    description: str = ""
    retry: RetryPolicy = RetryPolicy()
    timeout_s: float | None = None
    deadline_s: float | None = None
    """A run may take so long in all, in seconds from its creation (or from when it was to begin)."""
    wait_timeout_s: float | None = None
    """A run may wait so long for a worker each time it is queued, in seconds."""
    limits: Limits | None = None
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    state_schema: dict[str, Any] | None = None
    """JSON schema of the state in its checkpoints; None when it is not typed."""
    nodes: list[str] | None = None
    """Of a graph: the names that its nodes have and had, and that of its start. None when it is none."""


class AbandonedStep(Struct, frozen=True, omit_defaults=True):
    """A sync step whose function goes on in its thread although nobody waits for it."""

    run: str
    step: str
    at: datetime
    """When it was abandoned."""
    after_s: float = 0.0
    """How long it had run by then, in seconds."""


class WorkerInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cb.worker.{id}.beat`: a worker's heartbeat on core NATS; also its answer to a ping on `cb.worker.{id}`."""

    id: str
    agents: list[str]
    versions: dict[str, str] = {}
    """Of those agents that have one, the version."""
    concurrency: int
    running: list[str] = []
    """Runs it holds."""
    host: str = ""
    pid: int = 0
    version: str = ""
    draining: bool = False
    actors: list[str] = []
    abandoned: list[AbandonedStep] = []
    """Threads that it cannot use."""
    refused: dict[str, int] = {}
    """Late writes of attempts that had lost their run, by kind, refused since the process began."""
