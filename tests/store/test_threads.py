"""Threads: a record and a history."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from callboard.store.threads import Threads
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import Conflict, InvalidMessage, InvalidSubject, NotFound
from callboard.topics.messages import Payload, ThreadMessage


def message(text: str) -> ThreadMessage:
    return ThreadMessage(role="user", content=Payload(json=msgspec.Raw(msgspec.json.encode(text))))


async def test_a_thread_is_created_once(bus: Bus) -> None:
    threads = Threads(bus)
    record = await threads.create(metadata={"owner": "x", "tags": ("a", "b")})
    assert record.id
    assert (await threads.get(record.id)).metadata == {"owner": "x", "tags": ["a", "b"]}
    again = await threads.create(record.id, {"owner": "x", "tags": ("a", "b")})
    assert (again.id, again.created_at) == (record.id, record.created_at)
    with pytest.raises(Conflict, match=record.id):
        await threads.create(record.id, {"owner": "y"})
    with pytest.raises(Conflict):
        await threads.create(record.id)
    assert (await threads.create("named")).id == "named"
    assert (await threads.create("named", {})).id == "named"


async def test_of_many_that_create_the_same_thread_one_wins(bus: Bus, settings: BrokerSettings) -> None:
    other = await Bus.connect(settings)
    try:
        made = await asyncio.gather(
            *(Threads(each).create("t", {"n": n}) for n in range(10) for each in (bus, other)), return_exceptions=True
        )
    finally:
        await other.close()
    known = await Threads(bus).get("t")
    for n, result in enumerate(made):
        if {"n": n // 2} == known.metadata:
            assert result == known
        else:
            assert isinstance(result, Conflict)


async def test_an_unknown_thread_and_an_impossible_id(bus: Bus) -> None:
    threads = Threads(bus)
    with pytest.raises(NotFound, match="nobody"):
        await threads.get("nobody")
    for wrong in ("a.b", "*", "a b", "x" * 200):
        with pytest.raises(InvalidSubject):
            await threads.create(wrong)
    assert await threads.messages("nobody") == []


async def test_messages_come_in_the_order_of_the_broker_page_by_page(bus: Bus) -> None:
    threads = Threads(bus)
    sequences = [await threads.append("t", message(str(n))) for n in range(25)]
    await threads.append("u", message("another thread"))
    first = await threads.messages("t", limit=10)
    rest = await threads.messages("t", after=first[-1].sequence)
    assert [posted.sequence for posted in first + rest] == sequences
    assert [posted.message for posted in first + rest] == [message(str(n)) for n in range(25)]


async def test_garbage_in_the_history_is_passed_over_and_in_the_record_told(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    threads = Threads(bus)
    await threads.append("t", message("1"))
    for data in (b"", b"\xff", b"{}", b"[]"):
        await bus.write(f"{bus.subjects.thread}.t.message", data)
    await threads.append("t", message("2"))
    assert [posted.message for posted in await threads.messages("t", limit=2)] == [message("1"), message("2")]
    assert "is not a thread's message" in caplog.text
    await bus.write(f"{bus.subjects.thread}.t.record", b"\xff")
    with pytest.raises(InvalidMessage, match="thread t"):
        await threads.get("t")
