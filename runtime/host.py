"""The host of actors in one process.

    host = Host(bus, settings)
    host.add(Reviews)
    await host.start()
    await shutdown.wait()
    await host.drain()

Application and system actors alike; what one actor does not need costs it nothing.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..actors.actor import Actor
from ..actors.errors import ActorGaveUp, InvalidActor
from ..topics.bus import Bus
from ..topics.ids import WorkerId, new_token
from .config import RuntimeSettings
from .hosting import HostedActor
from .lease import LeaseKeeper
from .presence import Presence

log = logging.getLogger(__name__)


class Host:
    """Runs actors over one bus. `id` names it in heartbeats; it is never used twice.

    Given a LeaseKeeper, heartbeats and answers to pings come from its thread; its maker starts and stops it."""

    def __init__(
        self,
        bus: Bus,
        settings: RuntimeSettings | None = None,
        *,
        keeper: LeaseKeeper | None = None,
        worker: str | None = None,
    ) -> None:
        self._bus, self.settings = bus, settings or RuntimeSettings()
        self.id = WorkerId(worker or new_token())
        self._actors: list[HostedActor] = []
        self._presence = Presence(bus, self.id, self._beat, self.settings.beat_s, keeper)
        self._draining = False
        self._ended = False
        self._abandoned = asyncio.Event()
        self.on_give_up: list[Callable[[ActorGaveUp], None]] = []
        """Called when an actor is given up."""

    def add(self, actor: Actor | Callable[[], Actor]) -> None:
        """Adds an actor, before `start`: a class or another factory, so that a failed instance can be replaced.

        An instance is taken too; when it fails, it is started again. Raises InvalidActor for anything else."""
        if isinstance(actor, Actor):
            instance = actor
            factory: Callable[[], Actor] = lambda: instance  # noqa: E731
        elif callable(actor):
            factory = actor
        else:
            raise InvalidActor(f"{actor!r} is neither an actor nor a way to make one")
        self._actors.append(HostedActor(self._bus, self.id, factory, self.settings, self._presence, self._gave_up))

    async def start(self) -> None:
        """Starts everything; when it returns, each actor takes messages.

        Raises ActorGaveUp when one does not start, BrokerError when its subscriptions cannot be made, InvalidActor;
        what was started is ended before."""
        try:
            await self._presence.start(listen=True)
            for actor in self._actors:
                await actor.start()
        except BaseException:
            await self.stop()
            raise
        self._presence.beat()

    async def drain(self, grace_s: float | None = None) -> None:
        """Ends in order: takes nothing new, finishes or hands back within `grace_s` seconds (default: the setting).

        Works with the broker gone; then others take over what was held as after a crash. Idempotent."""
        if self._ended:
            return
        self._draining = self._ended = True
        grace = self.settings.grace_s if grace_s is None else grace_s
        self._presence.changed()
        await asyncio.gather(*(actor.drain(grace) for actor in self._actors))
        self._presence.beat()
        await self._presence.stop()

    async def stop(self) -> None:
        """Ends at once; what runs is cancelled. Idempotent."""
        await self.drain(0.0)

    async def abandoned(self) -> None:
        """Returns once every actor has been given up."""
        await self._abandoned.wait()

    @property
    def gave_up(self) -> list[str]:
        """The actors that were given up."""
        return [actor.name for actor in self._actors if actor.supervisor.error is not None]

    def _gave_up(self, error: ActorGaveUp) -> None:
        self._presence.changed()
        for callback in self.on_give_up:
            callback(error)
        if len(self.gave_up) == len(self._actors):
            self._abandoned.set()

    def owned(self, actor: str) -> list[int]:
        """The partitions of the actor's keys that this host holds."""
        return next((hosted.owned for hosted in self._actors if hosted.name == actor), [])

    def _beat(self) -> dict[str, Any]:
        beat: dict[str, Any] = {
            "id": self.id,
            "agents": [],
            "concurrency": 0,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": _version(),
            "draining": self._draining,
            "actors": [actor.name for actor in self._actors if actor.ready],
            "owned": {actor.name: actor.owned for actor in self._actors if actor.owned},
            "failed": self.gave_up,
        }
        for actor in self._actors:
            for name, value in actor.beat().items():
                beat[name] = _joined(beat.get(name), value)
        return beat


def _joined(before: Any, value: Any) -> Any:
    """What two actors say: lists one after the other, figures added up, words side by side."""
    if isinstance(value, list):
        return [*(before or []), *value]
    if not isinstance(value, dict):
        return value
    figures = all(isinstance(one, int) for one in value.values())
    return dict(Counter(before or {}) + Counter(value)) if figures else {**(before or {}), **value}


@functools.cache
def _version() -> str:
    try:
        return version("callboard")
    except PackageNotFoundError:
        return ""
