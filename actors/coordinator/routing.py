"""Which agents serve a topic: the registrations, followed live, and the tasks that wait for a registration."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from ...store.agents import AgentRegistry
from ...topics.bus import Bus
from ...topics.client import Message
from ...topics.errors import InvalidSubject
from ...topics.messages import AgentInfo
from ...topics.subjects import require_token

log = logging.getLogger(__name__)

_REFRESH_S = 0.5


class Routing:
    """The registrations as this coordinator knows them."""

    def __init__(self, bus: Bus, registry: AgentRegistry) -> None:
        self._bus, self._registry = bus, registry
        self._agents: dict[str, AgentInfo] = {}
        self._topics: dict[str, tuple[str, ...]] = {}
        self._refreshed = 0.0
        self.on_registration: list[asyncio.Event] = []

    async def refresh(self) -> None:
        """Reads all registrations anew."""
        self._refreshed = asyncio.get_running_loop().time()
        for info in await self._registry.all():
            self._agents[info.name] = info
        self._index()

    def _index(self) -> None:
        topics: dict[str, list[str]] = {}
        for info in self._agents.values():
            for topic in info.topics:
                topics.setdefault(topic, []).append(info.name)
        self._topics = {topic: tuple(sorted(names)) for topic, names in topics.items()}

    def heard(self, message: Message) -> None:
        """A registration came in on the live subject."""
        try:
            info = msgspec.json.decode(message.data, type=AgentInfo)
            if require_token("agent", info.name) != message.subject.rpartition(".")[2]:
                raise InvalidSubject(f"it registers agent {info.name!r}")
        except (msgspec.MsgspecError, InvalidSubject) as error:
            log.warning("registration on %s not understood: %s", message.subject, error)
            return
        self._agents[info.name] = info
        self._index()
        for event in self.on_registration:
            event.set()

    def agent(self, name: str) -> AgentInfo | None:
        """The registration of an agent, if it is known."""
        return self._agents.get(name)

    @property
    def topics(self) -> dict[str, tuple[str, ...]]:
        """Every topic that is served, and by whom, in alphabetical order."""
        return self._topics

    async def serving(self, topic: str) -> tuple[str, ...]:
        """The agents that serve a topic. A topic nobody is known to serve is looked up anew, at most twice a second."""
        names = self._topics.get(topic, ())
        if not names and asyncio.get_running_loop().time() - self._refreshed > _REFRESH_S:
            await self.refresh()
            names = self._topics.get(topic, ())
        return names
