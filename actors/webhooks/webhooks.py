"""The actor that delivers webhooks. Any number of them may run at once: all share the same durable consumers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ...store.deadletters import DeadLetters
from ...store.webhooks import FRESH_S, Webhooks
from ...topics.bus import Bus
from ...topics.errors import CallboardError
from ..actor import Actor
from ..context import ActorContext
from .config import WebhookSettings
from .deliverer import Deliverer
from .fanout import Fanout

if TYPE_CHECKING:
    from .sender import Sender

log = logging.getLogger(__name__)


class WebhookActor(Actor):
    """While no webhook is defined it only looks, once a second, whether there is one."""

    def __init__(self, bus: Bus, settings: WebhookSettings | None = None) -> None:
        self._bus, self._settings = bus, settings or WebhookSettings()
        self._fanout = Fanout(bus, Webhooks(bus))
        self._sender: Sender | None = None
        self._dead = DeadLetters(bus)
        self._deliverers: dict[str, Deliverer] = {}
        self._stopping = False

    @property
    def name(self) -> str:
        """`webhooks`."""
        return "webhooks"

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        """The hand-over of events, and the look for webhooks that come, change and go."""
        return [self._fanout.run, self._watch]

    async def stopping(self, ctx: ActorContext) -> None:
        """Takes nothing more; what is being sent may end."""
        self._stopping = True
        await self._fanout.stop()
        await asyncio.gather(*(one.stop() for one in self._deliverers.values()))

    async def stopped(self, ctx: ActorContext) -> None:
        """Leaves the rest to be delivered again."""
        self._stopping = True
        await self._fanout.stop()
        for one in self._deliverers.values():
            await one.abandon()
        if self._sender is not None:
            await self._sender.close()

    async def _watch(self) -> None:
        while True:
            try:
                if self._bus.is_up and not self._stopping:
                    await self.look()
            except CallboardError as error:
                log.info("webhooks are looked at again: %s", error)
            await asyncio.sleep(FRESH_S)

    async def look(self) -> None:
        """Starts and ends deliverers as the definitions say."""
        webhooks = await self._fanout.webhooks()
        if webhooks:
            await self._fanout.start()
        else:
            await self._fanout.rest()
        active = {one.name: one for one in webhooks if not one.paused}
        for name in [name for name in self._deliverers if name not in active]:
            await self._deliverers.pop(name).abandon()
        for name, webhook in active.items():
            known = self._deliverers.get(name)
            if known is not None:
                known.webhook = webhook
                continue
            if self._sender is None:
                self._sender = await asyncio.to_thread(_sender, self._settings)
            deliverer = Deliverer(self._bus, webhook, self._sender, self._dead, self._settings)
            await deliverer.start()
            self._deliverers[name] = deliverer


def _sender(settings: WebhookSettings) -> Sender:
    """Made for the first webhook, beside the loop: the HTTP client takes a while to load, and most installations have
    no use for it."""
    from .sender import Sender

    return Sender(settings)
