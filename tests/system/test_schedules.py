"""Schedules and delayed runs on a real server and two coordinators: a due time gives one run, whatever is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from callboard import agent
from callboard.actors.coordinator import fires
from callboard.actors.engine import Context
from callboard.runtime.nats_server import ServerProcess
from callboard.store import schedules as timers
from callboard.store.log import decode_record
from callboard.store.schedules import Schedules
from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.client import head_bytes
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import IdempotencyConflict, InvalidInput, Unavailable
from callboard.topics.messages import RunRecord, Status, TaskRequest, encode
from callboard.topics.pull import Delivery
from callboard.topics.schedules import Fire, Schedule, due_after
from callboard.topics.subjects import Subjects
from tests.actors.company import Company, company, eventually
from tests.support.invariants import check


@agent("ticker", topics=["ticks"])
async def ticker(ctx: Context, value: Any) -> Any:
    """Gives its input back."""
    return value


@pytest.fixture
async def crew(settings: BrokerSettings, bus: Bus) -> AsyncIterator[Company]:
    async with company(settings, bus, [ticker], coordinators=2) as found:
        yield found


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fires, "WATCH_S", 0.5)


@pytest.fixture
def schedules(bus: Bus) -> Schedules:
    return Schedules(bus)


async def runs_of(bus: Bus, name: str) -> list[RunRecord]:
    """The runs that a schedule gave, in the order of their due times; fails when a due time has two."""
    found: dict[str, RunRecord] = {}
    async for page in reads.read(bus, bus.subjects.events, f"{bus.subjects.run}.*.*.state"):
        for one in page:
            record = decode_record(one.data)
            if (record.metadata or {}).get("schedule") == name:
                found[record.id] = record
    dues = sorted(found.values(), key=due_of)
    assert len({due_of(one) for one in dues}) == len(dues), dues
    return dues


def due_of(record: RunRecord) -> datetime:
    assert record.metadata is not None
    return datetime.fromisoformat(record.metadata["scheduled_for"])


async def has_runs(bus: Bus, name: str, count: int, within_s: float = 15.0) -> list[RunRecord]:
    found: list[RunRecord] = []

    async def there() -> bool:
        with suppress(Unavailable):  # the server that was killed may have been the test's own
            found[:] = await runs_of(bus, name)
        return len(found) >= count

    await eventually(there, within_s, lambda: f"{count} runs of {name}, not {len(found)}")
    return found


def each_second(records: list[RunRecord]) -> None:
    dues = [due_of(one) for one in records]
    assert dues == [dues[0] + timedelta(seconds=n) for n in range(len(dues))]


# -- firing ---------------------------------------------------------------------------------------------------------


async def test_each_due_time_gives_one_run_with_two_coordinators(crew: Company, schedules: Schedules) -> None:
    await schedules.put("each", b'{"n": 1}', every_s=1, agent="ticker", thread="th", metadata={"who": "me"})
    await schedules.put("cron", b"[2]", cron="* * * * * *", topic="ticks")
    for name, value in (("each", b'{"n":1}'), ("cron", b"[2]")):
        records = await has_runs(crew.bus, name, 4)
        each_second(records)
        ended = await crew.ended(records[0].id)
        assert ended.status is Status.COMPLETED
        assert bytes(ended.result.json).replace(b" ", b"") == value  # type: ignore[union-attr, arg-type]
    first = (await runs_of(crew.bus, "each"))[0]
    assert (first.agent, first.thread, first.metadata) == (
        "ticker",
        "th",
        {"who": "me", "schedule": "each", "scheduled_for": due_of(first).isoformat(timespec="milliseconds")},
    )
    assert (await runs_of(crew.bus, "cron"))[0].topic == "ticks"
    for name in ("each", "cron"):
        await schedules.remove(name)
    await check(crew.bus)


async def test_the_clocks_of_the_coordinators_do_not_matter(
    crew: Company, schedules: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process's clock is an hour ahead and goes back and forth; due times are the broker's."""
    real, turns = datetime.now, iter(range(10**9))
    monkeypatch.setattr("callboard.topics.units.now", lambda: real(UTC) + timedelta(hours=1 if next(turns) % 2 else -1))
    before = real(UTC)
    await schedules.put("skewed", every_s=1, agent="ticker")
    records = await has_runs(crew.bus, "skewed", 4)
    each_second(records)
    assert before < due_of(records[0]) < before + timedelta(seconds=3)


async def test_a_fire_delivered_twice_gives_no_second_run(crew: Company, schedules: Schedules) -> None:
    await schedules.put("once", at=datetime.now(UTC) + timedelta(seconds=0.6), agent="ticker")
    schedule = await schedules.get("once")
    (record,) = await has_runs(crew.bus, "once", 1)
    assert record.id == schedule.run_at(due_of(record))
    assert schedule.at is not None
    for _ in range(3):
        await schedules.arm_at(schedule, schedule.at)
        await asyncio.sleep(0.3)
    assert [one.id for one in await runs_of(crew.bus, "once")] == [record.id]
    assert due_after(schedule, await schedules.now()) is None


# -- changes --------------------------------------------------------------------------------------------------------


async def test_paused_it_fires_no_more_and_resumed_it_makes_nothing_up(crew: Company, schedules: Schedules) -> None:
    await schedules.put("p", every_s=1, agent="ticker")
    await has_runs(crew.bus, "p", 2)
    assert (await schedules.pause("p")).paused
    await asyncio.sleep(0.5)  # what was in flight
    count = len(await runs_of(crew.bus, "p"))
    await asyncio.sleep(2.5)
    assert len(await runs_of(crew.bus, "p")) == count
    assert "p" not in await schedules.armed()
    resumed = await schedules.resume("p")
    records = await has_runs(crew.bus, "p", count + 2)
    assert due_of(records[count]) > resumed.since
    assert due_of(records[count]) - due_of(records[count - 1]) >= timedelta(seconds=3)


async def test_replaced_only_the_new_one_fires(crew: Company, schedules: Schedules) -> None:
    await schedules.put("r", b'"old"', every_s=1, agent="ticker")
    await has_runs(crew.bus, "r", 2)
    new = await schedules.put("r", b'"new"', every_s=1, agent="ticker")
    await has_runs(crew.bus, "r", 5)
    for record in await runs_of(crew.bus, "r"):
        value = msgspec.json.decode(record.input.json)  # type: ignore[arg-type]
        assert (value == "new") == (due_of(record) > new.since)


async def test_removed_it_is_gone_with_its_timers(crew: Company, schedules: Schedules) -> None:
    await schedules.put("gone", every_s=1, agent="ticker")
    await has_runs(crew.bus, "gone", 1)
    await schedules.remove("gone")
    await asyncio.sleep(0.5)
    count = len(await runs_of(crew.bus, "gone"))
    await asyncio.sleep(2.2)
    assert len(await runs_of(crew.bus, "gone")) == count
    assert await schedules.all() == []
    assert "gone" not in await schedules.armed()


async def test_a_large_input_goes_by_reference(crew: Company, schedules: Schedules) -> None:
    value = encode({"text": "x" * 100_000})
    stored = await schedules.put("large", value, every_s=1, agent="ticker")
    assert stored.input.ref is not None
    (record, *_) = await has_runs(crew.bus, "large", 1)
    assert record.input.ref == stored.input.ref
    assert (await crew.ended(record.id)).status is Status.COMPLETED


async def test_garbage_where_fires_come_in_is_set_aside(crew: Company) -> None:
    subject = crew.bus.subjects.fires
    dotted = b'{"name":"a.b","token":"","due":"2026-01-01T00:00:00Z"}'
    zoneless = b'{"name":"x","token":"","due":"2026-01-01T00:00:00"}'
    for body in (b"", b"{}", b"\xff", dotted, zoneless):
        await crew.bus.store(subject, body)
    await crew.bus.store(subject, b'{"name":"nobody","token":"","due":"2026-01-01T00:00:00Z"}')  # removed meanwhile

    async def aside() -> bool:
        info = await crew.bus.api(f"STREAM.INFO.{crew.bus.subjects.dead}")
        return info is not None and info["state"]["messages"] == 5

    await eventually(aside)
    await eventually(lambda: _empty(crew))


async def _empty(crew: Company) -> bool:
    return await crew.waiting_messages(crew.bus.subjects.inbox) == 0


# -- faults ---------------------------------------------------------------------------------------------------------


async def test_a_killed_server_delays_fires_and_loses_none(
    crew: Company, schedules: Schedules, nats: ServerProcess
) -> None:
    await schedules.put("k", every_s=1, agent="ticker")
    await has_runs(crew.bus, "k", 2)
    nats.kill()
    await asyncio.sleep(3.5)
    nats.start()
    await crew.bus.connected()
    records = await has_runs(crew.bus, "k", 8, 30)
    each_second(records)
    await schedules.remove("k")
    await check(crew.bus)


async def test_a_killed_coordinator_leaves_no_gap(crew: Company, schedules: Schedules) -> None:
    await schedules.put("c", every_s=1, agent="ticker")
    await has_runs(crew.bus, "c", 2)
    await crew.members[0].kill()
    crew.members.pop(0)
    records = await has_runs(crew.bus, "c", 7, 45)
    each_second(records[:5])


@pytest.mark.parametrize("missed", ["once", pytest.param("skip", marks=pytest.mark.proof)])
async def test_fires_that_wait_for_a_coordinator_fire_once_and_the_schedule_goes_on_from_now(
    settings: BrokerSettings, bus: Bus, schedules: Schedules, missed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is handled late must not arm again what has fired meanwhile: a backlog would feed on itself."""
    monkeypatch.setattr(fires, "LATE_S", 1.5)
    monkeypatch.setattr(timers, "AHEAD_S", 2.0)
    fired: dict[datetime, set[int]] = {}
    handle = fires.Fires.fire

    async def counted(self: fires.Fires, delivery: Delivery) -> None:
        fired.setdefault(msgspec.json.decode(delivery.data, type=Fire).due, set()).add(delivery.sequence)
        await handle(self, delivery)

    monkeypatch.setattr(fires.Fires, "fire", counted)
    schedule = await schedules.put("b", every_s=1, agent="ticker", missed=missed)
    await asyncio.sleep(6.2)  # three due times have timers; nobody is there when they fire
    async with company(settings, bus, [ticker], coordinators=2) as crew:
        back = await schedules.now()
        records = await has_runs(bus, "b", 7)
        await schedules.remove("b")
        slots = [round((due_of(one) - schedule.created_at).total_seconds()) for one in records]
        gap = [slot for slot in range(1, 7) if slot not in slots]
        assert slots[:3] == [1, 2, 3]
        assert gap in ([4], [4, 5]), slots  # missed; the one or two before it are late
        assert slots[3:] == list(range(gap[-1] + 1, slots[-1] + 1))
        in_time = [len(fired[due]) for due in sorted(fired) if due < back - timedelta(seconds=2)]
        assert in_time == [1, 1, 1]
        await check(crew.bus)


@pytest.mark.parametrize("missed", ["once", "skip"])
async def test_what_was_missed_follows_the_policy(
    crew: Company, schedules: Schedules, nats: ServerProcess, missed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Due times pass while no server is up, by more than what counts as late."""

    def expected(seconds: float) -> list[int]:
        """The first due times that have a run, if a coordinator is back so long after the start."""
        last = int((seconds - fires.LATE_S) // 2)  # that was missed
        return [1, last, last + 1] if missed == "once" else [1, last + 1, last + 2]

    monkeypatch.setattr(fires, "LATE_S", 0.8)
    start = await schedules.now()
    # Fires every 2 s; the one at 4 s and the one at 6 s are missed.
    schedule = await schedules.put("m", every_s=2, agent="ticker", missed=missed)
    await has_runs(crew.bus, "m", 1)
    nats.kill()
    await asyncio.sleep(max(0.0, (start + timedelta(seconds=7) - datetime.now(UTC)).total_seconds()))
    nats.start()
    await crew.bus.connected()
    up = (datetime.now(UTC) - start).total_seconds()
    records = await has_runs(crew.bus, "m", 4 if missed == "once" else 3, 30)
    slots = [round((due_of(one) - schedule.created_at).total_seconds() / 2) for one in records]
    assert slots[:3] in (expected(up), expected(up + 1)), up


async def test_a_schedule_without_timers_is_armed_again(
    watch: None, settings: BrokerSettings, bus: Bus, schedules: Schedules
) -> None:
    """As after a crash between the definition and its timers."""
    await schedules.put("mended", every_s=1, agent="ticker")
    await bus.api(f"STREAM.PURGE.{bus.subjects.inbox}", {"filter": bus.subjects.schedule_timer("mended")})
    async with company(settings, bus, [ticker]):
        each_second(await has_runs(bus, "mended", 3))


# -- run_at ---------------------------------------------------------------------------------------------------------


async def test_a_delayed_run_is_there_at_once_and_begins_in_time(crew: Company) -> None:
    moment = datetime.now(UTC) + timedelta(seconds=1.5)
    run = await crew.submit("ticker", 1, run_at=moment)
    record = await crew.record(run)
    assert (record.status, record.wake_at) == (Status.QUEUED, moment)
    assert record.reason is not None
    assert record.reason.startswith("begins at ")
    ended = await crew.ended(run)
    assert ended.status is Status.COMPLETED
    assert ended.started_at is not None
    assert moment <= ended.started_at < moment + timedelta(seconds=2)
    await check(crew.bus, [run])


async def test_seconds_count_from_when_it_was_taken(crew: Company) -> None:
    before = datetime.now(UTC)
    record = await crew.record(await crew.submit("ticker", 1, run_at=60))
    assert record.wake_at is not None
    assert timedelta(seconds=60) <= record.wake_at - before < timedelta(seconds=65)


async def test_a_delayed_run_can_be_cancelled_before_it_begins(crew: Company) -> None:
    run = await crew.submit("ticker", 1, run_at=1.0)
    await crew.submitter.command(run, "cancel")
    assert (await crew.ended(run)).status is Status.CANCELED
    await asyncio.sleep(1.5)
    assert (await crew.record(run)).attempt == 0


async def test_a_time_that_has_passed_delays_nothing(crew: Company) -> None:
    record = await crew.run("ticker", 1, run_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert record.status is Status.COMPLETED


async def test_a_delay_outlives_a_killed_server(crew: Company, nats: ServerProcess) -> None:
    run = await crew.submit("ticker", 1, run_at=1.5)
    nats.kill()
    await asyncio.sleep(2.5)
    nats.start()
    await crew.bus.connected()
    assert (await crew.ended(run, 30)).status is Status.COMPLETED


async def test_a_delayed_task_of_any_client(crew: Company) -> None:
    subject = f"{crew.bus.subjects.task}.ticks"
    head = {"Callboard-Run": "delayed-1", "Callboard-Run-At": "1.2"}
    await crew.bus.store(subject, b"1", head_bytes(head))
    await eventually(lambda: _waits(crew, "delayed-1"))
    assert (await crew.ended("delayed-1")).status is Status.COMPLETED
    await crew.submitter.publish("ticks", b"2", run="delayed-2", run_at=datetime.now(UTC) + timedelta(seconds=60))
    await eventually(lambda: _waits(crew, "delayed-2"))
    await crew.submitter.command("delayed-2", "cancel")


async def _waits(crew: Company, run: str) -> bool:
    found = await crew.log.load(run)
    return found is not None and found.record.wake_at is not None


async def test_the_same_key_at_another_time_is_another_request(crew: Company) -> None:
    value = b"1"
    first = await crew.submitter.submit(TaskRequest(agent="ticker", key="k", run_at=60), value)
    again = await crew.submitter.submit(TaskRequest(agent="ticker", key="k", run_at=60), value)
    assert again.run == first.run
    assert again.duplicate
    with pytest.raises(IdempotencyConflict):
        await crew.submitter.submit(TaskRequest(agent="ticker", key="k", run_at=61), value)


@pytest.mark.parametrize("run_at", [-1, 1e300, datetime(2030, 1, 1)])  # noqa: DTZ001  # that it has no zone is the case
async def test_what_is_no_time_is_refused(crew: Company, run_at: Any) -> None:
    with pytest.raises(InvalidInput, match="run_at"):
        await crew.submitter.submit(TaskRequest(agent="ticker", run_at=run_at), b"1")


async def test_an_older_installation_gets_the_subjects_that_it_lacks(
    settings: BrokerSettings, nats: ServerProcess
) -> None:
    from callboard.topics.ids import new_token
    from callboard.topics.streams import declarations, ensure_streams

    settings = settings.model_copy(update={"namespace": f"o{new_token(8)}"})
    bus = await Bus.connect(settings)
    try:
        subjects = Subjects(settings.namespace)
        old = next(one for one in declarations(subjects, settings) if one["name"] == subjects.events)
        old = {key: value for key, value in old.items() if key != "allow_msg_ttl"}
        old["subjects"] = old["subjects"][:3]
        await bus.api(f"STREAM.CREATE.{subjects.events}", old | {"max_msgs": 1_000_000})
        await bus.store(f"{subjects.run}.r.r.state", b"{}")
        await asyncio.gather(*(ensure_streams(bus, settings) for _ in range(3)))
        await ensure_streams(bus, settings)
        info = await bus.api(f"STREAM.INFO.{subjects.events}")
        assert info is not None
        assert f"{subjects.namespace}.schedule.*" in info["config"]["subjects"]
        assert (info["config"]["max_msgs"], info["state"]["messages"]) == (1_000_000, 1)
        await Schedules(bus).put("s", every_s=60, agent="a")
    finally:
        await bus.close()


def test_due_times_of_a_definition() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    schedule = Schedule(name="s", token="t", created_at=start, since=start, input=TaskRequest().payload, every_s=1.5)
    assert due_after(schedule, start) == start + timedelta(seconds=1.5)
    assert due_after(schedule, start + timedelta(seconds=1.5)) == start + timedelta(seconds=3)
    assert due_after(schedule, start - timedelta(days=1)) == start + timedelta(seconds=1.5)
