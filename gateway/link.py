"""The gateway's connection to the broker, which may come up after the gateway does, and what is built on it."""

from __future__ import annotations

import asyncio
import logging
import random

from ..store.blobs import Blobs
from ..store.log import EventLog
from ..topics.bus import Bus
from ..topics.config import BrokerSettings
from ..topics.errors import CallboardError, Unavailable
from ..topics.server import JetStreamDisabled, ServerTooOld
from ..topics.streams import ensure_streams

log = logging.getLogger(__name__)

_BACKOFF_S = 0.2
_BACKOFF_MAX_S = 5.0


class Link:
    """Connects in the background and stays connected. `bus` raises Unavailable until the first connection stands."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._bus: Bus | None = None
        self._blobs: Blobs | None = None
        self._declared = False
        self._why = "NATS: not connected yet"
        self._task: asyncio.Task[None] | None = None
        self._refused: asyncio.Future[CallboardError] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Begins to connect; returns at once."""
        self._task = asyncio.create_task(self._connect(), name="gateway-link")

    async def close(self) -> None:
        """Ends the connection, also while it is being made."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._bus is not None:
            await self._bus.close()

    @property
    def bus(self) -> Bus:
        """The connection. Raises Unavailable when it was never made; a lost one fails in its own calls."""
        if self._bus is None:
            raise Unavailable(self._why)
        return self._bus

    @property
    def blobs(self) -> Blobs:
        """The object store on this connection."""
        bus = self.bus
        if self._blobs is None:
            self._blobs = Blobs(bus)
        return self._blobs

    @property
    def log(self) -> EventLog:
        """The event log on this connection."""
        return EventLog(self.bus)

    @property
    def up(self) -> bool:
        """Whether the connection stands."""
        return self._bus is not None and self._bus.is_up

    @property
    def trouble(self) -> str | None:
        """Why nothing can be stored or read at this moment; None when all is well."""
        if self._bus is None or not self._declared:
            return self._why
        return None if self._bus.is_up else "NATS: the connection is lost; reconnecting"

    async def refused(self) -> CallboardError:
        """Why the server that was found cannot be used, once that is known: nothing more is tried then."""
        return await asyncio.shield(self._refused)

    async def _connect(self) -> None:
        delay = _BACKOFF_S
        while not self._declared:
            try:
                if self._bus is None:
                    self._bus = await Bus.connect(self._settings, name="callboard-gateway")
                await ensure_streams(self._bus, self._settings)
                self._declared = True
            except (ServerTooOld, JetStreamDisabled) as error:
                log.warning("%s", error)
                self._why = str(error)
                self._refused.set_result(error)
                return
            except CallboardError as error:
                if str(error) != self._why:
                    log.warning("%s; trying again", error)
                self._why = str(error)
                await asyncio.sleep(delay * (1 + random.random()))  # jitter, no secret
                delay = min(delay * 2, _BACKOFF_MAX_S)
