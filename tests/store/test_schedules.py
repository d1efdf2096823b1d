"""Definitions of schedules and their timers, on a real server and without a coordinator."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from callboard.store.blobs import Blobs
from callboard.store.log import EventLog
from callboard.store.schedules import AHEAD_S, Schedules
from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import Conflict, InvalidInput, InvalidMessage, NotFound
from callboard.topics.ids import new_token
from callboard.topics.messages import Payload, RunRecord, Status, encode
from callboard.topics.schedules import due_after, due_by
from callboard.topics.streams import ensure_streams


@pytest.fixture
def schedules(bus: Bus) -> Schedules:
    return Schedules(bus)


async def timers(bus: Bus, name: str) -> list[reads.Stored]:
    pattern = bus.subjects.schedule_timer(name)
    return [one async for page in reads.read(bus, bus.subjects.inbox, pattern) for one in page]


async def test_a_definition_is_read_as_it_was_given(bus: Bus, schedules: Schedules) -> None:
    before = await schedules.now()
    stored = await schedules.put(
        "nightly", b'{"deep": true}', cron="0 30 2 * * *", zone="Europe/Berlin", topic="audits", thread="th",
        metadata={"team": "x"}, missed="skip",
    )  # fmt: skip
    assert await schedules.get("nightly") == stored
    assert await schedules.all() == [stored]
    assert stored.since == stored.created_at >= before
    assert bytes(stored.input.json) == b'{"deep": true}'  # type: ignore[arg-type]
    outlook = await schedules.outlook(stored)
    assert outlook.next == due_after(stored, before)
    assert outlook.last is None
    assert [one.subject.rpartition(".")[2] for one in await timers(bus, "nightly")] == [
        str(int(outlook.next.timestamp() * 1000))  # type: ignore[union-attr]
    ]


async def test_a_definition_outlives_the_retention(settings: BrokerSettings) -> None:
    short = settings.model_copy(update={"namespace": f"r{new_token(8)}", "retention_days": 1 / 86_400})
    bus = await Bus.connect(short)
    try:
        await ensure_streams(bus, short)
        await bus.store(f"{bus.subjects.thread}.t.message", b"{}")
        stored = await Schedules(bus).put("s", every_s=3600, agent="a")
        await asyncio.sleep(2.5)
        assert await reads.last(bus, bus.subjects.events, f"{bus.subjects.thread}.t.message") is None
        assert await Schedules(bus).get("s") == stored
    finally:
        await bus.close()


async def test_short_intervals_have_their_timers_ahead(bus: Bus, schedules: Schedules) -> None:
    await schedules.put("fast", every_s=1, agent="a")
    found = await timers(bus, "fast")
    assert AHEAD_S - 2 <= len(found) <= AHEAD_S
    schedule = await schedules.get("fast")
    await schedules.arm(schedule, schedule.since)  # again: nothing is doubled
    assert len(await timers(bus, "fast")) <= AHEAD_S


async def test_a_large_input_lies_in_the_object_store(bus: Bus, schedules: Schedules) -> None:
    value = encode("x" * 200_000)
    stored = await schedules.put("large", value, every_s=3600, agent="a")
    assert stored.input.ref is not None
    assert await Blobs(bus).value((await schedules.get("large")).input) == value


async def test_a_name_is_taken_once_unless_replaced(bus: Bus, schedules: Schedules) -> None:
    first = await schedules.put("s", every_s=3600, agent="a", overwrite=False)
    with pytest.raises(Conflict, match="already"):
        await schedules.put("s", every_s=1800, agent="a", overwrite=False)
    second = await schedules.put("s", every_s=1800, agent="b")
    assert second.token != first.token
    assert (await schedules.get("s")).agent == "b"
    assert len(await timers(bus, "s")) == 1


async def test_of_writers_at_the_same_time_one_wins_and_the_others_are_told(bus: Bus, schedules: Schedules) -> None:
    results = await asyncio.gather(
        *(schedules.put("race", every_s=3600 + n, agent="a", overwrite=False) for n in range(10)),
        return_exceptions=True,
    )
    won = [one for one in results if not isinstance(one, BaseException)]
    assert won == [await schedules.get("race")]
    assert all(isinstance(one, Conflict) for one in results if isinstance(one, BaseException))


async def test_pause_and_resume(bus: Bus, schedules: Schedules) -> None:
    await schedules.put("p", every_s=3600, agent="a")
    paused = await schedules.pause("p")
    assert paused.paused
    assert await timers(bus, "p") == []
    assert (await schedules.outlook(paused)).next is None
    assert await schedules.pause("p") == paused
    resumed = await schedules.resume("p")
    assert not resumed.paused
    assert resumed.since > paused.since
    assert resumed.created_at == paused.created_at
    assert len(await timers(bus, "p")) == 1
    assert await schedules.resume("p") == resumed
    assert await schedules.armed() == {"p"}


async def test_removed_nothing_is_left(bus: Bus, schedules: Schedules) -> None:
    await schedules.put("a", every_s=1, agent="a")
    await schedules.put("b", every_s=3600, agent="a", paused=True)
    await schedules.remove("a")
    assert [one.name for one in await schedules.all()] == ["b"]
    assert await schedules.armed() == set()
    for action in (schedules.get, schedules.pause, schedules.resume, schedules.remove):
        with pytest.raises(NotFound, match="no schedule"):
            await action("a")


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({}, "exactly one of"),
        ({"every_s": 5, "cron": "@daily"}, "exactly one of"),
        ({"every_s": 0.5}, "1 second"),
        ({"every_s": float("nan")}, "1 second"),
        ({"every_s": 1e12}, "1 second"),
        ({"cron": "0 9 * * *"}, "5 fields"),
        ({"cron": "0 0 0 31 2 *"}, "never"),
        ({"cron": "@daily", "zone": "Mars/Base"}, "time zone"),
        ({"at": datetime(2020, 1, 1, tzinfo=UTC)}, "past"),
        ({"at": datetime(1, 1, 1, tzinfo=UTC)}, "past"),
        ({"at": datetime(9999, 12, 31, 23, 59, tzinfo=UTC)}, "calendar"),
        ({"at": datetime(2262, 1, 1, tzinfo=UTC)}, "calendar"),
        ({"at": datetime(2099, 1, 1)}, "time zone"),  # noqa: DTZ001  # that it has no zone is the case
        ({"every_s": 5, "topic": "t"}, "exactly one of the two"),
        ({"every_s": 5, "agent": None}, "exactly one of the two"),
        ({"every_s": 5, "agent": "a.b"}, "agent"),
        ({"every_s": 5, "thread": "a b"}, "thread"),
        ({"every_s": 5, "metadata": {"x": "y" * 40_000}}, "metadata"),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_is_stored(
    schedules: Schedules, wrong: dict[str, Any], word: str
) -> None:
    with pytest.raises(InvalidInput, match=word):
        await schedules.put("wrong", **({"agent": "a"} | wrong))
    assert await schedules.all() == []
    assert await schedules.armed() == set()


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a@b", ">", "x" * 65])
async def test_a_name_is_one_token(schedules: Schedules, name: str) -> None:
    with pytest.raises(InvalidInput):
        await schedules.put(name, every_s=60, agent="a")


async def test_what_is_no_definition_is_left_out_and_can_be_removed(bus: Bus, schedules: Schedules) -> None:
    await schedules.put("good", every_s=3600, agent="a")
    for name, body in (("bad", b"{"), ("other", encode(await schedules.get("good")))):
        await bus.store(bus.subjects.schedule(name), body)
    assert [one.name for one in await schedules.all()] == ["good"]
    with pytest.raises(InvalidMessage, match="cannot be read"):
        await schedules.get("bad")
    await schedules.remove("bad")
    with pytest.raises(NotFound):
        await schedules.get("bad")


async def test_the_last_run_is_found(bus: Bus, schedules: Schedules) -> None:
    schedule = await schedules.put("s", every_s=1, agent="a")
    await asyncio.sleep(2.2)
    due = due_by(schedule, await schedules.now() - timedelta(seconds=1))
    assert due is not None
    record = RunRecord(
        id=schedule.run_at(due), root=schedule.run_at(due), agent="a", status=Status.QUEUED, input=Payload(),
        created_at=due, updated_at=due,
    )  # fmt: skip
    await EventLog(bus).append_state(record, 0)
    last = (await schedules.outlook(await schedules.pause("s"))).last
    assert last is not None
    assert last.id == record.id
