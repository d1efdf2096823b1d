"""Which agents serve a topic: the registrations, followed live, and the tasks that wait for a registration."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from ...store.agents import AgentRegistry, registered
from ...topics.bus import Bus, Subscription
from ...topics.client import Message
from ...topics.errors import InvalidMessage, InvalidSubject
from ...topics.messages import AgentInfo
from ...topics.subjects import require_token
from ...topics.versions import split, versioned

log = logging.getLogger(__name__)

_REFRESH_S = 0.5
_LOOK_S = 30.0
"""What was registered unheard, as on its way through a cluster, is found after so long at most."""


class Routing:
    """The registrations as this coordinator knows them."""

    def __init__(self, bus: Bus, registry: AgentRegistry) -> None:
        self._bus, self._registry = bus, registry
        self._agents: dict[str, AgentInfo] = {}
        self._versions: dict[tuple[str, str], AgentInfo] = {}
        self._topics: dict[str, tuple[str, ...]] = {}
        self._refreshed = 0.0
        self._heard: set[str] = set()
        """As the subjects name them: what came in live, since the connection stands."""
        self._missed = asyncio.Event()
        self._subscription: Subscription | None = None
        self.on_registration: list[asyncio.Event] = []

    async def start(self) -> None:
        """Listens, and reads what was registered before that. Raises BrokerError."""
        if self._subscription is None:
            subjects = self._bus.subjects
            self._subscription = await self._bus.subscribe(f"{subjects.live}.agent.*", self.heard)
        await self.refresh()

    async def stop(self) -> None:
        """Listens no more."""
        if self._subscription is not None:
            await self._subscription.close()

    def reconnected(self) -> None:
        """What was registered while the connection was away was not heard."""
        self._heard.clear()
        self._missed.set()

    async def watch(self) -> None:
        """Reads the registrations whenever some may have been missed, and now and then. Runs until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._missed.wait()
            before = dict(self._agents)
            await self.refresh()
            if self._agents != before:
                self._tell()

    async def refresh(self) -> None:
        """Reads all registrations anew; what was heard is newer than what a replica says that may be late."""
        self._refreshed = asyncio.get_running_loop().time()
        self._missed.clear()
        try:
            found = await self._registry.registrations()
        except BaseException:
            self._missed.set()
            raise
        self._agents |= {name: info for name, info in found.current.items() if name not in self._heard}
        for name, infos in found.versions.items():
            fresh = [info for info in infos if versioned(name, info.version) not in self._heard]
            self._versions |= {(name, info.version): info for info in fresh}
        self._index()

    def _tell(self) -> None:
        for event in self.on_registration:
            event.set()

    def _index(self) -> None:
        topics: dict[str, list[str]] = {}
        for info in self._agents.values():
            for topic in info.topics:
                topics.setdefault(topic, []).append(info.name)
        self._topics = {topic: tuple(sorted(names)) for topic, names in topics.items()}

    def heard(self, message: Message) -> None:
        """A registration came in on the live subject, or with an empty body the word that there is none any more."""
        token = message.subject.rpartition(".")[2]
        name, version = split(token)
        if not message.data:
            self._forget(name, version)
            return
        try:
            info = registered(token, message.data)
            require_token("agent", info.name)
        except (InvalidMessage, InvalidSubject) as error:
            log.warning("registration on %s not understood: %s", message.subject, error)
            return
        self._versions[info.name, info.version] = info
        self._heard |= {token, versioned(info.name, info.version)}
        if version is None:
            self._agents[info.name] = info
            self._index()
        self._tell()

    def _forget(self, name: str, version: str | None) -> None:
        self._heard.discard(name if version is None else versioned(name, version))
        if version is None:
            self._agents.pop(name, None)
            self._index()
        else:
            self._versions.pop((name, version), None)

    def agent(self, name: str, version: str | None = None) -> AgentInfo | None:
        """The registration of an agent that new runs follow, or that of one of its versions, if it is known."""
        return self._agents.get(name) if version is None else self._versions.get((name, version))

    async def version(self, name: str, version: str) -> AgentInfo | None:
        """The registration of a version. One that is not known is looked up anew, at most twice a second."""
        info = self.agent(name, version)
        if info is None and self._is_old():
            await self.refresh()
            info = self.agent(name, version)
        return info

    def _is_old(self) -> bool:
        return asyncio.get_running_loop().time() - self._refreshed > _REFRESH_S

    @property
    def topics(self) -> dict[str, tuple[str, ...]]:
        """Every topic that is served, and by whom, in alphabetical order."""
        return self._topics

    async def serving(self, topic: str) -> tuple[str, ...]:
        """The agents that serve a topic. A topic nobody is known to serve is looked up anew, at most twice a second."""
        names = self._topics.get(topic, ())
        if not names and self._is_old():
            await self.refresh()
            names = self._topics.get(topic, ())
        return names
