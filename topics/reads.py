"""Reading what a stream holds, without a consumer: direct gets, single and batched, always below a literal prefix."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Collection, Sequence
from datetime import datetime
from typing import Any

import msgspec

from .bus import Bus
from .client import Message
from .errors import Unavailable

_EOB, _NOT_FOUND, _TOO_MANY = 204, 404, 413
_BATCH = 500
_BATCH_BYTES = 4 * 1024 * 1024
_IDLE_S = 5.0
_MANY = 500
MAX_SEQUENCE = 2**63 - 1
"""No stream comes to it; the broker refuses larger numbers as malformed, which is no answer to those who ask."""


class Stored:
    """One stored message: `subject`, `sequence`, `data`, `headers`, `time` (the broker's stamp)."""

    __slots__ = ("_headers", "_stamp", "data", "sequence", "subject")

    def __init__(self, subject: str, sequence: int, data: bytes, headers: dict[str, str] | None, stamp: str) -> None:
        self.subject = subject
        self.sequence = sequence
        self.data = data
        self._headers = headers
        self._stamp = stamp

    @property
    def headers(self) -> dict[str, str]:
        """The publisher's headers (with the broker's own `Nats-…` among them for direct gets)."""
        return self._headers or {}

    @property
    def time(self) -> datetime:
        """When the broker stored it."""
        stamp = self._stamp
        if len(stamp) > 27 and stamp.endswith("Z"):  # nanoseconds; datetime takes microseconds
            stamp = stamp[:26] + "Z"
        return datetime.fromisoformat(stamp)

    @property
    def kind(self) -> str:
        """The last token of the subject."""
        return self.subject.rpartition(".")[2]

    @classmethod
    def of(cls, message: Message) -> Stored:
        """From a direct get's answer, or a republished message (whose `Nats-Subject` is the stream's subject)."""
        headers = message.headers
        return cls(
            headers.get("Nats-Subject", message.subject),
            _number(headers.get("Nats-Sequence")),
            message.data,
            headers,
            headers.get("Nats-Time-Stamp", "1970-01-01T00:00:00Z"),
        )


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else 0


def _is_stored(message: Message) -> bool:
    # The broker appends this header to what it stored; its own notices (404, 204, 408 …) don't have it. A publisher can
    # store a message that has a status line, so the status alone does not tell.
    return message.head is not None and b"\r\nNats-Sequence: " in message.head


def _single(message: Message, where: str) -> Stored | None:
    if _is_stored(message):
        return Stored.of(message)
    if message.status == _NOT_FOUND:
        return None
    raise Unavailable(f"NATS: direct get on {where}: {message.status} {message.description}")


async def last(bus: Bus, stream: str, subject: str) -> Stored | None:
    """The newest message on a subject (one direct get; on a cluster any replica may answer, a moment late)."""
    message = await bus.request(f"$JS.API.DIRECT.GET.{stream}.{subject}", timeout_s=_IDLE_S)
    return _single(message, stream)


async def last_from_leader(bus: Bus, stream: str, subject: str) -> Stored | None:
    """The newest message on a subject as the stream's leader knows it: what a refused fence is judged by."""
    if bus.replicas == 1:
        return await last(bus, stream, subject)
    answer = await bus.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject}, missing_ok=True)
    return None if answer is None else _stored(answer["message"])


def _stored(message: dict[str, Any]) -> Stored:
    head = base64.b64decode(message["hdrs"]) if "hdrs" in message else None
    return Stored(
        message["subject"],
        message["seq"],
        base64.b64decode(message.get("data", "")),
        Message("", "", b"", head).headers,
        message["time"],
    )


async def by_sequence(bus: Bus, stream: str, sequence: int) -> Stored | None:
    """The message with this sequence."""
    if not 0 < sequence <= MAX_SEQUENCE:
        return None
    message = await bus.request(f"$JS.API.DIRECT.GET.{stream}", msgspec.json.encode({"seq": sequence}), _IDLE_S)
    return _single(message, stream)


async def by_sequences(bus: Bus, stream: str, sequences: Collection[int]) -> dict[int, Stored]:
    """Those of the messages with these sequences that there are, asked for all at once."""
    found: dict[int, Stored] = {}
    wanted = list(dict.fromkeys(sequences))
    for start in range(0, len(wanted), _MANY):
        part = wanted[start : start + _MANY]
        answers = await asyncio.gather(*(by_sequence(bus, stream, sequence) for sequence in part))
        found |= {stored.sequence: stored for stored in answers if stored is not None}
    return found


async def leader_by_sequence(bus: Bus, stream: str, sequence: int) -> Stored | None:
    """The message with this sequence as the stream's leader knows it."""
    if bus.replicas == 1 or not 0 < sequence <= MAX_SEQUENCE:
        return await by_sequence(bus, stream, sequence)
    answer = await bus.api(f"STREAM.MSG.GET.{stream}", {"seq": sequence}, missing_ok=True)
    return None if answer is None else _stored(answer["message"])


async def many_last(bus: Bus, stream: str, subjects: Sequence[str]) -> dict[str, Stored]:
    """The newest message of each subject that has one; subjects are literal, or wildcards below a literal prefix."""
    found: dict[str, Stored] = {}
    for start in range(0, len(subjects), _MANY):
        wanted = subjects[start : start + _MANY]
        try:
            found.update(await _last_of(bus, stream, wanted))
        except Unavailable as error:
            if error.facts.get("status") != _TOO_MANY:
                raise
            for subject in wanted:  # above the broker's limit of 1,024 subjects: read all there is
                async for page in read(bus, stream, subject):
                    found.update((one.subject, one) for one in page)
    return found


async def _last_of(bus: Bus, stream: str, subjects: Sequence[str]) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    after, pending = 0, 1
    while pending:
        body = {"multi_last": list(subjects), "seq": after + 1, "max_bytes": _BATCH_BYTES}
        page, pending = await _batch(bus, stream, body)
        if not page:
            break
        found.update((one.subject, one) for one in page)
        after = page[-1].sequence
    return found


async def read(
    bus: Bus, stream: str, subject: str, after: int = 0, batch: int = _BATCH
) -> AsyncGenerator[list[Stored], None]:
    """All messages on `subject` (a wildcard stands last) after sequence `after`, in order, batch by batch.

    Ends at the message that is newest when it is reached. Raises Unavailable when the broker stops answering."""
    while True:
        page, pending = await page_after(bus, stream, subject, after, batch)
        if page:
            yield page
            after = page[-1].sequence
        if not pending or not page:
            return


async def page_after(bus: Bus, stream: str, subject: str, after: int, batch: int = _BATCH) -> tuple[list[Stored], int]:
    """One batch of messages after sequence `after`, and how many still follow it."""
    after = max(after, 0)
    if after >= MAX_SEQUENCE:
        return [], 0
    body = {"seq": after + 1, "next_by_subj": subject, "batch": batch, "max_bytes": _BATCH_BYTES}
    return await _batch(bus, stream, body)


async def _batch(bus: Bus, stream: str, body: dict[str, Any]) -> tuple[list[Stored], int]:
    found: list[Stored] = []
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    touched = 0

    def collect(message: Message | None) -> None:
        nonlocal touched
        touched += 1
        if done.done():
            return
        if message is None:
            done.set_exception(Unavailable("NATS: the connection was lost"))
        elif _is_stored(message):
            found.append(Stored.of(message))
        elif message.status == _NOT_FOUND:
            done.set_result(0)
        elif message.status == _EOB:
            done.set_result(_number(message.headers.get("Nats-Num-Pending")))
        else:
            why = f"{message.status} {message.description}"
            done.set_exception(Unavailable(f"NATS: direct get on {stream}: {why}", status=message.status))

    async with bus.call(f"$JS.API.DIRECT.GET.{stream}", msgspec.json.encode(body), None, collect):
        while not done.done():
            seen = touched
            await asyncio.wait((done,), timeout=_IDLE_S)
            if not done.done() and touched == seen:
                raise Unavailable(f"NATS: direct get on {stream} stopped answering")
    return found, done.result()
