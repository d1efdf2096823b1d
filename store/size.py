"""How much room a run takes: in the log, by kind of event and by channel, and in the object store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from ..topics import reads
from ..topics.bus import Bus
from ..topics.errors import InvalidMessage
from ..topics.messages import Artifact, BlobRef, Event, Payload, RunRecord, Step, ThreadMessage
from ..topics.reads import Stored
from .checkpoints.cell import size_of
from .checkpoints.state import Saved, is_checkpoint
from .journal import ENTRY_KINDS, entries
from .log import decode_record

_AT_ONCE = 8
_decode_message = msgspec.json.Decoder(ThreadMessage).decode


class Amount(Struct, kw_only=True):
    """So many, of so many bytes together."""

    count: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """One more."""
        self.count += 1
        self.bytes += size


class Size(Struct, kw_only=True):
    """What a run takes, or a thread with its runs. Bytes of messages are those of their bodies."""

    messages: Amount
    kinds: dict[str, Amount]
    """Messages by kind of event; those of subgraphs count as `checkpoint`, those of a thread as `thread`."""
    channels: dict[str, Amount]
    """Values, or parts of them, that checkpoints hold, by channel; wherever they lie."""
    blobs: Amount
    """What lies in the object store, each content once."""

    @classmethod
    def none(cls) -> Size:
        """Nothing yet."""
        return cls(messages=Amount(), kinds={}, channels={}, blobs=Amount())


class Scale:
    """Weighs runs and threads."""

    def __init__(self, bus: Bus) -> None:
        self._bus, self._stream = bus, bus.subjects.events

    async def run(self, run: str) -> Size:
        """The size of one run, from its whole log."""
        return (await self._weighed([self._bus.subjects.log(run)])).size

    async def thread(self, thread: str, runs: Iterable[str]) -> Size:
        """The size of a thread and of these runs in it; a content that several of them refer to counts once."""
        subjects = self._bus.subjects
        return (await self._weighed([f"{subjects.thread}.{thread}.*", *map(subjects.log, runs)])).size

    async def _weighed(self, filters: list[str]) -> _Weight:
        weight, door = _Weight(), asyncio.Semaphore(_AT_ONCE)

        async def weigh(filter_: str) -> None:
            async with door:
                async for page in reads.read(self._bus, self._stream, filter_):
                    for stored in page:
                        weight.add(stored)

        async with asyncio.TaskGroup() as group:
            for filter_ in filters:
                group.create_task(weigh(filter_))
        return weight


class _Weight:
    def __init__(self) -> None:
        self.size = Size.none()
        self._known: set[str] = set()

    def add(self, stored: Stored) -> None:
        family = stored.subject.split(".", 2)[1]
        kind = "thread" if family == "thread" else "checkpoint" if is_checkpoint(stored.kind) else stored.kind
        size = len(stored.data)
        self.size.messages.add(size)
        self.size.kinds.setdefault(kind, Amount()).add(size)
        try:
            refs = list(self._refs(kind, stored))
        except (InvalidMessage, msgspec.MsgspecError, UnicodeDecodeError):
            return  # it takes its room, and says nothing of blobs
        for ref in refs:
            if ref is not None and ref.name not in self._known:
                self._known.add(ref.name)
                self.size.blobs.add(ref.size)

    def _refs(self, kind: str, stored: Stored) -> Iterator[BlobRef | None]:
        if kind == "checkpoint":
            made = Saved.of(stored).checkpoint
            for name, cell in made.put.items():
                self.size.channels.setdefault(name, Amount()).add(size_of(cell))
            yield from (cell.ref for cell in (*made.put.values(), made.plan) if cell is not None)
        elif kind == "state":
            yield from map(_ref, _of_record(decode_record(stored.data)))
        elif kind == "thread" and stored.kind == "message":
            yield _decode_message(stored.data).content.ref
        elif kind in ENTRY_KINDS:
            yield from (_of_entry(entry) for entry in entries(stored))


def _of_record(record: RunRecord) -> Iterator[Payload | None]:
    yield record.input
    yield record.result


def _ref(payload: Payload | None) -> BlobRef | None:
    return None if payload is None else payload.ref


def _of_entry(entry: Step | Event | Artifact) -> BlobRef | None:
    if isinstance(entry, Artifact):
        return entry.ref
    return _ref(entry.data if isinstance(entry, Event) else entry.value)
