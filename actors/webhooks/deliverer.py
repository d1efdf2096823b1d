"""Delivers to one webhook: from its own durable consumer, so that a receiver that is down holds nobody else up."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from ...store.deadletters import DeadLetters
from ...store.errors import info_of
from ...store.webhooks import ID_HEADER
from ...topics.bus import Bus
from ...topics.errors import CallboardError
from ...topics.messages import Webhook
from ...topics.pull import Delivery, Puller
from ...topics.units import nanoseconds
from ..errors import WebhookFailed
from .config import WebhookSettings
from .fanout import DEAD_KIND

if TYPE_CHECKING:
    from .sender import Answer, Sender

log = logging.getLogger(__name__)

_MAX_ACK_PENDING = 1000
_SLACK_S = 10.0
_LATER_S = 1.0
_JITTER = 0.2


def delay_s(settings: WebhookSettings, tries: int, after_s: float = 0.0) -> float:
    """Seconds before the next try after `tries` of them: doubling, capped, the last part random; not before `after_s`,
    which the receiver asked for."""
    full = min(settings.delay_max_s, settings.delay_initial_s * 2.0 ** min(tries - 1, 64))
    return max(full * (1 - _JITTER * random.random()), min(after_s, settings.delay_max_s))


class Deliverer:
    """`webhook` may be replaced at any time by a newer definition of the same name."""

    def __init__(
        self, bus: Bus, webhook: Webhook, sender: Sender, dead: DeadLetters, settings: WebhookSettings
    ) -> None:
        self.webhook = webhook
        self._bus, self._sender, self._dead, self._settings = bus, sender, dead, settings
        self._tasks: set[asyncio.Task[None]] = set()
        config = {
            "filter_subject": bus.subjects.hook(webhook.name),
            "ack_wait": nanoseconds(settings.timeout_s + _SLACK_S),
            "max_ack_pending": _MAX_ACK_PENDING,
            "max_deliver": -1,
        }
        self._puller = Puller(bus, bus.subjects.work_stream, f"hook-{webhook.name}", config, self._take, self._room)

    async def start(self) -> None:
        """Begins. Raises BrokerError."""
        await self._puller.start()

    async def stop(self) -> None:
        """Takes nothing more, and waits for what is under way."""
        await self._puller.stop()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def abandon(self) -> None:
        """Ends what is under way; it is delivered again."""
        await self._puller.stop()
        for task in list(self._tasks):
            task.cancel()

    def _room(self) -> int:
        return self._settings.concurrency - len(self._tasks)

    def _take(self, delivery: Delivery) -> None:
        task = asyncio.create_task(self._deliver(delivery))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._puller.ask()

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            id_ = delivery.headers.get(ID_HEADER) or f"{self._bus.subjects.work_stream}-{delivery.sequence}"
            answer = await self._sender.send(self.webhook, id_, delivery.data)
            if answer.taken:
                delivery.ack()
            elif answer.hopeless or delivery.delivered >= self._settings.attempts:
                await self._give_up(delivery, answer)
            else:
                pause_s = delay_s(self._settings, delivery.delivered, answer.after_s)
                log.info(
                    "webhook %s did not take %s (%s); again in %.1f s", self.webhook.name, id_, answer.why, pause_s
                )
                delivery.nak(pause_s)
        except asyncio.CancelledError:
            delivery.nak()
            raise
        except CallboardError as error:
            log.warning("an event for webhook %s is sent again: %s", self.webhook.name, error)
            delivery.nak(_LATER_S)
        except Exception:
            log.exception("sending to webhook %s failed in the deliverer itself", self.webhook.name)
            delivery.nak(_LATER_S)

    async def _give_up(self, delivery: Delivery, answer: Answer) -> None:
        name = self.webhook.name
        error = WebhookFailed(
            f"webhook {name} did not take the event in {delivery.delivered} "
            f"{'tries' if delivery.delivered > 1 else 'try'}: {answer.why}",
            webhook=name,
            tries=delivery.delivered,
        )
        headers = {key: text for key, text in delivery.headers.items() if not key.lower().startswith("nats-")}
        await self._dead.put(DEAD_KIND, delivery.subject, delivery.data, headers, info_of(error))
        log.warning("%s; it is a dead letter now", error)
        delivery.ack()
