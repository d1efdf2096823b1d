"""Threads: long-lived contexts that runs share, each a record and a history of messages."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ..topics import reads
from ..topics.bus import Bus, fence
from ..topics.client import head_bytes
from ..topics.errors import Conflict, InvalidMessage, NotFound, StaleFence
from ..topics.ids import new_run_id, new_token
from ..topics.messages import Origin, ThreadHead, ThreadMessage, ThreadRecord, encode
from ..topics.reads import Stored
from ..topics.subjects import require_token
from ..topics.units import now
from .unread import leave_out

log = logging.getLogger(__name__)

_PAGE = 500
_FORKS = 100
"""Forks of forks of which a thread still shows the messages."""

_decode_record = msgspec.json.Decoder(ThreadRecord).decode
_decode_head = msgspec.json.Decoder(ThreadHead).decode
_decode_mark = msgspec.json.Decoder(dict[str, str]).decode
_decode_message = msgspec.json.Decoder(ThreadMessage).decode


class Posted(NamedTuple):
    """A message of a thread under its stream sequence, which is its place in the history."""

    sequence: int
    message: ThreadMessage


class Head(NamedTuple):
    """The order of a thread, and the stream sequence under which it stands: 0 before the first run."""

    order: ThreadHead
    sequence: int


class Owner(NamedTuple):
    """A run, and the sequence of the running state under which it writes."""

    run: str
    fence: int


class Threads:
    """Reads and writes `cb.thread.{thread}.{kind}` in EVENTS; kinds: record, message, rollback, head."""

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

    async def append(self, thread: str, message: ThreadMessage, owner: Owner | None = None) -> int:
        """Adds a message to the history and returns its sequence once it is stored; order is the broker's.

        With `owner` the broker refuses it (StaleFence) once that run's attempt is over. The thread need not have a
        record. Large content must be a reference already (`Blobs.payload`). Raises PayloadTooLarge, Unavailable,
        StorageFull."""
        once = {"Nats-Msg-Id": new_token(20)}  # a repeated write is stored once
        head = head_bytes(once) if owner is None else fence(owner.fence, self._bus.subjects.state(owner.run), once)
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
                    leave_out(log, stored, f"it is not a mark: {error}")
        return found

    async def messages(self, thread: str, after: int = 0, limit: int = _PAGE) -> list[Posted]:
        """At most `limit` messages after sequence `after`, in order, without those of runs that were rolled back; of a
        fork first what it shares with the thread it comes from. What cannot be read is left out with a warning."""
        found: list[Posted] = []
        for part in await self._parts(thread):
            if len(found) < limit:
                found += await self._read(part, after, limit - len(found))
        return found

    async def own_messages(self, thread: str, after: int = 0) -> list[Posted]:
        """All messages after sequence `after` that were written to this thread itself, without those rolled back."""
        return await self._read(_Part(thread, None, frozenset()), after, None)

    async def _parts(self, thread: str) -> list[_Part]:
        """Where the messages of a thread lie, the oldest first."""
        parts = [_Part(thread, None, frozenset())]
        origin = await self._origin(thread)
        while origin is not None and len(parts) < _FORKS:
            without = frozenset({origin.without}) if origin.without else frozenset[str]()
            parts.append(_Part(origin.thread, origin.at, without))
            origin = await self._origin(origin.thread)
        return parts[::-1]

    async def _origin(self, thread: str) -> Origin | None:
        try:
            return (await self.get(thread)).origin
        except (NotFound, InvalidMessage):
            return None

    async def _read(self, part: _Part, after: int, limit: int | None) -> list[Posted]:
        subject = self._subject(part.thread, "message")
        undone = await self._rolled_back(part.thread) | part.without
        found: list[Posted] = []
        while limit is None or len(found) < limit:
            size = _PAGE if limit is None else min(_PAGE, limit - len(found))
            page, pending = await reads.page_after(self._bus, self._stream, subject, after, size)
            for stored in page:
                if part.until is not None and stored.sequence > part.until:
                    return found
                posted = _posted(stored)
                if posted is not None and not undone & {posted.message.run, posted.message.turn}:
                    found.append(posted)
            if not page or not pending:
                break
            after = page[-1].sequence
        return found

    # -- order --------------------------------------------------------------------------------------------------

    async def head(self, thread: str) -> Head:
        """Who is at work in the thread and who waits, as the stream's leader knows it. Raises InvalidMessage."""
        stored = await reads.last_from_leader(self._bus, self._stream, self._subject(thread, "head"))
        if stored is None:
            return Head(ThreadHead(), 0)
        try:
            return Head(_decode_head(stored.data), stored.sequence)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidMessage(f"the head of thread {thread} cannot be read: {error}", thread=thread) from error

    async def put_head(self, thread: str, order: ThreadHead, after: int) -> Head:
        """Writes the next head, if the last one has sequence `after`. Raises as `Bus.write` does: StaleFence when
        somebody was faster."""
        sequence = await self._bus.write(self._subject(thread, "head"), encode(order), fence(after))
        return Head(order, sequence)

    async def point(self, thread: str) -> Origin:
        """The point from which the thread can be forked now: all that was left in it by runs that have ended."""
        while True:
            before = await self.head(thread)
            stored = await reads.last_from_leader(self._bus, self._stream, self._subject(thread, "message"))
            after = await self.head(thread)
            if before.sequence == after.sequence:
                active = after.order.active
                return Origin(
                    thread=thread,
                    at=stored.sequence if stored else 0,
                    without=active.run if active else None,
                    version=after.order.version,
                    tip=after.order.tip,
                )

    async def fork(self, thread: str, origin: Origin) -> ThreadRecord:
        """Creates `thread` as a fork; one that exists is returned, and has the point it was made with. Raises Conflict
        for a thread that is something else."""
        record = ThreadRecord(id=thread, created_at=now(), origin=origin)
        try:
            await self._bus.store(self._subject(thread, "record"), encode(record), fence(0))
        except StaleFence:
            known = await self.get(thread)
            if known.origin is None or known.origin.thread != origin.thread:
                raise Conflict(f"thread {thread} exists and is no fork of {origin.thread}", thread=thread) from None
            return known
        return record

    async def keep(self, thread: str, branch: str, run: str) -> bool:
        """Writes what an optimistic run has said in its branch into the thread, each message once, while the run is the
        one at work there. False when it is not."""
        head, known = await self.head(thread), await self.get(branch)
        kept = {
            posted.message.draft
            for posted in await self.own_messages(thread, known.origin.at if known.origin else 0)
            if run in (posted.message.run, posted.message.turn)
        }
        for draft in await self.own_messages(branch):
            while draft.sequence not in kept:
                if head.order.active is None or head.order.active.run != run:
                    return False
                try:
                    await self._keep(thread, head, draft, run)
                    break
                except StaleFence:
                    head = await self.head(thread)
        return True

    async def _keep(self, thread: str, head: Head, draft: Posted, run: str) -> None:
        once = {"Nats-Msg-Id": f"{run}.{draft.sequence}"}
        guard = fence(head.sequence, self._subject(thread, "head"), once)
        message = replace(draft.message, draft=draft.sequence)
        await self._bus.store(self._subject(thread, "message"), encode(message), guard)


class _Part(NamedTuple):
    """A stretch of a thread's messages: up to `until`, and without those of some runs."""

    thread: str
    until: int | None
    without: frozenset[str]


def _as_read(record: ThreadRecord) -> ThreadRecord:
    """The record after a journey through JSON (tuples become lists, and the like)."""
    return _decode_record(encode(record))


def _posted(stored: Stored) -> Posted | None:
    try:
        return Posted(stored.sequence, _decode_message(stored.data))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        leave_out(log, stored, f"it is not a thread's message: {error}")
        return None
