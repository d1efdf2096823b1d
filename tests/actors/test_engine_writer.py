"""The pen of an attempt, against a real stream: in order, joined, fenced, and honest about what was not stored."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import Raw

from callboard.actors.engine.writer import Writer
from callboard.store.journal import entries
from callboard.store.log import EventLog
from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.errors import BrokerError, PayloadTooLarge, StaleFence, Unavailable, WriteInFlight
from callboard.topics.messages import NOTHING, Event, Payload, RunRecord, Status, Step
from callboard.topics.units import now
from tests.actors.company import eventually
from tests.support.storage import full

RUN = "pen"


def event(writer: Writer, size: int = 1) -> Event:
    n = writer.number()
    return Event(at=str(n), attempt=1, n=n, type="e", data=Payload(json=Raw(b'"' + b"x" * size + b'"')))


def step(writer: Writer) -> Step:
    n = writer.number()
    return Step(at=str(n), name="s", attempt=1, n=n)


class Pen:
    """A writer on a run of its own."""

    def __init__(self, bus: Bus) -> None:
        self.bus, self.log = bus, EventLog(bus)
        self.lost: list[BaseException] = []
        self.record = RunRecord(
            id=RUN, root=RUN, agent="a", status=Status.RUNNING, input=NOTHING, created_at=now(), updated_at=now()
        )

    async def writer(self, limit: int = 64_000) -> Writer:
        self.fence = await self.log.append_state(self.record, 0)
        return Writer(self.log, RUN, self.fence, limit, self.lost.append)

    async def stored(self) -> list[list[int]]:
        """The numbers of the entries, message by message."""
        found = []
        async for page in reads.read(self.bus, self.bus.subjects.events, self.bus.subjects.log(RUN)):
            found += [[one.n for one in entries(message)] for message in page if message.kind != "state"]
        return found


async def test_what_waits_is_joined_in_order_and_by_kind(bus: Bus) -> None:
    """One message per turn of the wire; a message has entries of one kind; the order is that of the calls."""
    pen = Pen(bus)
    writer = await pen.writer()
    for kind, count in (("custom", 3), ("step", 2), ("custom", 2)):
        for _ in range(count):
            writer.put(kind, step(writer) if kind == "step" else event(writer))
    await writer.flush()
    assert await pen.stored() == [[1], [2, 3], [4, 5], [6, 7]]


async def test_messages_stay_below_the_limit(bus: Bus) -> None:
    pen = Pen(bus)
    writer = await pen.writer(limit=10_000)
    for _ in range(10):
        writer.put("custom", event(writer, 3000))
    await writer.room()
    await writer.flush()
    assert [len(one) for one in await pen.stored()] == [1, 3, 3, 3]


async def test_lost_run_stops_the_pen_once(bus: Bus) -> None:
    """Everything that waits, and all that comes, is refused; it is said once."""
    pen = Pen(bus)
    writer = await pen.writer()
    await writer.put("step", step(writer))
    await pen.log.append_state(pen.record, pen.fence)
    late = [writer.put("step", step(writer)) for _ in range(5)]
    for one in late:
        with pytest.raises(StaleFence):
            await one
    with pytest.raises(StaleFence):
        await writer.put("step", step(writer))
    with pytest.raises(StaleFence):
        await writer.flush()
    assert len(pen.lost) == 1
    assert await pen.stored() == [[1]]


async def test_write_without_an_answer_is_repeated(bus: Bus) -> None:
    """Its entries keep their numbers, so that readers drop the copy; those behind it keep their order."""
    pen = Pen(bus)
    writer = await pen.writer()
    append, failures = pen.log.append, [Unavailable("no answer"), WriteInFlight("replicating")]

    def unreliable(*arguments: object) -> asyncio.Future[int]:
        real = append(*arguments)  # type: ignore[arg-type]
        if not failures:
            return real
        broken: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        broken.set_exception(failures.pop())
        return broken

    pen.log.append = unreliable  # type: ignore[method-assign, assignment]
    first = writer.put("step", step(writer))
    second = writer.put("step", step(writer))
    await asyncio.gather(first, second)
    assert await pen.stored() == [[1], [1], [1], [2]]


async def test_event_that_was_not_stored_is_told_by_the_flush(bus: Bus) -> None:
    """Nobody awaits an event; the run must not complete as if it were out. The pen goes on."""
    pen = Pen(bus)
    writer = await pen.writer()
    append = pen.log.append

    def refusing(*arguments: object) -> asyncio.Future[int]:
        pen.log.append = append  # type: ignore[method-assign]
        broken: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        broken.set_exception(BrokerError("refused"))
        return broken

    pen.log.append = refusing  # type: ignore[method-assign, assignment]
    writer.put("custom", event(writer))
    await writer.put("step", step(writer))
    with pytest.raises(BrokerError, match="refused"):
        await writer.flush()
    assert await pen.stored() == [[2]]


async def test_entries_wait_for_room_in_their_order(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    """A full log is no reason to do again what is done: the entries are written once there is room."""
    pen = Pen(bus)
    writer = await pen.writer()
    async with full(bus, bus.subjects.events):
        writes = [writer.put("step", step(writer)) for _ in range(3)]
        await eventually(lambda: "has no room" in caplog.text)
        assert not any(one.done() for one in writes)
    await asyncio.gather(*writes)
    await writer.flush()
    assert [n for group in await pen.stored() for n in group] == [1, 2, 3]


async def test_entry_above_the_servers_limit_is_refused_alone(bus: Bus) -> None:
    pen = Pen(bus)
    writer = await pen.writer()
    large = writer.put("custom", event(writer, bus.max_payload))
    await writer.put("step", step(writer))
    with pytest.raises(PayloadTooLarge):
        await large
    assert await pen.stored() == [[2]]


async def test_closed_pen_writes_nothing(bus: Bus) -> None:
    pen = Pen(bus)
    writer = await pen.writer()
    writer.close(BrokerError("over"))
    with pytest.raises(BrokerError, match="over"):
        await writer.put("step", step(writer))
    assert await pen.stored() == []
