"""A pull consumer that keeps flowing: through server restarts, elections, a deleted consumer, and back-pressure.

One durable consumer, many pullers. Each asks for as many messages as it has room for, in requests that expire and
carry heartbeats; a watchdog notices when heartbeats stop, declares the consumer again under its name and asks anew. A
message lost on the way to a puller that went is delivered again after the consumer's ack wait.

The requests of a process that stands still stay with the broker until they expire, and it goes on serving them. They
expire in half the ack wait: what such a process held, and had renewed a third of the ack wait before, comes to the
others when it is delivered again, and not to it once more.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from .bus import Bus, Subscription
from .client import Message
from .errors import BrokerError, CallboardError
from .units import nanoseconds

log = logging.getLogger(__name__)

_EXPIRES_MAX_NS = nanoseconds(30.0)
_ACK_WAIT_NS = nanoseconds(30.0)
"""The broker's, when the configuration names none."""
_HEARTBEAT_S = 2.0
_MISSED = 2.5
_BACKOFF_MAX_S = 2.0
_RESTART_S = 0.05

SET_ASIDE = "set aside"
"""The reason that the broker gives in its advisory for what we have terminated ourselves."""


class Delivery:
    """A message of a consumer, owed an acknowledgement."""

    __slots__ = ("_bus", "_tokens", "message")

    def __init__(self, bus: Bus, message: Message) -> None:
        self._bus = bus
        self.message = message
        self._tokens: list[str] | None = None

    @property
    def subject(self) -> str:
        """The subject it was published on."""
        return self.message.subject

    @property
    def data(self) -> bytes:
        """The body."""
        return self.message.data

    @property
    def headers(self) -> dict[str, str]:
        """The publisher's headers."""
        return self.message.headers

    @property
    def reply(self) -> str:
        """Where acknowledgements go."""
        return self.message.reply

    def _token(self, index: int) -> int:
        # $JS.ACK.[domain.account.]stream.consumer.delivered.sseq.cseq.tm.pending[.random]
        if self._tokens is None:
            self._tokens = self.message.reply.split(".")
        tokens = self._tokens
        return int(tokens[index - 2] if len(tokens) == 9 else tokens[index])

    @property
    def delivered(self) -> int:
        """How often it was delivered, this time included."""
        return self._token(6)

    @property
    def sequence(self) -> int:
        """Its stream sequence."""
        return self._token(7)

    @property
    def consumer_sequence(self) -> int:
        """Which delivery of its consumer this is: with `sequence` and `delivered` what an acknowledgement names."""
        return self._token(8)

    @property
    def stored_ms(self) -> int:
        """When it was stored, Unix milliseconds."""
        return self._token(9) // 1_000_000

    def ack(self) -> None:
        """Done with it. At most once: a lost ack means one more delivery."""
        self._bus.publish(self.reply, b"+ACK")

    def nak(self, delay_s: float = 0.0) -> None:
        """Hand it back, for a delivery after `delay_s` seconds."""
        self._bus.publish(self.reply, b'-NAK {"delay": %d}' % nanoseconds(delay_s) if delay_s else b"-NAK")

    def term(self) -> None:
        """Never deliver it again (in a work queue: delete it)."""
        self._bus.publish(self.reply, f"+TERM {SET_ASIDE}".encode())


class Puller:
    """Pulls from one durable consumer and hands each delivery to `handle`, in the read loop.

    `room()` says how many more messages may be under way: called whenever the puller thinks of asking. Call
    `ask()` when room has grown. `config` is the consumer's configuration as the JetStream API takes it, without
    its name; or a function that gives the one that holds now, where others may have changed it meanwhile."""

    def __init__(
        self,
        bus: Bus,
        stream: str,
        consumer: str,
        config: dict[str, Any] | Callable[[], Awaitable[dict[str, Any]]],
        handle: Callable[[Delivery], None],
        room: Callable[[], int],
    ) -> None:
        self._bus, self._stream, self._consumer = bus, stream, consumer
        self._config = config
        self._expires_ns = _EXPIRES_MAX_NS
        self._handle, self._room = handle, room
        self._outstanding = 0
        self._heard = 0.0
        self._restarted = 0.0
        self._loop = asyncio.get_running_loop()
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._task: asyncio.Task[None] | None = None
        self._poke = asyncio.Event()
        self._broken = True
        self._stopped = False

    async def start(self) -> None:
        """Declares the consumer and begins. Raises BrokerError if it cannot be declared."""
        await self._declare()
        self._bus.on_reconnect.append(self._break)
        self._task = asyncio.create_task(self._watch(), name=f"puller-{self._consumer}")

    async def stop(self) -> None:
        """Asks for nothing more and stops listening; what was handed over stays owed."""
        self._stopped = True
        if self._break in self._bus.on_reconnect:
            self._bus.on_reconnect.remove(self._break)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=1)
        if self._subscription is not None:
            await self._subscription.close()

    def ask(self) -> None:
        """Says that room has grown."""
        if self._broken or self._stopped:
            return
        free = self._room() - self._outstanding
        if free > 0 and (self._outstanding == 0 or free >= max(1, self._outstanding)):
            self._request(free)

    async def _declare(self) -> None:
        """Declares the consumer; and again, when its configuration has become another one meanwhile: whoever declares
        last has seen the newest one."""
        declared: dict[str, Any] | None = None
        while (config := await self._wanted()) != declared:
            body = {"stream_name": self._stream, "config": config, "action": ""}
            await self._bus.api(f"CONSUMER.CREATE.{self._stream}.{self._consumer}", body)
            declared = config
        self._expires_ns = min(_EXPIRES_MAX_NS, config.get("ack_wait", _ACK_WAIT_NS) // 2)

    async def _wanted(self) -> dict[str, Any]:
        config = self._config if isinstance(self._config, dict) else await self._config()
        return {"durable_name": self._consumer, "name": self._consumer, "ack_policy": "explicit", **config}

    def _break(self) -> None:
        self._broken = True
        self._poke.set()

    async def _watch(self) -> None:
        delay = 0.05
        while True:
            if self._broken:
                try:
                    await self._restart()
                    delay = 0.05
                except CallboardError as error:
                    level = logging.INFO if delay < 1 else logging.WARNING
                    log.log(level, "consumer %s on %s: %s; trying again", self._consumer, self._stream, error)
                    await asyncio.sleep(delay * (1 + random.random()))
                    delay = min(delay * 2, _BACKOFF_MAX_S)
                continue
            self._poke.clear()
            try:
                async with asyncio.timeout(_HEARTBEAT_S / 2):
                    await self._poke.wait()
            except TimeoutError:
                pass
            if self._outstanding and self._loop.time() - self._heard > _HEARTBEAT_S * _MISSED:
                log.info("consumer %s on %s is silent; asking anew", self._consumer, self._stream)
                self._broken = True
            self.ask()

    async def _restart(self) -> None:
        await self._bus.connected()
        early = self._restarted + _RESTART_S - self._loop.time()
        if early > 0:  # declared and refused at once, as while its leader is being elected: no busy loop
            await asyncio.sleep(early * (1 + random.random()))
        self._restarted = self._loop.time()
        if self._subscription is not None:
            await self._subscription.close()
        await self._declare()
        self._inbox, self._subscription = await self._bus.new_inbox(self._received)
        self._outstanding = 0
        self._broken = False
        self.ask()

    def _request(self, count: int) -> None:
        heartbeat = min(nanoseconds(_HEARTBEAT_S), self._expires_ns // 3)  # the broker wants less than half
        body = {"batch": count, "expires": self._expires_ns, "idle_heartbeat": heartbeat}
        self._outstanding += count
        self._heard = self._loop.time()
        self._bus.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}", msgspec.json.encode(body), reply=self._inbox
        )

    def _received(self, message: Message) -> None:
        self._heard = self._loop.time()
        if message.reply:  # a delivery; a status line in its headers would be its publisher's
            self._outstanding = max(0, self._outstanding - 1)
            delivery = Delivery(self._bus, message)
            if self._stopped:
                delivery.nak()
                return
            self._handle(delivery)
            if self._outstanding == 0:
                self.ask()
            return
        status = message.status
        if status == 100:
            return
        pending = int(message.headers.get("Nats-Pending-Messages") or 0)
        if status == 408 or (
            status == 409 and "Leadership" not in message.description and "Deleted" not in message.description
        ):
            self._outstanding = max(0, self._outstanding - pending) if pending else 0
            self._poke.set()
        else:
            self._break()


async def consumer_info(bus: Bus, stream: str, consumer: str) -> dict[str, Any] | None:
    """State of a consumer as the JetStream API gives it, None if there is none."""
    try:
        return await bus.api(f"CONSUMER.INFO.{stream}.{consumer}", missing_ok=True)
    except BrokerError as error:
        if error.facts.get("status") == 404:
            return None
        raise
