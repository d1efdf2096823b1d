"""Which versions of an agent there are, who serves each now, and how many runs still belong to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ..topics.messages import AgentInfo, WorkerInfo
from .agents import Registrations


class ServedVersion(Struct, frozen=True, kw_only=True):
    """One version of an agent."""

    version: str
    """Empty: none."""
    current: bool
    """Whether new runs follow its registration."""
    pin: bool
    """Whether runs that begin under it are pinned to it."""
    registered: bool
    workers: list[str]
    """Ids of the live workers that have it and do not drain."""
    pinned: int
    """Runs that are pinned to it and have not ended."""


def served(
    name: str, found: Registrations, live: Sequence[WorkerInfo], pinned: Mapping[str, int]
) -> list[ServedVersion]:
    """The versions of an agent, the current one first, then from the newest registration to the oldest; those that are
    not registered any more, and have workers or runs, come last. `pinned`: runs by version."""
    infos = {info.version: info for info in found.versions.get(name, [])}
    current = found.current.get(name)
    workers: dict[str, list[str]] = {}
    for one in live:
        if name in one.agents and not one.draining:
            workers.setdefault(one.versions.get(name, ""), []).append(one.id)
    first = [current.version] if current else []
    order = dict.fromkeys([*first, *reversed(infos), *sorted(workers), *sorted(pinned)])
    return [
        ServedVersion(
            version=version,
            current=current is not None and version == current.version,
            pin=_pins(infos.get(version)),
            registered=version in infos,
            workers=workers.get(version, []),
            pinned=pinned.get(version, 0),
        )
        for version in order
    ]


def _pins(info: AgentInfo | None) -> bool:
    return info is not None and info.pin
