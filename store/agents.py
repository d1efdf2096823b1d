"""The registrations of agents: what each agent is, whether or not a worker of it is up."""

from __future__ import annotations

import logging

import msgspec

from ..topics import reads
from ..topics.bus import Bus
from ..topics.errors import NotFound
from ..topics.messages import AgentInfo, encode
from ..topics.reads import Stored

log = logging.getLogger(__name__)

_decode = msgspec.json.Decoder(AgentInfo).decode


class AgentRegistry:
    """Reads and writes `cb.agent.{name}` in EVENTS; the last message on it is the registration."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._stream = bus.subjects.events

    async def register(self, info: AgentInfo) -> bool:
        """Makes `info` the agent's registration; returns whether it had to be written.

        Nothing is written when the last one is the same, so that many workers may register at each start. Raises
        InvalidSubject, StorageFull, Unavailable."""
        subject = self._bus.subjects.agent(info.name)
        stored = await reads.last_from_leader(self._bus, self._stream, subject)
        if stored is not None and _read(stored) == info:
            return False
        await self._bus.store(subject, encode(info))
        return True

    async def get(self, name: str) -> AgentInfo:
        """One registration. Raises NotFound."""
        stored = await reads.last(self._bus, self._stream, self._bus.subjects.agent(name))
        info = None if stored is None else _read(stored)
        if info is None:
            raise NotFound(f"no agent {name!r} is registered: start a worker that serves it", agent=name)
        return info

    async def current(self, name: str) -> AgentInfo | None:
        """The registration as the stream's leader knows it; None when there is none."""
        stored = await reads.last_from_leader(self._bus, self._stream, self._bus.subjects.agent(name))
        return None if stored is None else _read(stored)

    async def all(self) -> list[AgentInfo]:
        """All registrations, by name; what cannot be read as one is left out with a warning."""
        found = await reads.many_last(self._bus, self._stream, [f"{self._bus.subjects.namespace}.agent.*"])
        infos = (_read(stored) for stored in found.values())
        return sorted((info for info in infos if info is not None), key=lambda info: info.name)


def _read(stored: Stored) -> AgentInfo | None:
    try:
        info = _decode(stored.data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        log.warning("message %d on %s is not a registration: %s", stored.sequence, stored.subject, error)
        return None
    if info.name != stored.kind:
        log.warning("message %d on %s registers another agent, %r", stored.sequence, stored.subject, info.name)
        return None
    return info
