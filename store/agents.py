"""The registrations of agents: what each agent is, whether or not a worker of it is up, in each of its versions.

New runs follow one version, the current one. A worker that registers a version for the first time makes it the current
one; one that registers a version which is known, but is not the current one, does not. So an old worker that starts
again, as in a rolling deploy, changes nothing for new runs. `promote` makes a known version the current one again.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import msgspec

from ..topics import reads
from ..topics.bus import Bus, fence
from ..topics.client import head_bytes
from ..topics.errors import IllegalTransition, InvalidMessage, InvalidSubject, NotFound, StaleFence, Unavailable
from ..topics.messages import AgentInfo, encode
from ..topics.reads import Stored
from ..topics.versions import require_version, split, versioned
from .unread import leave_out

log = logging.getLogger(__name__)

_KEPT = {"Nats-TTL": "never"}
"""A version stays known for longer than the log keeps its runs: else an old one would be taken for a new one."""
_TRIES = 10

_decode = msgspec.json.Decoder(AgentInfo).decode


class Registrations(NamedTuple):
    """All that is registered: by name the current registration, and every version in the order in which they came."""

    current: dict[str, AgentInfo]
    versions: dict[str, list[AgentInfo]]


class AgentRegistry:
    """Reads and writes `cb.agent.{name}`, the current registration of an agent, and `cb.agent.{name}@{version}`, those
    of its versions, in EVENTS. An agent without versions has the first alone."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._stream = bus.subjects.events

    async def register(self, info: AgentInfo) -> bool:
        """Registers this version of an agent; returns whether anything had to be written.

        It becomes the current one if it was not known before, or is the current one; an agent without a version never
        takes the place of one that has some. Nothing is written when all is the same, so that many workers may register
        at each start. Raises InvalidSubject, StorageFull, Unavailable."""
        for _ in range(_TRIES):
            current, sequence = await self._stored(self._bus.subjects.agent(info.name))
            known = await self._known(info, current)
            try:
                if current is None or current.version == info.version or (info.version and known is None):
                    return await self._put(info, current, known, sequence)
                if known != info:
                    await self._put_version(info)
                return known != info
            except StaleFence:  # another worker was faster
                continue
        raise Unavailable(f"agent {info.name} could not be registered: the broker does not settle; try again")

    async def promote(self, name: str, version: str) -> AgentInfo:
        """Makes a version that is known the one that new runs follow. Raises NotFound, Unavailable."""
        for _ in range(_TRIES):
            current, sequence = await self._stored(self._bus.subjects.agent(name))
            if current is None:
                raise _unknown(name)
            if current.version == version:
                return current
            info, _ = await self._stored(self._bus.subjects.agent_version(name, version))
            if info is None:
                known = (await self.registrations()).versions.get(name, [current])
                listed = ", ".join(one.version or "(none)" for one in known)
                raise NotFound(f"agent {name!r} has no version {version!r}: known are {listed}", agent=name)
            try:
                await self._give_way(current, info)
                await self._put_current(info, sequence)
            except StaleFence:
                continue
            return info
        raise Unavailable(f"agent {name} could not be changed: the broker does not settle; try again")

    async def forget(self, name: str, version: str | None = None) -> None:
        """Takes a registration away: of a version that is not the current one, or (None) of the whole agent. Workers
        that start bring it back. Coordinators are told; one that misses it knows it until it starts again.

        Raises NotFound, InvalidSubject, IllegalTransition for the current version, Unavailable."""
        found = await self.registrations()
        current, versions = found.current.get(name), found.versions.get(name, [])
        tokens = [versioned(name, one.version) for one in versions if version in (None, one.version)]
        subjects = self._bus.subjects
        named = subjects.agent(name) if version is None else subjects.agent_version(name, version)
        if await reads.last_from_leader(self._bus, self._stream, named) is not None:  # also what cannot be read
            tokens.append(named.rpartition(".")[2])
        if not tokens:
            raise NotFound(f"agent {name!r} is not registered" + (f" in version {version!r}" if version else ""))
        if version is not None and current is not None and current.version == version:
            raise IllegalTransition(f"new runs of agent {name!r} follow version {version!r}: promote another one first")
        for token in dict.fromkeys(tokens):
            subject = f"{self._bus.subjects.namespace}.agent.{token}"
            await self._bus.api(f"STREAM.PURGE.{self._stream}", {"filter": subject})
            self._bus.publish(self._bus.subjects.live_of(subject), b"")

    async def get(self, name: str) -> AgentInfo:
        """The current registration. Raises NotFound."""
        stored = await reads.last(self._bus, self._stream, self._bus.subjects.agent(name))
        info = None if stored is None else _read(stored)
        if info is None:
            raise _unknown(name)
        return info

    async def pinned(self, name: str, version: str | None) -> AgentInfo | None:
        """The registration of the version that a run is pinned to, else (None) the current one; None: there is none."""
        if version is None:
            return await self.current(name)
        stored, _ = await self._stored(self._bus.subjects.agent_version(name, version))
        return stored or await self.current(name)

    async def current(self, name: str) -> AgentInfo | None:
        """The current registration as the stream's leader knows it; None when there is none."""
        return (await self._stored(self._bus.subjects.agent(name)))[0]

    async def all(self) -> list[AgentInfo]:
        """The current registrations, by name; what cannot be read as one is left out with a warning."""
        return list((await self.registrations()).current.values())

    async def registrations(self) -> Registrations:
        """All registrations, by name; what cannot be read as one is left out with a warning."""
        return _ordered(await reads.many_last(self._bus, self._stream, [f"{self._bus.subjects.namespace}.agent.*"]))

    # -- writing ------------------------------------------------------------------------------------------------

    async def _stored(self, subject: str) -> tuple[AgentInfo | None, int]:
        stored = await reads.last_from_leader(self._bus, self._stream, subject)
        return (None, 0) if stored is None else (_read(stored), stored.sequence)

    async def _known(self, info: AgentInfo, current: AgentInfo | None) -> AgentInfo | None:
        """How this version is registered now. The only version of an agent without versions is the current one."""
        if not info.version and (current is None or not current.version):
            return current
        return (await self._stored(self._bus.subjects.agent_version(info.name, info.version)))[0]

    async def _put(self, info: AgentInfo, current: AgentInfo | None, known: AgentInfo | None, sequence: int) -> bool:
        """What gives way is known before, and the version itself only once it is current: a worker that finds it known
        and not current may rely on another one having been made current after it."""
        if current != info:
            await self._give_way(current, info)
            await self._put_current(info, sequence)
        if info.version and known != info:
            await self._put_version(info)
        return current != info or (info.version != "" and known != info)

    async def _give_way(self, current: AgentInfo | None, info: AgentInfo) -> None:
        if current is None or current.version == info.version:
            return
        subject = self._bus.subjects.agent_version(current.name, current.version)
        if (await self._stored(subject))[0] is None:
            await self._put_version(current)

    async def _put_current(self, info: AgentInfo, sequence: int) -> None:
        await self._bus.store(self._bus.subjects.agent(info.name), encode(info), fence(sequence, extra=_kept(info)))

    async def _put_version(self, info: AgentInfo) -> None:
        subject = self._bus.subjects.agent_version(info.name, info.version)
        await self._bus.store(subject, encode(info), head_bytes(_KEPT))


def _kept(info: AgentInfo) -> dict[str, str] | None:
    return _KEPT if info.version else None


def _unknown(name: str) -> NotFound:
    return NotFound(f"no agent {name!r} is registered: start a worker that serves it", agent=name)


def _ordered(found: dict[str, Stored]) -> Registrations:
    current: dict[str, AgentInfo] = {}
    versions: dict[str, list[AgentInfo]] = {}
    for stored in sorted(found.values(), key=lambda stored: stored.sequence):
        info = _read(stored)
        if info is None:
            continue
        if "@" in stored.kind:
            versions.setdefault(info.name, []).append(info)
        else:
            current[info.name] = info
    for name, info in current.items():
        if all(one.version != info.version for one in versions.setdefault(name, [])):
            versions[name].append(info)
    return Registrations(dict(sorted(current.items())), versions)


def registered(token: str, data: bytes) -> AgentInfo:
    """The registration in a message on `cb.agent.{token}`. Raises InvalidMessage for one that is none, or another's."""
    try:
        info = _decode(data)
        require_version(info.version)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidSubject) as error:
        raise InvalidMessage(f"it is not a registration: {error}") from error
    if split(token) not in ((info.name, None), (info.name, info.version)):
        raise InvalidMessage(f"it registers another agent, {versioned(info.name, info.version)!r}")
    return info


def _read(stored: Stored) -> AgentInfo | None:
    try:
        return registered(stored.kind, stored.data)
    except InvalidMessage as error:
        leave_out(log, stored, str(error))
        return None
