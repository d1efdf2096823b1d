"""The event log: the stream of everything that happened to a run, written under fences, read without consumers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import NamedTuple

import msgspec

from ..topics import reads
from ..topics.bus import Bus, fence
from ..topics.errors import InvalidMessage, NotFound
from ..topics.messages import VERSION, RunRecord, encode

_decode = msgspec.json.Decoder(RunRecord).decode


class Loaded(NamedTuple):
    """A run and the stream sequence of the state that says so."""

    record: RunRecord
    sequence: int


def decode_record(data: bytes | msgspec.Raw) -> RunRecord:
    """A run record from the body of a state event. Raises InvalidMessage."""
    try:
        record = _decode(data)
    except msgspec.MsgspecError as error:
        raise InvalidMessage(f"not a run record: {error}") from error
    if record.v > VERSION:
        raise InvalidMessage(
            f"run {record.id} was written by a newer Callboard (wire version {record.v}, this one knows {VERSION}): "
            "upgrade"
        )
    return record


class EventLog:
    """Reads and writes `cb.run.{root}.{run}.{kind}`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._subjects = bus.subjects
        self._stream = bus.subjects.events

    # -- state --------------------------------------------------------------------------------------------------

    async def load(self, run: str) -> Loaded | None:
        """The run as any replica knows it: one direct get, whatever the length of its history."""
        stored = await reads.last(self._bus, self._stream, self._subjects.state(run))
        return None if stored is None else Loaded(decode_record(stored.data), stored.sequence)

    async def load_current(self, run: str) -> Loaded | None:
        """The run as the stream's leader knows it: for decisions that a late replica could make wrong."""
        stored = await reads.last_from_leader(self._bus, self._stream, self._subjects.state(run))
        return None if stored is None else Loaded(decode_record(stored.data), stored.sequence)

    async def require(self, run: str) -> Loaded:
        """Like `load_current`; raises NotFound."""
        found = await self.load_current(run)
        if found is None:
            raise NotFound(f"there is no run {run}", run=run)
        return found

    async def load_many(self, runs: Iterable[str]) -> dict[str, RunRecord]:
        """The records of those of `runs` that exist, in as few requests as possible."""
        subjects = [self._subjects.state(run) for run in runs]
        found = await reads.many_last(self._bus, self._stream, subjects)
        return {record.id: record for record in (decode_record(one.data) for one in found.values())}

    def append_state(self, record: RunRecord, after: int) -> asyncio.Future[int]:
        """Writes the record if the run's last state has sequence `after` (0: the run does not exist yet).

        Atomic: one message is one commit. The future gives the new sequence or raises StaleFence; see `Bus.write`."""
        return self._bus.write(self._subjects.state(record.id), encode(record), fence(after))

    # -- other events -------------------------------------------------------------------------------------------

    def append(self, run: str, kind: str, data: bytes, owner: int, once: str = "") -> asyncio.Future[int]:
        """Writes an event of an attempt, if the run's last state still has sequence `owner`: the broker refuses a
        late worker. `once` names the event: written again within two minutes it is not stored again, and the future
        gives the first one's sequence. Raises as `Bus.write` does."""
        subjects = self._subjects
        head = fence(owner, subjects.state(run), {"Nats-Msg-Id": once} if once else None)
        return self._bus.write(subjects.event(run, kind), data, head)

    # -- reading ------------------------------------------------------------------------------------------------

    def history(self, run: str, after: int = 0) -> AsyncGenerator[list[reads.Stored], None]:
        """All events of a run after sequence `after`, in order, in batches."""
        return reads.read(self._bus, self._stream, self._subjects.log(run), after)

    def tree_history(self, root: str, after: int = 0) -> AsyncGenerator[list[reads.Stored], None]:
        """All events of a root and its descendants after sequence `after`, in order, in batches."""
        return reads.read(self._bus, self._stream, self._subjects.tree(root), after)

    async def newest_tree(self, root: str) -> list[RunRecord]:
        """The records of a root and all its descendants as any replica knows them: in few requests, however often they
        have changed."""
        pattern = f"{self._subjects.run}.{root.partition('~')[0]}.*.state"
        found = await reads.many_last(self._bus, self._stream, [pattern])
        return [decode_record(one.data) for one in found.values()]

    async def tree(self, root: str) -> list[RunRecord]:
        """The records of a root and all its descendants, oldest first."""
        pattern = f"{self._subjects.run}.{root.partition('~')[0]}.*.state"
        states: dict[str, reads.Stored] = {}
        async for page in reads.read(self._bus, self._stream, pattern):
            states.update((one.subject, one) for one in page)
        records = (decode_record(one.data) for one in states.values())
        return sorted(records, key=lambda record: (record.created_at, record.id))
