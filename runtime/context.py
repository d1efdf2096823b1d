"""The host's side of `ActorContext`."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from ..actors.asking import ask_actor
from ..actors.publication import publish
from ..topics import units
from ..topics.bus import Bus

log = logging.getLogger("callboard.actor")


class HostContext:
    """What an actor may ask of its host; one for the life-cycle hooks, one for each message."""

    __slots__ = ("_bus", "_logger", "attempt", "key", "name", "topic")

    def __init__(self, bus: Bus, name: str, key: str | None = None, topic: str | None = None, attempt: int = 0) -> None:
        self._bus = bus
        self.name, self.key, self.topic, self.attempt = name, key, topic, attempt
        self._logger: logging.LoggerAdapter[logging.Logger] | None = None

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger below `callboard.actor` that names the actor, and has actor, key and topic as fields."""
        if self._logger is None:
            fields = {"actor": self.name, "key": self.key, "topic": self.topic}
            self._logger = logging.LoggerAdapter(log.getChild(self.name), fields)
        return self._logger

    @property
    def now(self) -> datetime:
        """The wall clock."""
        return units.now()

    async def publish(self, topic: str, message: Any, key: str | None = None) -> int:
        """See ActorContext."""
        return await publish(self._bus, topic, message, key)

    async def ask(
        self,
        actor: str,
        key: str,
        message: Any,
        *,
        returns: Any = Any,
        timeout: timedelta = timedelta(seconds=5),
        method: str | None = None,
    ) -> Any:
        """See ActorContext."""
        return await ask_actor(self._bus, actor, key, message, returns, timeout.total_seconds(), method)
