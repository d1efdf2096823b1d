"""Reads of streams without consumers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.client import Message, head_bytes
from callboard.topics.errors import NoResponders, Unavailable


async def fill(bus: Bus, subjects: list[str], data: bytes = b"x") -> list[int]:
    writes = [bus.write(subject, data) for subject in subjects]
    return [await write for write in writes]


async def collect(bus: Bus, subject: str, after: int = 0, batch: int = 500) -> list[reads.Stored]:
    return [one async for page in reads.read(bus, bus.subjects.events, subject, after, batch) for one in page]


async def test_what_is_read_is_what_was_written(bus: Bus) -> None:
    subject = bus.subjects.event("r", "step")
    sequence = await bus.write(subject, b"\x00\xff", head_bytes({"traceparent": "00-x", "Nats-Subject-Not": "1"}))
    for stored in (
        await reads.last(bus, bus.subjects.events, subject),
        await reads.by_sequence(bus, bus.subjects.events, sequence),
        (await collect(bus, bus.subjects.log("r")))[0],
        (await reads.many_last(bus, bus.subjects.events, [subject]))[subject],
    ):
        assert stored is not None
        assert (stored.subject, stored.sequence, stored.data, stored.kind) == (subject, sequence, b"\x00\xff", "step")
        assert stored.headers["traceparent"] == "00-x"
        assert abs(datetime.now(UTC) - stored.time) < timedelta(seconds=5)


async def test_the_leader_is_asked_through_the_api_where_there_are_replicas(bus: Bus) -> None:
    subject = bus.subjects.event("r", "step")
    sequence = await bus.write(subject, b"\x00\xff", head_bytes({"A": "b"}))
    bus.replicas = 3
    stored = await reads.last_from_leader(bus, bus.subjects.events, subject)
    assert stored is not None
    assert (stored.subject, stored.sequence, stored.data, stored.headers) == (
        subject,
        sequence,
        b"\x00\xff",
        {"A": "b"},
    )
    assert abs(datetime.now(UTC) - stored.time) < timedelta(seconds=5)
    assert await reads.last_from_leader(bus, bus.subjects.events, bus.subjects.state("none")) is None


async def test_what_is_not_there_is_none(bus: Bus) -> None:
    stream = bus.subjects.events
    assert await reads.last(bus, stream, bus.subjects.state("none")) is None
    assert await reads.by_sequence(bus, stream, 99) is None
    assert await reads.many_last(bus, stream, [bus.subjects.state("none")]) == {}
    assert await reads.many_last(bus, stream, []) == {}
    assert await collect(bus, bus.subjects.log("none")) == []


@pytest.mark.parametrize("number", [-1, 0, reads.MAX_SEQUENCE, 2**63, 2**64, 10**30])
async def test_a_number_that_no_message_has_names_nothing(bus: Bus, number: int) -> None:
    stream = bus.subjects.events
    await bus.write(bus.subjects.event("r", "step"), b"1")
    assert await reads.by_sequence(bus, stream, number) is None
    assert await reads.leader_by_sequence(bus, stream, number) is None
    page, follow = await reads.page_after(bus, stream, bus.subjects.log("r"), number)
    assert (len(page), follow) == (1 if number <= 0 else 0, 0)


async def test_a_stream_that_is_not_there_is_an_error(bus: Bus) -> None:
    with pytest.raises((NoResponders, Unavailable)):
        await reads.last(bus, "NOT_THERE", "x")
    with pytest.raises((NoResponders, Unavailable)):
        await reads.many_last(bus, "NOT_THERE", ["x"])
    with pytest.raises((NoResponders, Unavailable)):
        await reads.page_after(bus, "NOT_THERE", "x", 0)


@pytest.mark.parametrize("batch", [1, 7, 100, 1000])
async def test_a_history_comes_whole_in_order_and_once(bus: Bus, batch: int) -> None:
    """With the messages of other runs in between, and from any place on."""
    subjects = [bus.subjects.event(run, "step") for _ in range(50) for run in ("a", "b", "a~0")]
    sequences = await fill(bus, subjects)
    mine = sequences[::3]
    assert [one.sequence for one in await collect(bus, bus.subjects.log("a"), batch=batch)] == mine
    assert [one.sequence for one in await collect(bus, bus.subjects.log("a"), after=mine[30], batch=batch)] == mine[31:]
    tree = await collect(bus, bus.subjects.tree("a"), batch=batch)
    assert [one.sequence for one in tree] == sorted(sequences[::3] + sequences[2::3])


async def test_a_page_says_how_many_follow(bus: Bus) -> None:
    subject = bus.subjects.event("r", "step")
    await fill(bus, [subject] * 10)
    page, pending = await reads.page_after(bus, bus.subjects.events, subject, 0, 4)
    assert (len(page), pending) == (4, 6)
    page, pending = await reads.page_after(bus, bus.subjects.events, subject, page[-1].sequence, 100)
    assert (len(page), pending) == (6, 0)


async def test_large_messages_come_in_bounded_batches(bus: Bus) -> None:
    subject = bus.subjects.event("r", "step")
    await fill(bus, [subject] * 20, b"x" * 900_000)
    pages = [page async for page in reads.read(bus, bus.subjects.events, subject)]
    assert sum(len(page) for page in pages) == 20
    assert max(sum(len(one.data) for one in page) for page in pages) <= 6_000_000


async def test_the_last_of_many_also_when_they_are_large(bus: Bus) -> None:
    subjects = [bus.subjects.state(f"r{n}") for n in range(12)]
    await fill(bus, subjects, b"old")
    sequences = await fill(bus, subjects, b"y" * 900_000)
    found = await reads.many_last(bus, bus.subjects.events, [*subjects, bus.subjects.state("none")])
    assert {one.subject: one.sequence for one in found.values()} == dict(zip(subjects, sequences, strict=True))


async def test_the_last_of_more_than_one_request_names(bus: Bus) -> None:
    subjects = [bus.subjects.state(f"r{n}") for n in range(1300)]
    await fill(bus, subjects)
    assert set(await reads.many_last(bus, bus.subjects.events, subjects)) == set(subjects)


async def test_the_last_below_a_wildcard_of_any_number(bus: Bus) -> None:
    subjects = [f"{bus.subjects.run}.root.root~{n}.state" for n in range(1100)]
    await fill(bus, subjects)
    newest = (await fill(bus, subjects[:1], b"new"))[0]
    for few in (["root~5.state"], [f"root~{n}.state" for n in range(1000)]):
        wanted = [f"{bus.subjects.run}.root.{one}" for one in few]
        assert set(await reads.many_last(bus, bus.subjects.events, wanted)) == set(wanted)
    found = await reads.many_last(bus, bus.subjects.events, [f"{bus.subjects.run}.root.*.state"])
    assert len(found) == 1100
    assert found[subjects[0]].sequence == newest


async def test_a_stored_message_that_looks_like_a_notice_of_the_broker_is_read(bus: Bus) -> None:
    """A publisher may store any status line and any of the broker's header names."""
    subject = bus.subjects.event("r", "step")
    heads = [
        b"NATS/1.0 404 Not Found\r\n\r\n",
        b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n",
        b"NATS/1.0 408 Bad\r\n\r\n",
        b"NATS/1.0 xyz\r\n\r\n",
        b"NATS/1.0\r\nNats-Sequence: 7000\r\nNats-Subject: elsewhere\r\nNats-Time-Stamp: never\r\n\r\n",
    ]
    sequences = [await bus.write(subject, b"d", head) for head in heads]
    found = await collect(bus, bus.subjects.log("r"))
    assert [(one.sequence, one.subject) for one in found] == [(sequence, subject) for sequence in sequences]
    assert all(one.time.year > 2000 for one in found)
    for sequence in sequences:
        stored = await reads.by_sequence(bus, bus.subjects.events, sequence)
        assert stored is not None
        assert (stored.sequence, stored.data) == (sequence, b"d")


async def test_a_subject_that_is_not_utf_8_does_not_stop_a_read(bus: Bus) -> None:
    prefix = bus.subjects.log("r")[:-1].encode()
    bus.client._pending.append(b"PUB %b\xff\xfe 1\r\nx\r\n" % prefix)
    sequence = await bus.write(bus.subjects.event("r", "step"), b"y")
    found = await collect(bus, bus.subjects.log("r"))
    assert [one.data for one in found] == [b"x", b"y"]
    assert found[1].sequence == sequence


def test_a_live_message_with_garbage_for_headers_is_stored_nowhere() -> None:
    for head in (None, b"NATS/1.0\r\nNats-Sequence: -5\r\n\r\n", b"NATS/1.0\r\nNats-Sequence: \xc2\xb2\r\n\r\n"):
        assert reads.Stored.of(Message("s", "", b"", head)).sequence == 0
