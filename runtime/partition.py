"""One partition of an actor's keys, owned by this host: read in order, handled key by key, its cursor under a fence.

The owner's right ends in one of two ways: it is handed back (`release`), or another host takes it because this one went
silent. A message is started only by an owner whose last accepted write was sent less than half an owner lease ago, and
another host takes a partition only when the record did not change for a whole owner lease: so a host that lost a
partition starts no message of it, however long it was stopped in between. What it had begun before is handled once more
by the new owner.

After its owner died, a partition is handled with caution for a while: one message at a time, each announced in the
record before it is handled. A message that kills its process is found by this, counted, and set aside like one that
raises.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import msgspec

from ..actors.asking import answer_error, ask_filter
from ..topics import reads
from ..topics.bus import Bus, Subscription, fence
from ..topics.client import Message
from ..topics.errors import BrokerError, CallboardError, StaleFence
from ..topics.messages import ErrorInfo
from .cursor import Ownership, Progress, TopicCursor, read_ownership
from .envelope import Asked, Envelope, Published
from .mailbox import Mailbox

log = logging.getLogger(__name__)

MAILBOX_FULL = ErrorInfo(code="mailbox_full", message="the actor's mailbox is full: ask again later", retryable=True)
_PAGE = 100
_POLL_S = 5.0
_RETRY_S = 0.1


class Partition:
    """See the module. Made by `Partitions` when a claim was accepted with stream sequence `sequence`."""

    def __init__(
        self,
        bus: Bus,
        actor: str,
        number: int,
        held: tuple[Ownership, int],
        mailbox: Mailbox[Envelope],
        topics: Iterable[str],
        share: int,
        lease_s: float,
        on_lost: Callable[[Partition], None],
        on_room: Callable[[], None],
    ) -> None:
        self._bus, self.actor, self.number = bus, actor, number
        record, self._sequence = held
        self._owner = record.owner
        self._mailbox, self._share, self._lease_s = mailbox, share, lease_s
        self._on_lost, self._on_room = on_lost, on_room
        self._subject = bus.subjects.ownership(actor, number)
        self._loop = asyncio.get_running_loop()
        self._confirmed = self._loop.time()
        self.progress = {topic: Progress(record.cursors[topic]) for topic in topics}
        self._others = {topic: cursor for topic, cursor in record.cursors.items() if topic not in self.progress}
        self.owned = True
        self._reading = True
        self.inside = 0
        """Envelopes of this partition in the mailbox."""
        self._cautious = 0
        self._starved = False
        self._trying: tuple[str, int] | None = None
        self._caution = asyncio.Lock()
        self._pokes = {topic: asyncio.Event() for topic in self.progress}
        self._dirty = asyncio.Event()
        self._change = self._stored_change = 0
        self._saved: asyncio.Future[None] = self._loop.create_future()
        self._tasks: list[asyncio.Task[None]] = []
        self._subscriptions: list[Subscription] = []

    # -- life ---------------------------------------------------------------------------------------------------

    async def start(self, asks: bool, cautious: int) -> None:
        """Begins to read and to answer; the next `cautious` messages are handled with caution. Raises Unavailable."""
        self._cautious = cautious
        for topic in self.progress:
            live = self._bus.subjects.live_of(self._bus.subjects.topic_partition(topic, self.number))
            self._subscriptions.append(await self._bus.subscribe(live, self._live(topic)))
        if asks:
            subject = ask_filter(self._bus.subjects, self.actor, self.number)
            self._subscriptions.append(await self._bus.subscribe(subject, self._asked))
        self._tasks.append(asyncio.create_task(self._save_loop(), name=f"cursor-{self.actor}-{self.number}"))
        for topic in self.progress:
            self._tasks.append(asyncio.create_task(self._read_loop(topic), name=f"read-{self.actor}-{self.number}"))

    async def release(self, timeout_s: float) -> None:
        """Reads no more, waits for what runs, stores the cursor and hands the partition back."""
        deadline = self._loop.time() + timeout_s
        self._reading = False
        await self._close()
        self._remove_waiting()
        while self.inside and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        await self._mailbox.cancel(lambda envelope: envelope.partition is self)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)
        while self.owned:
            try:
                await self._save(hand_back=True)
                self.owned = False
            except StaleFence:
                self.owned = False
            except BrokerError as error:
                if self._loop.time() + _RETRY_S > deadline or not self._bus.is_up:
                    log.info("partition %d of %s not handed back: %s", self.number, self.actor, error)
                    self.owned = False
                await asyncio.sleep(_RETRY_S)
        self._tell_saved()

    async def abandon(self) -> None:
        """Ends a partition that could not start; its record stays."""
        self.owned = self._reading = False
        await self._close()

    def _lose(self) -> None:
        if not self.owned:
            return
        self.owned = self._reading = False
        log.warning("partition %d of actor %s was taken over by another host", self.number, self.actor)
        self._remove_waiting()
        self._tell_saved()
        for task in self._tasks:
            task.cancel()
        self._closing = asyncio.create_task(self._leave())  # kept: the loop holds tasks weakly
        self._on_lost(self)

    async def _leave(self) -> None:
        await self._mailbox.cancel(lambda envelope: envelope.partition is self)  # the new owner handles it again
        await self._close()

    async def _close(self) -> None:
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            await subscription.close()

    def _remove_waiting(self) -> None:
        self.inside -= len(self._mailbox.remove(lambda envelope: envelope.partition is self))

    # -- reading ------------------------------------------------------------------------------------------------

    def room_grew(self) -> None:
        """There may be room again for what could not be read."""
        if self._starved and self.inside <= self._share // 2:  # few large reads are cheaper than many small ones
            self._starved = False
            for event in self._pokes.values():
                event.set()

    def _live(self, topic: str) -> Callable[[Message], None]:
        progress, event = self.progress[topic], self._pokes[topic]

        def poke(message: Message) -> None:
            progress.wanted = max(progress.wanted, _sequence_of(message))
            event.set()
            if not self._is_fresh():
                self._touch()  # renew the right while the message is being read

        return poke

    async def _read_loop(self, topic: str) -> None:
        progress, event = self.progress[topic], self._pokes[topic]
        behind = 0.002
        while self._reading:
            event.clear()
            room = self._mailbox.reserve(self._wanted())
            taken, self._starved = 0, self._starved or room == 0
            try:
                if room > 0:
                    taken = await self._read(topic, room)
            except CallboardError as error:
                log.debug("reading %s: %s", topic, error)
                behind = min(behind * 2, 1.0)
            finally:
                self._mailbox.reserve(-room)
                if room > taken:
                    self._on_room()
            if taken:
                behind = 0.002
                continue
            lagging = room > 0 and progress.read < progress.wanted  # a replica that is late: ask again soon
            behind = min(behind * 2, 1.0) if lagging else 0.002
            try:
                async with asyncio.timeout(behind if lagging else _POLL_S * (0.5 + random.random())):
                    await event.wait()
            except TimeoutError:
                pass

    def _wanted(self) -> int:
        free = self._share - self.inside
        return min(_PAGE, free) if free > self._share // 2 or not self.inside else 0

    async def _read(self, topic: str, room: int) -> int:
        subjects, progress = self._bus.subjects, self.progress[topic]
        filter_ = subjects.topic_partition(topic, self.number)
        page, _ = await reads.page_after(self._bus, subjects.topics, filter_, progress.read, room)
        if not self._reading:
            return 0
        for stored in page:
            if progress.take(stored.sequence):
                token = stored.subject.rpartition(".")[2]
                self.inside += 1
                self._mailbox.put(token, Published(self, token, topic, stored))
        return len(page)

    def _asked(self, message: Message) -> None:
        if not message.reply or not self._reading:
            return
        if self._mailbox.is_full:
            answer_error(self._bus, message, MAILBOX_FULL)
            return
        token = message.subject.rpartition(".")[2]
        self.inside += 1
        self._mailbox.put(token, Asked(self, token, message))

    def left(self) -> None:
        """An envelope of this partition left the mailbox."""
        self.inside -= 1

    # -- the cursor ---------------------------------------------------------------------------------------------

    def _is_fresh(self) -> bool:
        return self._loop.time() - self._confirmed < self._lease_s / 2

    async def confirm(self) -> bool:
        """Whether this host owns the partition now, so that a message may be started; asks the broker if it must."""
        while self.owned and not self._is_fresh():
            self._touch()
            await asyncio.shield(self._saved)
        return self.owned

    def _touch(self) -> None:
        self._change += 1
        self._dirty.set()

    async def _stored(self) -> None:
        """Waits until what is true now stands in the record, or the partition is lost."""
        change = self._change
        while self.owned and self._stored_change < change:
            await asyncio.shield(self._saved)

    async def finish(self, topic: str, sequence: int) -> None:
        """A message is handled. Returns when the broker knows it too, so that of each key only the message in hand can
        ever be handled twice; other keys go on meanwhile, and their ends are stored by the same write."""
        self.progress[topic].finish(sequence)
        self._touch()
        await self._stored()

    def failed(self, topic: str, sequence: int, tries: int) -> None:
        """A delivery failed; the count outlives this host."""
        self.progress[topic].tries[sequence] = tries
        self._touch()

    @asynccontextmanager
    async def caution(self, topic: str, sequence: int) -> AsyncIterator[None]:
        """Around the handling of a message: announces it, while the partition is handled with caution."""
        if self._cautious <= 0:
            yield
            return
        async with self._caution:
            self._trying = (topic, sequence)
            self._touch()
            await self._stored()
            try:
                yield
            finally:
                self._trying = None
                self._cautious -= 1
                self._touch()

    async def _save_loop(self) -> None:
        while self.owned:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                await self._save(hand_back=False)
            except StaleFence:
                self._lose()
            except BrokerError as error:
                log.debug("cursor of %s/%d: %s", self.actor, self.number, error)
                self._dirty.set()
                await asyncio.sleep(_RETRY_S)

    async def _save(self, hand_back: bool) -> None:
        begun, change = self._loop.time(), self._change
        cursors: dict[str, TopicCursor] = {topic: progress.cursor() for topic, progress in self.progress.items()}
        cursors |= self._others  # of a newer or older version of the actor, which subscribes to more
        record = Ownership(owner="" if hand_back else self._owner, cursors=cursors, trying=self._trying)
        body = msgspec.json.encode(record)
        while True:
            try:
                self._sequence = await self._bus.write(self._subject, body, fence(self._sequence))
                break
            except StaleFence:
                self._sequence = await self._recognise()
        self._confirmed, self._stored_change = begun, change
        self._tell_saved()

    async def _recognise(self) -> int:
        """The sequence of a write of our own whose acknowledgement was lost; a host's id is never used twice.

        Raises StaleFence if another's write stands there."""
        stored = await reads.last_from_leader(self._bus, self._bus.subjects.actors, self._subject)
        if stored is not None and read_ownership(stored.data).owner == self._owner and stored.sequence > self._sequence:
            return stored.sequence
        raise StaleFence(f"partition {self.number} of actor {self.actor} has another owner", actor=self.actor)

    def _tell_saved(self) -> None:
        saved, self._saved = self._saved, self._loop.create_future()
        if not saved.done():
            saved.set_result(None)


def _sequence_of(message: Message) -> int:
    _, _, rest = (message.head or b"").partition(b"\r\nNats-Sequence: ")
    digits = rest.partition(b"\r")[0]
    return int(digits) if digits.isdigit() else 0
