"""Threads: long-lived contexts that runs share, each a record and a history of messages."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import msgspec

from ..topics import reads
from ..topics.bus import Bus, fence
from ..topics.client import head_bytes
from ..topics.errors import Conflict, InvalidMessage, NotFound, StaleFence
from ..topics.ids import new_run_id, new_token
from ..topics.messages import ThreadMessage, ThreadRecord, encode
from ..topics.reads import Stored
from ..topics.subjects import require_token
from ..topics.units import now

log = logging.getLogger(__name__)

_PAGE = 500

_decode_record = msgspec.json.Decoder(ThreadRecord).decode
_decode_mark = msgspec.json.Decoder(dict[str, str]).decode
_decode_message = msgspec.json.Decoder(ThreadMessage).decode


class Posted(NamedTuple):
    """A message of a thread under its stream sequence, which is its place in the history."""

    sequence: int
    message: ThreadMessage


class Threads:
    """Reads and writes `cb.thread.{thread}.record` and `cb.thread.{thread}.message` in EVENTS."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._stream = bus.subjects.events

    def _subject(self, thread: str, kind: str) -> str:
        return f"{self._bus.subjects.thread}.{require_token('thread', thread)}.{kind}"

    async def create(self, thread: str | None = None, metadata: dict[str, Any] | None = None) -> ThreadRecord:
        """Creates a thread, under an id of its own unless one is given; returns its record once it is durable.

        A thread that exists with equal metadata is returned as it is. Raises Conflict when the metadata differ,
        InvalidSubject for an id that is no subject token, Unavailable, StorageFull."""
        record = ThreadRecord(id=thread or new_run_id(), created_at=now(), metadata=metadata or None)
        try:
            await self._bus.store(self._subject(record.id, "record"), encode(record), fence(0))
        except StaleFence:
            known = await self.get(record.id)
            if known.metadata != _as_read(record).metadata:
                raise Conflict(f"thread {record.id} exists with other metadata", thread=record.id) from None
            return known
        return record

    async def get(self, thread: str) -> ThreadRecord:
        """The record of a thread. Raises NotFound, InvalidMessage."""
        stored = await reads.last_from_leader(self._bus, self._stream, self._subject(thread, "record"))
        if stored is None:
            raise NotFound(f"there is no thread {thread}", thread=thread)
        try:
            return _decode_record(stored.data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidMessage(f"the record of thread {thread} cannot be read: {error}", thread=thread) from error

    async def append(self, thread: str, message: ThreadMessage) -> int:
        """Adds a message to the history and returns its sequence once it is stored; order is the broker's.

        The thread need not have a record. Large content must be a reference already (`Blobs.payload`). Raises
        PayloadTooLarge, Unavailable, StorageFull."""
        head = head_bytes({"Nats-Msg-Id": new_token(20)})  # a repeated write is stored once
        return await self._bus.store(self._subject(thread, "message"), encode(message), head)

    async def roll_back(self, thread: str, run: str) -> None:
        """Marks all that a run has said in the thread as rolled back: `messages` leaves it out from then on."""
        subject = self._subject(thread, "rollback")
        if run not in await self._rolled_back(thread):
            await self._bus.store(subject, encode({"run": run}))

    async def _rolled_back(self, thread: str) -> set[str]:
        found: set[str] = set()
        async for page in reads.read(self._bus, self._stream, self._subject(thread, "rollback")):
            for stored in page:
                try:
                    found.add(_decode_mark(stored.data)["run"])
                except (msgspec.MsgspecError, KeyError) as error:
                    log.warning("message %d on %s is not a mark: %s", stored.sequence, stored.subject, error)
        return found

    async def messages(self, thread: str, after: int = 0, limit: int = _PAGE) -> list[Posted]:
        """At most `limit` messages after sequence `after`, in order, without those of runs that were rolled back; what
        cannot be read is left out with a warning."""
        subject = self._subject(thread, "message")
        undone = await self._rolled_back(thread)
        found: list[Posted] = []
        while len(found) < limit:
            page, pending = await reads.page_after(
                self._bus, self._stream, subject, after, min(_PAGE, limit - len(found))
            )
            read = (posted for stored in page if (posted := _posted(stored)) is not None)
            found.extend(posted for posted in read if posted.message.run not in undone)
            if not page or not pending:
                break
            after = page[-1].sequence
        return found


def _as_read(record: ThreadRecord) -> ThreadRecord:
    """The record after a journey through JSON (tuples become lists, and the like)."""
    return _decode_record(encode(record))


def _posted(stored: Stored) -> Posted | None:
    try:
        return Posted(stored.sequence, _decode_message(stored.data))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        log.warning("message %d on %s is not a thread's message: %s", stored.sequence, stored.subject, error)
        return None
