"""The connection to the broker: publish with acknowledgement, request, subscribe. Reads of streams are in `reads`.

Guarantees: a publish that returned a sequence is stored (what "stored" promises is the stream's setting: see
docs/guarantees.md). A publish that raised `Unavailable` may have been stored: its caller retries by a rule that makes
the second one harmless. Nothing blocks while the connection is down: calls fail at once with `Unavailable`, and
`connected()` waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import nats.errors

from . import ack
from .client import Callback, Client, Message, head_bytes
from .config import BrokerSettings
from .errors import (
    InvalidInput,
    NoResponders,
    PayloadTooLarge,
    Unavailable,
    WriteInFlight,
)
from .ids import new_token
from .subjects import Subjects, require_subject

log = logging.getLogger(__name__)

_SWEEP_S = 0.25
_CLOSE_S = 2.0


def fence(last: int, subject: str | None = None, extra: dict[str, str] | None = None) -> bytes:
    """The headers of a write that the broker refuses unless the last message on `subject` (default: the subject
    written to) has sequence `last`; 0 means that there is none."""
    head = f"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: {last}\r\n"
    if subject is not None:
        head += f"Nats-Expected-Last-Subject-Sequence-Subject: {subject}\r\n"
    if extra:
        return head.encode() + head_bytes(extra)[10:]
    return f"{head}\r\n".encode()


class Subscription:
    """A live subscription of a bus. Ends with `close()`, or with the bus."""

    def __init__(self, bus: Bus, sid: int) -> None:
        self._bus, self._sid = bus, sid

    async def close(self) -> None:
        """Ends it; idempotent, also when the connection is down."""
        try:
            await self._bus.client.unsubscribe_direct(self._sid)
        except nats.errors.Error as error:
            log.debug("unsubscribe: %s", error)

    async def drain(self) -> None:
        """Ends it without losing what is on its way: what the server had sent still reaches the callback."""
        try:
            await self._bus.client.drain_direct(self._sid)
        except (nats.errors.Error, TimeoutError) as error:
            log.debug("unsubscribe: %s", error)


class Bus:
    """One connection. Make it with `await Bus.connect(settings)`; end it with `close()`."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.subjects = Subjects(settings.namespace)
        self.client = Client()
        self.salt = settings.namespace
        self.replicas = settings.replicas
        """Copies of the event log; `ensure_streams` sets it to what the stream really has."""
        self.on_reconnect: list[Callable[[], None]] = []
        self._up = asyncio.Event()
        self._inbox = f"_INBOX.{new_token(20)}."
        self._token = 0
        self._acks: dict[str, tuple[asyncio.Future[int], float, str]] = {}
        self._calls: dict[str, Callable[[Message | None], None]] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._closing = False

    # -- life ---------------------------------------------------------------------------------------------------

    @classmethod
    async def connect(cls, settings: BrokerSettings, name: str = "callboard") -> Bus:
        """Connects within `settings.connect_timeout_s`. Raises Unavailable, which names the servers tried, InvalidInput
        when there is none to try."""
        servers = [url.strip() for url in settings.nats_url.split(",") if url.strip()]
        if not servers:  # the client would look for one for ever, and never let go of the loop
            raise InvalidInput(f"NATS_URL {settings.nats_url!r} names no server: write nats://HOST:PORT")
        bus = cls(settings)
        options: dict[str, Any] = {
            "servers": servers,
            "name": name,
            "error_cb": bus._on_error,
            "disconnected_cb": bus._on_disconnect,
            "reconnected_cb": bus._on_reconnected,
            "closed_cb": bus._on_closed,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": 0.2,
            "connect_timeout": 2,
            "ping_interval": 10,
            "max_outstanding_pings": 2,
            "pending_size": 64 * 1024 * 1024,
        }
        if settings.nats_creds:
            options["user_credentials"] = settings.nats_creds
        if settings.nats_token:
            options["token"] = settings.nats_token.get_secret_value()
        try:
            await bus.client.open(settings.connect_timeout_s, **options)
        except (TimeoutError, OSError, nats.errors.Error) as error:
            url, why = _masked(settings.nats_url), str(error) or type(error).__name__
            if not bus.client.has_begun:
                raise InvalidInput(f"cannot connect to NATS_URL {url!r}: {why}", url=url) from error
            await bus.close()
            raise Unavailable(
                f"no NATS server answers at {url} ({why}): start one, or set NATS_URL", url=url
            ) from error
        except ValueError as error:
            raise InvalidInput(f"NATS_URL {_masked(settings.nats_url)!r} cannot be used: {error}") from error
        except asyncio.CancelledError:
            await bus.close()
            raise
        bus._up.set()
        bus._sweeper = asyncio.create_task(bus._sweep(), name="bus-sweeper")
        try:
            await bus.subscribe(f"{bus._inbox}*", bus._on_reply)
        except BaseException:
            await bus.close()
            raise
        return bus

    async def close(self) -> None:
        """Flushes what is written (at most a second) and closes. Idempotent; works with the server gone."""
        if self._closing:
            return
        self._closing = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self.client.end(_CLOSE_S)
        self._fail_pending("the connection was closed")

    @property
    def is_up(self) -> bool:
        """Whether the connection stands at this moment."""
        return self._up.is_set()

    async def connected(self) -> None:
        """Waits until the connection stands."""
        await self._up.wait()

    @property
    def max_payload(self) -> int:
        """The server's limit of a message in bytes, headers included."""
        return self.client.max_payload

    @property
    def inline_limit(self) -> int:
        """Bytes up to which a user's value travels inside a message; above it goes to the object store.

        An eighth of the server's limit, so that a record with input, result and metadata fits; at most 32 KiB, so that
        records which are written several times stay small."""
        return min(32 * 1024, self.max_payload // 8)

    @property
    def server_info(self) -> dict[str, Any]:
        """INFO of the connected server: `version`, `server_name`, `jetstream`, …"""
        return self.client.server_info

    async def _on_error(self, error: Exception) -> None:
        level = logging.DEBUG if self._closing or not self.is_up else logging.WARNING
        log.log(level, "NATS: %s", str(error) or type(error).__name__)

    async def _on_disconnect(self) -> None:
        was_up = self._up.is_set()
        self._up.clear()
        if not self._closing and was_up:
            log.warning("NATS connection lost; reconnecting")
        self._fail_pending("the connection was lost; the outcome is unknown")

    async def _on_reconnected(self) -> None:
        self._up.set()
        log.warning(
            "NATS connected again to %s", self.client.connected_url.netloc if self.client.connected_url else "?"
        )
        for callback in self.on_reconnect:
            callback()

    async def _on_closed(self) -> None:
        self._up.clear()
        self._fail_pending("the connection was closed")

    def _fail_pending(self, why: str) -> None:
        acks, self._acks = self._acks, {}
        for future, _, _ in acks.values():
            if not future.done():
                future.set_exception(Unavailable(f"NATS: {why}"))
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call(None)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = self._loop.time()
            for token, (future, deadline, _) in list(self._acks.items()):
                if deadline > now:
                    break  # insertion order is deadline order: the timeout is one
                del self._acks[token]
                if not future.done():
                    future.set_exception(Unavailable("NATS: no acknowledgement in time; the outcome is unknown"))

    # -- publish ------------------------------------------------------------------------------------------------

    def publish(self, subject: str, data: bytes = b"", head: bytes | None = None, reply: str = "") -> None:
        """Core publish: at most once, dropped while the connection is down. Raises InvalidSubject,
        PayloadTooLarge."""
        self._check(subject, data, head)
        if self.is_up:
            self.client.write(subject, reply, head, data)

    def write(self, subject: str, data: bytes, head: bytes | None = None) -> asyncio.Future[int]:
        """Publishes to a stream; the future gives the stream sequence once stored.

        Writes of one bus reach the broker in the order of the calls. The future raises StaleFence, WriteInFlight,
        StorageFull, Unavailable (outcome unknown), BrokerError; the call raises InvalidSubject,
        PayloadTooLarge."""
        self._check(subject, data, head)
        future: asyncio.Future[int] = self._loop.create_future()
        if not self.is_up:
            future.set_exception(Unavailable("NATS is not connected"))
            return future
        self._token += 1
        token = str(self._token)
        self._acks[token] = (future, self._loop.time() + self.settings.publish_timeout_s, subject)
        self.client.write(subject, self._inbox + token, head, data)
        return future

    async def store(self, subject: str, data: bytes, head: bytes | None = None, patience_s: float = 30.0) -> int:
        """Like `write`, repeated while the broker is unavailable, at most `patience_s` seconds.

        For writes of which a second copy is harmless; a fenced write may raise StaleFence because its first try
        was stored."""
        deadline = self._loop.time() + patience_s
        delay = 0.02
        while True:
            try:
                return await self.write(subject, data, head)
            except (Unavailable, WriteInFlight) as error:
                if self._loop.time() + delay > deadline:
                    raise
                log.debug("write on %s repeated: %s", subject, error)
            await asyncio.sleep(delay)
            delay = min(delay * 2, 1.0)

    def _check(self, subject: str, data: bytes, head: bytes | None) -> None:
        require_subject(subject)
        size = len(data) + (len(head) if head else 0)
        if size > self.max_payload:
            raise PayloadTooLarge(
                f"message of {size} bytes on {subject} is above the server's max_payload of {self.max_payload}",
                size=size, limit=self.max_payload, subject=subject,
            )  # fmt: skip

    # -- request ------------------------------------------------------------------------------------------------

    def _on_reply(self, message: Message) -> None:
        token = message.subject[len(self._inbox) :]
        entry = self._acks.pop(token, None)
        if entry is not None:
            ack.settle(entry[0], message, entry[2])
            return
        call = self._calls.get(token)
        if call is not None:
            call(message)

    async def request(
        self, subject: str, data: bytes = b"", timeout_s: float = 2.0, head: bytes | None = None
    ) -> Message:
        """Core request. Raises NoResponders at once when nobody serves the subject, Unavailable after `timeout_s`."""
        future: asyncio.Future[Message] = self._loop.create_future()
        async with self.call(subject, data, head, partial(settle_request, future, subject)):
            try:
                async with asyncio.timeout(timeout_s):
                    return await future
            except TimeoutError:
                raise Unavailable(f"no answer on {subject} within {timeout_s:g} s", subject=subject) from None

    async def gather(self, subject: str, data: bytes = b"", wait_s: float = 0.3) -> list[Message]:
        """Asks everybody who serves `subject`; the answers of `wait_s` seconds."""
        found: list[Message] = []
        none = asyncio.Event()

        def collect(message: Message | None) -> None:
            if message is None or message.status == 503:
                none.set()
            else:
                found.append(message)

        async with self.call(subject, data, None, collect):
            try:
                async with asyncio.timeout(wait_s):
                    await none.wait()
            except TimeoutError:
                pass
        return found

    @asynccontextmanager
    async def call(
        self, subject: str, data: bytes, head: bytes | None, callback: Callable[[Message | None], None]
    ) -> AsyncIterator[str]:
        """A request whose answers, any number, go to `callback`; None when the connection is lost meanwhile. Gives its
        reply subject."""
        self._check(subject, data, head)
        if not self.is_up:
            raise Unavailable("NATS is not connected")
        self._token += 1
        token = str(self._token)
        self._calls[token] = callback
        self.client.write(subject, self._inbox + token, head, data)
        try:
            yield self._inbox + token
        finally:
            self._calls.pop(token, None)

    async def api(
        self, path: str, body: dict[str, Any] | None = None, *, missing_ok: bool = False, timeout_s: float = 5.0
    ) -> dict[str, Any] | None:
        """A call of the JetStream API, `$JS.API.{path}`. Raises BrokerError with `err_code`, Unavailable; None
        for 404 if `missing_ok`."""
        data = b"" if body is None else msgspec.json.encode(body)
        try:
            message = await self.request(f"$JS.API.{path}", data, timeout_s)
        except NoResponders as error:
            raise Unavailable(
                "JetStream does not answer: start nats-server with JetStream enabled (-js), and check the account's "
                "limits"
            ) from error
        answer: dict[str, Any] = msgspec.json.decode(message.data)
        refusal = ack.refusal_of(answer)
        if refusal is None:
            return answer
        if missing_ok and refusal.code == 404:
            return None
        raise ack.error_of(refusal, path)

    # -- subscribe ----------------------------------------------------------------------------------------------

    async def subscribe(self, subject: str, callback: Callback, queue: str = "") -> Subscription:
        """Core subscription. `callback` runs in the read loop, in order: it must be quick; what it raises is logged.
        Raises InvalidSubject."""
        require_subject(subject)
        try:
            return Subscription(self, await self.client.subscribe_direct(subject, callback, queue))
        except nats.errors.Error as error:
            raise Unavailable(f"cannot subscribe to {subject}: {str(error) or type(error).__name__}") from error

    async def new_inbox(self, callback: Callback) -> tuple[str, Subscription]:
        """A subject of this connection's own, and its subscription."""
        subject = f"_INBOX.{new_token(20)}"
        return subject, await self.subscribe(subject, callback)


def settle_request(future: asyncio.Future[Message], subject: str, message: Message | None) -> None:
    """What a request's answer, or the loss of the connection, means for the one who waits. The first one counts."""
    if future.done():
        return
    if message is None:
        future.set_exception(Unavailable("NATS: the connection was lost"))
    elif message.status == 503:
        future.set_exception(NoResponders(f"nobody serves {subject}", subject=subject))
    else:
        future.set_result(message)


def _masked(url: str) -> str:
    """The URL without its password."""
    parts = []
    for one in url.split(","):
        scheme, sep, rest = one.rpartition("://")
        _, at, host = rest.rpartition("@")
        parts.append(f"{scheme}{sep}{'***@' if at else ''}{host}")
    return ",".join(parts)
