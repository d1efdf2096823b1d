"""What all attempts of a worker share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...store.blobs import Blobs
from ...store.checkpoints import Checkpoints
from ...store.log import EventLog
from ...store.threads import Threads
from ...topics.bus import Bus
from ..agent import Agent
from ..refusals import Refusals
from .threads import StepThreads

_BUSY_PATIENCE_S = 0.02


@dataclass(kw_only=True, eq=False)
class Workplace:
    """Made once by a worker, for `Attempt`."""

    bus: Bus
    worker: str
    """Its id."""
    known: dict[str, Agent[Any]]
    """The agents that it serves, by name."""
    threads: StepThreads
    """In which sync steps run."""
    processes: asyncio.Semaphore
    """Bounds those of isolated steps."""
    refusals: Refusals
    crowded: Callable[[], bool]
    """Whether a run that only waits should make room for others."""
    patience_s: float
    """How long such a run keeps its slot while nobody wants it."""
    blobs: Blobs = field(init=False)
    log: EventLog = field(init=False)
    checkpoints: Checkpoints = field(init=False)
    conversations: Threads = field(init=False)
    """The threads that runs belong to."""

    def __post_init__(self) -> None:
        self.blobs, self.log = Blobs(self.bus, patient=True), EventLog(self.bus)
        self.checkpoints, self.conversations = Checkpoints(self.bus, self.blobs), Threads(self.bus)

    def patience(self) -> float:
        """How long a run that only waits keeps its slot as things stand, in seconds."""
        return _BUSY_PATIENCE_S if self.crowded() else self.patience_s
