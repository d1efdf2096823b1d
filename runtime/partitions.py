"""Which host owns which part of an actor's keys: 16 partitions, spread over the hosts that have the actor.

Every host computes the same favourite for a partition by rendezvous hashing over the hosts that it hears. A host that
is not the favourite hands the partition back; the favourite claims what is free, and what belongs to a host that went
silent. The heartbeats only say who should own; who does own is decided by the fence on `cb.actor.{actor}.{partition}`
(see `partition`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time

import msgspec

from ..actors.handler import Handlers
from ..topics import reads
from ..topics.bus import Bus, fence
from ..topics.errors import CallboardError, NoResponders, StaleFence, Unavailable
from ..topics.subjects import PARTITIONS
from .config import RuntimeSettings
from .cursor import Ownership, TopicCursor, read_ownership
from .envelope import Envelope
from .mailbox import Mailbox
from .partition import Partition
from .presence import MISSED_BEATS, Presence

log = logging.getLogger(__name__)

_SETTLE_S = 15.0


def favourite(actor: str, partition: int, hosts: list[str]) -> str:
    """The host that should own the partition: each of `hosts` gets a fair part, and a change moves few partitions."""

    def weight(host: str) -> bytes:
        return hashlib.blake2b(f"{host}/{actor}/{partition}".encode(), digest_size=8).digest()

    return max(hosts, key=weight)


class Partitions:
    """This host's partitions of one actor."""

    def __init__(
        self,
        bus: Bus,
        worker: str,
        actor: str,
        handlers: Handlers,
        mailbox: Mailbox[Envelope],
        capacity: int,
        settings: RuntimeSettings,
        presence: Presence,
    ) -> None:
        self._bus, self._worker, self._actor, self._handlers = bus, worker, actor, handlers
        self._mailbox, self._capacity, self._settings, self._presence = mailbox, capacity, settings, presence
        self._owned: dict[int, Partition] = {}
        self._releases: dict[int, asyncio.Task[None]] = {}
        self._seen: dict[int, tuple[int, float]] = {}
        self._known: set[int] = set()
        self._wake = asyncio.Event()
        self._began = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    @property
    def owned(self) -> list[int]:
        """The numbers of the partitions held now."""
        return sorted(self._owned)

    def room_grew(self) -> None:
        """There is room in the mailbox."""
        for partition in self._owned.values():
            partition.room_grew()

    async def start(self) -> None:
        """Begins to claim, and returns once every partition has an owner's record (or after 15 s, with a warning)."""
        self._presence.on_change.append(self._wake.set)
        self._task = asyncio.create_task(self._run(), name=f"partitions-{self._actor}")
        deadline = time.monotonic() + _SETTLE_S
        while len(self._known) < PARTITIONS and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if len(self._known) < PARTITIONS:
            log.warning("actor %s: %d partitions have no owner yet", self._actor, PARTITIONS - len(self._known))

    async def release(self, timeout_s: float) -> None:
        """Hands back all partitions, each when what runs in it has ended, at most after `timeout_s` seconds."""
        if self._wake.set in self._presence.on_change:
            self._presence.on_change.remove(self._wake.set)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=1)
        for number in list(self._owned):
            self._begin_release(number, timeout_s)
        if self._releases:
            await asyncio.wait(list(self._releases.values()), timeout=timeout_s + 1)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._balance()
            except CallboardError as error:
                log.info("partitions of %s: %s; trying again", self._actor, error)
            try:
                async with asyncio.timeout(self._settings.beat_s / 2):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _balance(self) -> None:
        if not self._bus.is_up:
            return
        hosts = [*self._presence.hosts_of(self._actor), self._worker]
        mine = {number for number in range(PARTITIONS) if favourite(self._actor, number, hosts) == self._worker}
        for number in [number for number in self._owned if number not in mine]:
            self._begin_release(number, self._settings.grace_s)
        missing = [number for number in range(PARTITIONS) if number not in self._owned]
        if not missing:
            return
        records = await self._records(missing)
        end = await self._stream_end() if any(self._lacks(records.get(number)) for number in missing) else 0
        claims = [self._claim(number, records.get(number), end) for number in missing if number in mine]
        for result in await asyncio.gather(*claims, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, CallboardError):
                raise result

    async def _records(self, numbers: list[int]) -> dict[int, tuple[Ownership, int]]:
        subjects = {self._bus.subjects.ownership(self._actor, number): number for number in numbers}
        found = await reads.many_last(self._bus, self._bus.subjects.actors, list(subjects))
        now = time.monotonic()
        records = {}
        for subject, stored in found.items():
            number = subjects[subject]
            records[number] = (read_ownership(stored.data), stored.sequence)
            self._known.add(number)
            if self._seen.get(number, (0, 0.0))[0] != stored.sequence:
                self._seen[number] = (stored.sequence, now)
        return records

    def _lacks(self, found: tuple[Ownership, int] | None) -> bool:
        return found is None or any(topic not in found[0].cursors for topic in self._handlers.topics)

    async def _stream_end(self) -> int:
        info = await self._bus.api(f"STREAM.INFO.{self._bus.subjects.topics}")
        assert info is not None
        return int(info["state"]["last_seq"])

    # -- claim --------------------------------------------------------------------------------------------------

    async def _claim(self, number: int, found: tuple[Ownership, int] | None, end: int) -> None:
        if number in self._releases or (found is not None and not await self._may_take(number, found[0].owner)):
            return
        before, sequence = found or (Ownership(owner=""), 0)
        unclean = before.owner not in ("", self._worker)
        cursors = {name: before.cursors.get(name) or self._fresh_cursor(name, end) for name in self._handlers.topics}
        if unclean and before.trying is not None and before.trying[0] in cursors:
            topic, tried = before.trying
            cursors[topic].tries[tried] = cursors[topic].tries.get(tried, 0) + 1
        others = {name: cursor for name, cursor in before.cursors.items() if name not in cursors}
        record = Ownership(owner=self._worker, cursors=cursors | others)
        subject = self._bus.subjects.ownership(self._actor, number)
        try:
            written = await self._bus.write(subject, msgspec.json.encode(record), fence(sequence))
        except StaleFence:
            return  # another host was faster
        if unclean:
            log.warning("partition %d of actor %s taken over from %s", number, self._actor, before.owner)
        await self._begin(number, (record, written), unclean)

    async def _begin(self, number: int, held: tuple[Ownership, int], unclean: bool) -> None:
        partition = Partition(
            self._bus, self._actor, number, held, self._mailbox, self._handlers.topics,
            max(1, self._capacity // PARTITIONS), self._settings.owner_lease_s, self._lost, self.room_grew,
        )  # fmt: skip
        self._owned[number] = partition
        self._known.add(number)
        try:
            await partition.start(bool(self._handlers.asks), self._capacity if unclean else 0)
        except CallboardError:
            del self._owned[number]  # its record names this host: claimed anew when the broker is back
            await partition.abandon()
            raise
        self._changed()

    def _fresh_cursor(self, topic: str, end: int) -> TopicCursor:
        return TopicCursor(0 if self._handlers.topics[topic].replay else end)

    async def _may_take(self, number: int, owner: str) -> bool:
        if owner in ("", self._worker):
            return True
        if not await self._is_gone(owner):
            return False
        return time.monotonic() - self._seen[number][1] >= self._settings.owner_lease_s

    async def _is_gone(self, owner: str) -> bool:
        """Whether the host is not heard any more, or its connection is known to be closed."""
        if self._presence.is_present(owner, 1.5):
            return False
        try:
            await self._bus.request(f"{self._bus.subjects.worker}.{owner}", timeout_s=0.2)
        except NoResponders:
            self._presence.forget(owner)
            return True
        except Unavailable:
            listened = time.monotonic() - self._began >= MISSED_BEATS * self._settings.beat_s
            return listened and not self._presence.is_present(owner)
        return False

    # -- give back ----------------------------------------------------------------------------------------------

    def _begin_release(self, number: int, timeout_s: float) -> None:
        partition = self._owned.pop(number)
        task = asyncio.create_task(partition.release(timeout_s), name=f"release-{self._actor}-{number}")
        self._releases[number] = task
        task.add_done_callback(lambda _: self._released(number))

    def _released(self, number: int) -> None:
        self._releases.pop(number, None)
        self._changed()

    def _lost(self, partition: Partition) -> None:
        if self._owned.get(partition.number) is partition:
            del self._owned[partition.number]
        self._changed()

    def _changed(self) -> None:
        self._presence.changed()
        self._wake.set()
