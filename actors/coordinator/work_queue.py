"""What lies in the work queue: whether a run has its message there, and what becomes of the one of a lost worker.

A queue is looked through as a whole, once for all who ask within a few seconds: when an installation is behind, they
are many, and so are the messages.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import NamedTuple

import msgspec

from ...topics import reads, units
from ...topics.bus import Bus
from ...topics.messages import RunRecord, Work
from ...topics.reads import Stored
from .gates import Gates

_FRESH_S = 5.0
_MOST = 50_000
"""Messages of one queue that are looked at. In a longer one nothing is missed: what is behind comes up in time."""

_decode = msgspec.json.Decoder(Work).decode


class _Seen(NamedTuple):
    at: datetime
    found: set[tuple[str, int]]
    whole: bool


class WorkQueue:
    """The queues of all agents, as one coordinator sees them."""

    def __init__(self, bus: Bus, gates: Gates) -> None:
        self._bus, self._gates = bus, gates
        self._seen: dict[str, _Seen] = {}
        self._lock = asyncio.Lock()

    async def lacks(self, record: RunRecord) -> bool:
        """Whether a queued run has no message of its present dispatch in its queue. For runs that have been queued for
        longer than a few seconds; it may err for a moment. Raises as `reads.read` does."""
        if record.lease and await self.find(record.id, record.lease) is not None:
            return False
        if self._gates.limits(record.agent) is not None and await self._gates.knows(record):
            return False
        async with self._lock:
            seen = self._seen.get(record.queue)
            if seen is None or (units.now() - seen.at).total_seconds() > _FRESH_S:
                seen = self._seen[record.queue] = await self._look(record.queue)
        return seen.whole and seen.at > record.updated_at and (record.id, record.dispatch) not in seen.found

    async def _look(self, queue: str) -> _Seen:
        at, found = units.now(), set[tuple[str, int]]()
        subjects = self._bus.subjects
        async for page in reads.read(self._bus, subjects.work_stream, f"{subjects.work}.{queue}"):
            for stored in page:
                try:
                    work = _decode(stored.data)
                except msgspec.MsgspecError:
                    continue  # whoever takes it sets it aside
                found.add((work.run, work.dispatch))
            if len(found) >= _MOST:
                return _Seen(at, found, whole=False)
        return _Seen(at, found, whole=True)

    # -- of a worker that is gone -------------------------------------------------------------------------------

    async def hand_back(self, record: RunRecord) -> bool:
        """Whether the message that the record names is there; then it is delivered again at once, or when its lease is
        over."""
        stored = await self.find(record.id, record.lease)
        if stored is None:
            return False
        subjects = self._bus.subjects
        queue = stored.subject[len(subjects.work) + 1 :]
        place = f"{record.delivery}.{record.lease}.{record.consumer_seq}"
        self._bus.publish(f"$JS.ACK.{subjects.work_stream}.{queue}.{place}.0.0", b"-NAK")
        return True

    async def drop(self, run: str, sequence: int) -> None:
        """Takes the run's message away."""
        if sequence and await self.find(run, sequence) is not None:
            await self._gates.forget(sequence)

    async def find(self, run: str, sequence: int) -> Stored | None:
        """A message, if it is that run's: a number in a record may be older than the stream."""
        stored = await reads.by_sequence(self._bus, self._bus.subjects.work_stream, sequence)
        return stored if stored is not None and run.encode() in stored.data else None
