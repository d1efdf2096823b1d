"""Carries messages from the broker to a system actor's handlers: pull consumers, core requests, signals."""

from __future__ import annotations

import asyncio
import logging
import random
import time

from ..actors.actor import Actor, QueueSource, RpcSource, SignalSource, Source
from ..actors.errors import HandlerFailed
from ..topics.bus import Bus, Subscription
from ..topics.client import Message
from ..topics.errors import CallboardError
from ..topics.pull import Delivery, Puller
from .mailbox import Mailbox
from .setaside import set_aside
from .supervision import is_passing

log = logging.getLogger(__name__)

_PATIENCE_S = 30.0
_KINDS = {"task": "task", "cmd": "command", "timer": "command", "work": "work", "topic": "topic"}


class QueueRunner:
    """One QueueSource of one actor."""

    def __init__(self, bus: Bus, actor: Actor, source: QueueSource) -> None:
        self._bus, self._source = bus, source
        self._max_deliveries = actor.max_deliveries
        self.mailbox: Mailbox[Delivery] = Mailbox(
            source.handle,  # type: ignore[arg-type]  # an async def gives a coroutine; its declared type says awaitable
            self._done,
            actor.capacity,
            actor.concurrency,
        )
        received = self._start_at_once if source.key is None else self._queue
        self._puller = Puller(bus, source.stream, source.consumer, source.config, received, self._room)
        self._asides: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Declares the consumer and begins to pull. Raises BrokerError when that is not possible within 30 s."""
        deadline, delay = time.monotonic() + _PATIENCE_S, 0.05
        while True:
            try:
                await self._puller.start()
            except CallboardError as error:
                if not error.retryable or time.monotonic() + delay > deadline:
                    raise
                log.info("consumer %s: %s; trying again", self._source.consumer, error)
            else:
                return
            await asyncio.sleep(delay)
            delay = min(delay * 2, 2.0)

    async def stop(self) -> None:
        """Pulls no more, and hands back what waits for its turn."""
        await self._puller.stop()
        for delivery in self.mailbox.remove(lambda _: True):
            delivery.nak()

    def _room(self) -> int:
        return self.mailbox.room

    def _start_at_once(self, delivery: Delivery) -> None:
        self.mailbox.put(None, delivery)

    def _queue(self, delivery: Delivery) -> None:
        key = self._source.key
        assert key is not None
        self.mailbox.put(key(delivery), delivery)

    def _done(self, delivery: Delivery, error: BaseException | None) -> None:
        if error is not None:
            self._failed(delivery, error)
        self._puller.ask()

    def _failed(self, delivery: Delivery, error: BaseException) -> None:
        tries = delivery.delivered
        if isinstance(error, asyncio.CancelledError):
            delivery.nak()
        elif is_passing(error):
            log.warning("%s: %s; delivered again soon", delivery.subject, error)
            delivery.nak(_backoff(tries))
        elif tries < self._max_deliveries:
            log.error("handling of %s failed (delivery %d)", delivery.subject, tries, exc_info=error)
            delivery.nak(_backoff(tries))
        else:
            log.error("handling of %s failed for the last time", delivery.subject, exc_info=error)
            task = asyncio.create_task(self._set_aside(delivery, error))
            self._asides.add(task)
            task.add_done_callback(self._asides.discard)

    async def _set_aside(self, delivery: Delivery, error: BaseException) -> None:
        kind = _KINDS.get(delivery.subject.split(".")[1], "message")
        cause = HandlerFailed(f"{type(error).__name__}: {error}", deliveries=delivery.delivered)
        cause.__cause__ = error
        try:
            await set_aside(self._bus, kind, delivery.subject, delivery.data, delivery.headers, cause)
        except CallboardError as problem:
            log.warning("%s could not be set aside: %s", delivery.subject, problem)
            delivery.nak(_backoff(delivery.delivered))
        else:
            delivery.term()


class RpcRunner:
    """One RpcSource of one actor."""

    def __init__(self, bus: Bus, actor: Actor, source: RpcSource) -> None:
        self._bus, self._source = bus, source
        self.mailbox: Mailbox[Message] = Mailbox(
            source.handle,  # type: ignore[arg-type]  # as above
            self._done,
            actor.capacity,
            actor.concurrency,
        )
        self._subscription: Subscription | None = None
        self._in_hand: set[str] = set()
        self._warned = 0.0

    async def start(self) -> None:
        """Subscribes. Raises Unavailable."""
        self._subscription = await self._bus.subscribe(self._source.subject, self._received, self._source.queue)

    async def stop(self) -> None:
        """Listens no more; what was sent to this process before is still answered."""
        if self._subscription is not None:
            await self._subscription.drain()

    def _received(self, message: Message) -> None:
        mailbox = self.mailbox
        if message.reply in self._in_hand:  # sent again by one who waits: it is being answered
            return
        if mailbox.room <= 0:
            self._refuse(message)
            return
        if message.reply:
            self._in_hand.add(message.reply)
        key = self._source.key
        mailbox.put(None if key is None else key(message), message)

    def _refuse(self, message: Message) -> None:
        if time.monotonic() - self._warned > 1:
            self._warned = time.monotonic()
            log.warning("mailbox full: requests on %s are dropped; their senders try again", message.subject)

    def _done(self, message: Message, error: BaseException | None) -> None:
        self._in_hand.discard(message.reply)
        if error is None or isinstance(error, asyncio.CancelledError):
            return
        if is_passing(error):
            log.warning("request on %s not answered: %s", message.subject, error)
        else:
            log.error("request on %s failed", message.subject, exc_info=error)


class SignalRunner:
    """One SignalSource of one actor; it goes on while the actor drains."""

    def __init__(self, bus: Bus, source: SignalSource) -> None:
        self._bus, self._source = bus, source
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Subscribes. Raises Unavailable."""
        self._subscription = await self._bus.subscribe(self._source.subject, self._source.callback, self._source.queue)

    async def stop(self) -> None:
        """Listens no more."""
        if self._subscription is not None:
            await self._subscription.close()


Runner = QueueRunner | RpcRunner | SignalRunner


def runner_of(bus: Bus, actor: Actor, source: Source) -> Runner:
    """What runs this source."""
    match source:
        case QueueSource():
            return QueueRunner(bus, actor, source)
        case RpcSource():
            return RpcRunner(bus, actor, source)
        case SignalSource():
            return SignalRunner(bus, source)


def _backoff(tries: int) -> float:
    return min(30.0, 0.2 * 2.0 ** min(tries, 10)) * (0.5 + random.random())
