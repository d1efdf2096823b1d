"""Dead letters: messages that could not be used, set aside whole and with the reason, to be looked at and replayed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from ..topics import reads
from ..topics.bus import Bus
from ..topics.client import head_bytes
from ..topics.errors import BrokerError, CallboardError, InvalidInput, NotFound
from ..topics.ids import new_token
from ..topics.messages import DeadLetter, ErrorInfo, encode
from ..topics.reads import Stored
from ..topics.units import now
from .blobs import Blobs
from .errors import info_of

_NO_MESSAGE = {10037, 10043, 10057}  # no message found, stream-specific not found, delete failed
_SLACK_BYTES = 1024
_MESSAGE_CHARS = 4096
_TRACE_CHARS = 16 * 1024
_SPAN = 64

_decode = msgspec.json.Decoder(DeadLetter).decode


class Letter(NamedTuple):
    """A dead letter under its id, the sequence in the DEAD stream."""

    id: int
    kind: str
    letter: DeadLetter


class DeadLetters:
    """Reads and writes `cb.dead.{kind}`."""

    def __init__(self, bus: Bus, blobs: Blobs | None = None) -> None:
        self._bus = bus
        self._blobs = blobs or Blobs(bus)
        self._stream = bus.subjects.dead

    # -- set aside ----------------------------------------------------------------------------------------------

    async def put(
        self,
        kind: str,
        subject: str,
        data: bytes,
        headers: Mapping[str, str] | None,
        error: ErrorInfo | CallboardError,
    ) -> int:
        """Sets a message aside (kinds: task, command, work, topic, webhook); returns its id once it is stored.

        A large body goes to the object store; of headers too large for one letter as many are kept as fit, and the
        reason names the others. Raises Unavailable, StorageFull: the message is then still the caller's."""
        reason = _clipped(error if isinstance(error, ErrorInfo) else info_of(error))
        inline = len(data) <= self._bus.inline_limit
        letter = DeadLetter(
            subject=subject,
            reason=reason,
            data=data if inline else b"",
            headers=dict(headers or {}) or None,
            ref=None if inline else await self._blobs.put(data),
            at=now(),
        )
        body = self._fitted(letter)
        head = head_bytes({"Nats-Msg-Id": new_token(20)})  # a repeated write is stored once
        return await self._bus.store(self._bus.subjects.dead_letter(kind), body, head)

    def _fitted(self, letter: DeadLetter) -> bytes:
        """The letter as bytes below the server's limit, without the headers that are too much."""
        limit = self._bus.max_payload - _SLACK_BYTES
        body = encode(letter)
        headers, dropped = dict(letter.headers or {}), list[str]()
        while len(body) > limit and headers:
            largest = max(headers, key=lambda name: len(name) + len(headers[name]))
            del headers[largest]
            dropped.append(largest[:64])
            details = {**(letter.reason.details or {}), "headers_dropped": dropped[:20]}
            reason = msgspec.structs.replace(letter.reason, details=details)
            letter = msgspec.structs.replace(letter, headers=headers or None, reason=reason)
            body = encode(letter)
        return body

    # -- look ---------------------------------------------------------------------------------------------------

    async def page(self, after: int | None = None, limit: int = 50, *, before: int | None = None) -> list[Letter]:
        """At most `limit` letters: the newest first, or with `after` those that follow this id, oldest first.

        `before` continues the newest-first list below an id."""
        if after is not None:
            found, _ = await reads.page_after(self._bus, self._stream, self._every, after, limit)
            return [_letter(stored) for stored in found]
        newest = await self._newest() if before is None else before - 1
        return [_letter(stored) for stored in await self._below(newest, limit)]

    @property
    def _every(self) -> str:
        return self._bus.subjects.dead_letter("*")

    async def _newest(self) -> int:
        info = await self._bus.api(f"STREAM.INFO.{self._stream}")
        return int(info["state"]["last_seq"]) if info else 0

    async def _below(self, high: int, limit: int) -> list[Stored]:
        """The newest `limit` letters up to sequence `high`, newest first. The stream is read forwards in spans that
        grow where it has gaps."""
        found: list[Stored] = []
        span = max(limit, _SPAN)
        while high > 0 and len(found) < limit:
            low = max(0, high - span)
            part = await self._between(low, high)
            found.extend(reversed(part))
            high, span = low, span * 4
        return found[:limit]

    async def _between(self, low: int, high: int) -> list[Stored]:
        """The letters after `low` up to `high`, in order."""
        part: list[Stored] = []
        async for page in reads.read(self._bus, self._stream, self._every, low):
            part.extend(stored for stored in page if stored.sequence <= high)
            if page[-1].sequence >= high:
                break
        return part

    async def get(self, id: int) -> Letter:
        """One letter. Raises NotFound."""
        stored = await reads.by_sequence(self._bus, self._stream, id) if id > 0 else None
        if stored is None:
            raise _unknown(id)
        return _letter(stored)

    # -- act ----------------------------------------------------------------------------------------------------

    async def replay(self, id: int) -> int:
        """Publishes the message again, as it was, and drops the letter once that is stored; returns the sequence.

        When this is cut short in between, the letter remains; replayed again within two minutes the message is
        still stored once. Raises NotFound, BlobMissing, Unavailable, InvalidInput (a letter that names no subject)."""
        letter = (await self.get(id)).letter
        if not _is_literal(letter.subject) or letter.subject.startswith(f"{self._bus.subjects.namespace}.dead."):
            raise InvalidInput(
                f"dead letter {id} names no subject to replay it on: {letter.subject[:80]!r}; drop it", id=id
            )
        data = letter.data if letter.ref is None else await self._blobs.get(letter.ref)
        headers = {name: text for name, text in (letter.headers or {}).items() if not name.lower().startswith("nats-")}
        headers["Nats-Msg-Id"] = f"{self._stream}.{id}"
        sequence = await self._bus.store(self._published_on(letter.subject), data, head_bytes(headers))
        await self._delete(id)
        return sequence

    def _published_on(self, subject: str) -> str:
        """The subject to publish on: that of a topic is stored with its partition in the middle."""
        topics = f"{self._bus.subjects.topic}."
        words = subject.removeprefix(topics).split(".")
        return f"{topics}{words[0]}.{words[2]}" if subject.startswith(topics) and len(words) == 3 else subject

    async def drop(self, id: int) -> None:
        """Deletes a letter. Raises NotFound."""
        if id <= 0 or not await self._delete(id):
            raise _unknown(id)

    async def _delete(self, sequence: int) -> bool:
        body: dict[str, Any] = {"seq": sequence, "no_erase": True}
        try:
            await self._bus.api(f"STREAM.MSG.DELETE.{self._stream}", body)
        except BrokerError as error:
            if error.facts.get("err_code") in _NO_MESSAGE or error.facts.get("status") == 404:
                return False
            raise
        return True


def _unknown(sequence: int) -> NotFound:
    return NotFound(f"there is no dead letter {sequence}", id=sequence)


def _is_literal(subject: str) -> bool:
    words = subject.split(".")
    return all(word and word not in {"*", ">"} and word.isprintable() and " " not in word for word in words)


def _clipped(reason: ErrorInfo) -> ErrorInfo:
    details = reason.details if reason.details and len(encode(reason.details)) <= _TRACE_CHARS else None
    trace = reason.traceback[-_TRACE_CHARS:] if reason.traceback else None
    return msgspec.structs.replace(reason, message=reason.message[:_MESSAGE_CHARS], traceback=trace, details=details)


def _letter(stored: Stored) -> Letter:
    return read_letter(stored.sequence, stored.subject, stored.data, stored.time)


def read_letter(id: int, subject: str, data: bytes, at: datetime | None = None) -> Letter:
    """A message of the DEAD stream; bytes that are no letter are shown as one themselves, set aside `at`."""
    try:
        letter = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = ErrorInfo(code="invalid_message", message=f"what was set aside is not a dead letter: {error}")
        letter = DeadLetter(subject="", reason=reason, data=data, at=at)
    return Letter(id, subject.rpartition(".")[2], letter)
