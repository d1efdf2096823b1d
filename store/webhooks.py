"""Webhooks: who is told over HTTP of what happens, and what is on its way to them.

Definitions lie on `cb.webhook.{name}`, in the stream that keeps the last message of each subject and republishes
nothing: they hold the keys that signatures are made with. Events on their way lie in the work queue, on
`cb.hook.{name}`, each until the webhook has taken it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from ..topics import reads
from ..topics.bus import Bus, fence
from ..topics.client import head_bytes
from ..topics.errors import BrokerError, Conflict, InvalidInput, NotFound, StaleFence
from ..topics.ids import new_token
from ..topics.messages import TERMINAL, Status, Webhook, encode
from ..topics.reads import Stored
from ..topics.units import now
from .unread import leave_out

log = logging.getLogger(__name__)

EVENTS = (*(f"run.{status}" for status in Status), "run.parked", "agent.unserved", "attention.resolved", "deadletter")
"""The types of event. `webhook.test` is sent on request, whatever a webhook asks for."""
WAITING = ("run.parked", "agent.unserved", "deadletter")
"""What waits for a person: told unless something else is asked for."""
ENDED = tuple(f"run.{status}" for status in Status if status in TERMINAL)
FRESH_S = 1.0
"""How old the list of webhooks may be by which an event is given to them, in seconds."""
ID_HEADER = "Callboard-Webhook-Id"
_PREFIX = "whsec_"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_KEY_BYTES = (16, 64)
_URL_CHARS = 2000
_DESCRIPTION_CHARS = 500
_GONE = (10014, 10059)
_decode = msgspec.json.Decoder(Webhook).decode


class Feed(msgspec.Struct, frozen=True):
    """A durable consumer that all deliverers share: where events come from."""

    stream: str
    consumer: str
    config: dict[str, Any]


def feeds(bus: Bus) -> list[Feed]:
    """The consumers, one a subject: with several filters each message that is far behind would be searched for."""
    subjects, common = bus.subjects, {"deliver_policy": "new", "max_deliver": -1, "max_ack_pending": 5000}
    wanted = (
        (subjects.events, "webhooks-runs", f"{subjects.run}.*.*.state"),
        (subjects.events, "webhooks-attention", subjects.attention("*", "*")),
        (subjects.dead, "webhooks-dead", subjects.dead_letter("*")),
    )
    return [Feed(stream, name, common | {"filter_subject": subject}) for stream, name, subject in wanted]


def new_secret() -> str:
    """A key for signatures: 24 random bytes, as `whsec_` and base64."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(24)).decode()


def key_of(secret: str) -> bytes:
    """The bytes of a key. Raises InvalidInput for what is none."""
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not _KEY_BYTES[0] <= len(key) <= _KEY_BYTES[1]:
        raise InvalidInput(f"a webhook's secret is {_PREFIX} and 16 to 64 bytes in base64")
    return key


def masked(secret: str) -> str:
    """What is shown of a key."""
    return f"{_PREFIX}…{secret[-4:]}"


def wants(webhook: Webhook, type_: str) -> bool:
    """Whether the webhook is to be told of events of this type."""
    return any(one in ("*", type_) or (one.endswith(".*") and type_.startswith(one[:-1])) for one in webhook.events)


class Webhooks:
    """Reads and writes the definitions, and hands events on."""

    def __init__(self, bus: Bus) -> None:
        self._bus, self._stream = bus, bus.subjects.actors

    # -- define -------------------------------------------------------------------------------------------------

    async def add(
        self,
        url: str,
        *,
        name: str | None = None,
        events: Sequence[str] = WAITING,
        secret: str | None = None,
        description: str = "",
    ) -> Webhook:
        """Defines a webhook. When this returns, it will be told of everything that happens from now on.

        Raises InvalidInput, Conflict (there is one of this name), Unavailable, StorageFull."""
        webhook = Webhook(
            name=name or f"wh-{new_token(8)}",
            url=url,
            events=list(events),
            secret=secret or new_secret(),
            created_at=now(),
            after=0,
            after_dead=0,
            description=description,
        )
        _require_valid(webhook)
        await self._follow()
        subjects = self._bus.subjects
        webhook = replace(webhook, after=await self._last(subjects.events), after_dead=await self._last(subjects.dead))
        try:
            await self._bus.store(subjects.webhook(webhook.name), encode(webhook), fence(0))
        except StaleFence as error:
            known = await self._stored(webhook.name)
            if known is None or known.data != encode(webhook):
                raise Conflict(f"there is a webhook {webhook.name!r} already", webhook=webhook.name) from error
        await asyncio.sleep(FRESH_S * 1.5)  # until then a deliverer may go by a list without it
        await self._follow()  # one that ended its rest at the same moment may have taken the consumers away
        return webhook

    async def _follow(self) -> None:
        for feed in feeds(self._bus):
            config = {"durable_name": feed.consumer, "name": feed.consumer, "ack_policy": "explicit", **feed.config}
            body = {"stream_name": feed.stream, "config": config, "action": ""}
            await self._bus.api(f"CONSUMER.CREATE.{feed.stream}.{feed.consumer}", body)

    async def change(
        self,
        name: str,
        *,
        url: str | None = None,
        events: Sequence[str] | None = None,
        secret: str | None = None,
        description: str | None = None,
        paused: bool | None = None,
    ) -> Webhook:
        """Changes what is given. While it is paused, its events are kept. Raises NotFound, InvalidInput, Conflict."""
        stored = await self._stored(name)
        webhook = None if stored is None else _read(stored)
        if stored is None or webhook is None:
            raise _unknown(name)
        given = {"url": url, "events": None if events is None else list(events), "secret": secret, "paused": paused,
                 "description": description}  # fmt: skip
        changed = replace(webhook, **{field: value for field, value in given.items() if value is not None})
        _require_valid(changed)
        try:
            await self._bus.store(self._bus.subjects.webhook(name), encode(changed), fence(stored.sequence))
        except StaleFence as error:
            again = await self._stored(name)
            if again is None or again.data != encode(changed):
                raise Conflict(
                    f"webhook {name!r} was changed by somebody else at the same time", webhook=name
                ) from error
        return changed

    async def remove(self, name: str) -> None:
        """Removes it, with what was on its way to it. Raises NotFound."""
        if await self._stored(name) is None:
            raise _unknown(name)
        subjects = self._bus.subjects
        await self._bus.api(f"STREAM.PURGE.{self._stream}", {"filter": subjects.webhook(name)})
        await self._drop_consumer(subjects.work_stream, f"hook-{name}")
        await self._bus.api(f"STREAM.PURGE.{subjects.work_stream}", {"filter": subjects.hook(name)})
        await self.rest()

    async def rest(self) -> None:
        """Ends the shared consumers when there is no webhook: nobody need read the log then."""
        if not await self.all():
            for feed in feeds(self._bus):
                await self._drop_consumer(feed.stream, feed.consumer)

    async def _drop_consumer(self, stream: str, consumer: str) -> None:
        try:
            await self._bus.api(f"CONSUMER.DELETE.{stream}.{consumer}", missing_ok=True)
        except BrokerError as error:
            if error.facts.get("err_code") not in _GONE:
                raise

    async def _last(self, stream: str) -> int:
        info = await self._bus.api(f"STREAM.INFO.{stream}")
        return int((info or {}).get("state", {}).get("last_seq", 0))

    # -- read ---------------------------------------------------------------------------------------------------

    async def get(self, name: str) -> Webhook:
        """One definition. Raises NotFound."""
        stored = await self._stored(name)
        webhook = None if stored is None else _read(stored)
        if webhook is None:
            raise _unknown(name)
        return webhook

    async def all(self) -> list[Webhook]:
        """All definitions by name; what cannot be read as one is left out with a warning."""
        found = await reads.many_last(self._bus, self._stream, [f"{self._bus.subjects.namespace}.webhook.*"])
        webhooks = (_read(stored) for stored in found.values())
        return sorted((one for one in webhooks if one is not None), key=lambda one: one.name)

    async def waiting(self) -> dict[str, int]:
        """How many events are on their way to each webhook."""
        subjects = self._bus.subjects
        prefix = f"{subjects.namespace}.hook."
        info = await self._bus.api(f"STREAM.INFO.{subjects.work_stream}", {"subjects_filter": f"{prefix}*"}) or {}
        found = info.get("state", {}).get("subjects") or {}
        return {subject[len(prefix) :]: int(count) for subject, count in found.items()}

    async def _stored(self, name: str) -> Stored | None:
        return await reads.last_from_leader(self._bus, self._stream, self._bus.subjects.webhook(name))

    # -- hand on ------------------------------------------------------------------------------------------------

    async def hand_on(self, webhooks: Iterable[Webhook], id_: str, body: bytes) -> None:
        """Puts an event on its way to each of `webhooks`. `id_` names the event: handed on again within two minutes, it
        is on its way once. Raises Unavailable, StorageFull."""
        for webhook in webhooks:
            head = head_bytes({"Nats-Msg-Id": f"{id_}.{webhook.name}", ID_HEADER: id_})
            await self._bus.store(self._bus.subjects.hook(webhook.name), body, head)

    async def test(self, name: str) -> str:
        """Sends an event `webhook.test` to it; the id under which it will arrive. Raises NotFound."""
        webhook = await self.get(name)
        id_ = f"test-{new_token(16)}"
        await self.hand_on([webhook], id_, event_body("webhook.test", now().isoformat(), {"webhook": name}))
        return id_


def event_body(type_: str, timestamp: str, data: dict[str, Any]) -> bytes:
    """An event as it is sent."""
    return encode({"type": type_, "timestamp": timestamp, "data": data})


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no webhook {name[:80]!r}", webhook=name[:80])


def _require_valid(webhook: Webhook) -> None:
    if not _NAME.match(webhook.name):
        raise InvalidInput(f"webhook name {webhook.name[:80]!r}: use 1 to 64 letters, digits, '_' or '-'")
    require_url(webhook.url)
    key_of(webhook.secret)
    if len(webhook.description) > _DESCRIPTION_CHARS:
        raise InvalidInput(f"a description has at most {_DESCRIPTION_CHARS} characters")
    kinds = {one.partition(".")[0] for one in EVENTS}
    known = {*EVENTS, "*", *(f"{kind}.*" for kind in kinds)}
    unknown = [one for one in webhook.events if one not in known]
    if unknown or not webhook.events:
        which = f"event {unknown[0][:60]!r} is not known" if unknown else "name at least one event"
        raise InvalidInput(f"{which}: use {', '.join(EVENTS)}, or run.* and *")


def require_url(url: str) -> None:
    """Raises InvalidInput for a URL that nothing can be sent to."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        secret = parts.username is not None or parts.password is not None
    except ValueError:
        fine = secret = False
    if not fine or len(url) > _URL_CHARS or not url.isprintable() or " " in url:
        raise InvalidInput(f"{url[:80]!r} is no URL for a webhook: it begins with https:// or http:// and names a host")
    if secret:
        raise InvalidInput("a webhook's URL has no user and password: the receiver checks the signature")


def _read(stored: Stored) -> Webhook | None:
    try:
        return _decode(stored.data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        leave_out(log, stored, f"it is not a webhook: {error}")
        return None
