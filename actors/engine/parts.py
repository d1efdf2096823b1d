"""What the context of one attempt is made of."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...store.blobs import Blobs
from ...store.journal import Journal
from ...topics.bus import Bus
from ...topics.client import head_bytes
from ...topics.messages import RunRecord, Status
from ...topics.subjects import require_token
from ..agent import Agent
from ..publication import publication
from .asking import Asking
from .children import Children
from .effects import EffectCalls
from .hold import Hold
from .inbox import Inbox
from .isolation import Isolation
from .memory import Memory
from .place import Places
from .steps import Steps
from .tenure import Tenure
from .workplace import Workplace
from .writer import Writer


@dataclass
class Parts:
    """Everything that `Context` delegates to."""

    workplace: Workplace
    bus: Bus
    record: RunRecord
    journal: Journal
    writer: Writer
    blobs: Blobs
    hold: Hold
    steps: Steps
    effects: EffectCalls
    asking: Asking
    inbox: Inbox
    children: Children
    places: Places
    isolation: Isolation
    tenure: Tenure
    refused: Callable[[str], None]
    stop: Callable[[], None]
    logger: logging.LoggerAdapter[logging.Logger]
    memory: Memory
    ended: BaseException | None = None

    @property
    def salt(self) -> str:
        """The installation's secret."""
        return self.bus.salt

    def check(self) -> None:
        """Raises what ended the attempt, if it has ended: no operation begins after that."""
        if self.ended is not None:
            raise self.ended

    def finished(self, place: str) -> bool:
        """Whether the operation at this place has a result, in this attempt or one before. Of a child that an earlier
        attempt has started that is not known until it is asked for; it is taken to have one."""
        entry = self.journal.steps.get(place)
        if entry is None or entry.status != "done":
            return False
        if entry.child is None:
            return True
        status = self.children.status(entry.child)
        return status is Status.COMPLETED or (status is None and entry.attempt < self.record.attempt)

    def agent(self, agent: str | Agent[Any], returns: Any) -> tuple[str, Any]:
        """Name and result type of an agent to call. Raises InvalidSubject."""
        if isinstance(agent, Agent):
            return agent.name, agent.result_type if returns is None else returns
        local = self.workplace.known.get(require_token("agent", agent))
        return agent, returns if returns is not None else (local.result_type if local else Any)

    async def publish(self, topic: str, data: bytes, key: str | None) -> int:
        """Publishes JSON to a topic; its sequence. Repeated while the broker is unavailable, at most 30 s."""
        subject, headers = publication(self.bus.subjects, topic, key)
        return await self.bus.store(subject, data, head_bytes(headers) if headers else None)
