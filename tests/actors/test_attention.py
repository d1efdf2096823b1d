"""What waits for a person is noted once, goes out live, and is on the list until it is dealt with."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from callboard import Context, Retry, agent
from callboard.store.attention import Attention, Item
from callboard.store.deadletters import DeadLetters
from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.client import Message
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import IllegalTransition, InvalidMessage, NotFound
from callboard.topics.messages import NOTHING, ErrorInfo, Notice, RunRecord, Status
from callboard.topics.units import now

from .company import Company, company, eventually, result_of

ONCE = Retry(max_attempts=1)


@agent("failing", retries=ONCE)
async def failing(ctx: Context, text: str) -> None:
    raise ValueError(text)


@agent("late", retries=ONCE, timeout=timedelta(seconds=0.2))
async def late(ctx: Context, _: Any) -> None:
    await asyncio.sleep(30)


@agent("asking")
async def asking(ctx: Context, _: Any) -> None:
    await asyncio.sleep(60)


async def listed(bus: Bus, *, count: int = 1) -> list[Item]:
    """The list, once it has so many entries."""
    found: list[Item] = []

    async def there() -> bool:
        found[:] = await Attention(bus).items()
        return len(found) == count

    await eventually(there, what=lambda: f"{count} on the list, found {found}")
    return found


async def notices(bus: Bus, run: str) -> list[Notice]:
    subject = bus.subjects.attention("run", run)
    return [
        msgspec.json.decode(one.data, type=Notice)
        async for page in reads.read(bus, bus.subjects.events, subject)
        for one in page
    ]


async def parked(found: Company, run: str, **changes: Any) -> RunRecord:
    """Puts a state behind a run's last, as a coordinator would that dies before it has told anybody."""
    loaded = await found.log.require(run)
    record = replace(loaded.record, rev=loaded.record.rev + 1, updated_at=now(), **changes)
    await found.log.append_state(record, loaded.sequence)
    return record


async def test_every_kind_is_listed_with_what_can_be_done(settings: BrokerSettings, bus: Bus) -> None:
    heard: list[Notice] = []

    def hear(message: Message) -> None:
        heard.append(msgspec.json.decode(message.data, type=Notice))

    await bus.subscribe(f"{bus.subjects.live}.attention.*.*", hear)
    async with company(settings, bus, [failing, late, asking]) as found:
        await found.coordinator(unserved_after_s=1.5)
        runs = {
            "failed": await found.submit("failing", "no good", thread="t1"),
            "timed_out": await found.submit("late"),
            "input_required": await found.submit("asking"),
        }
        await found.ended(runs["failed"])
        await found.ended(runs["timed_out"])
        await found.reaches(runs["input_required"], Status.RUNNING)
        await parked(found, runs["input_required"], status=Status.INPUT_REQUIRED, worker=None, reason="what now?")
        await bus.store(bus.subjects.command(runs["input_required"], "sweep"), b"")
        orphan = await found.submit("asking")
        await found.reaches(orphan, Status.RUNNING)
        await parked(found, orphan, status=Status.ORPHANED, worker=None, ended_at=now(), reason="never heard of")
        await bus.store(bus.subjects.command(orphan, "sweep"), b"")
        await found.submit("nobody")
        await found.submit(None, topic="nothing")
        letter = await DeadLetters(bus).put("task", "cb.task.x", b"{", None, InvalidMessage("not JSON"))
        items = {item.id: item for item in await listed(bus, count=7)}
    assert items[runs["failed"]].kind == "failed"
    assert (items[runs["failed"]].agent, items[runs["failed"]].thread) == ("failing", "t1")
    assert (items[runs["failed"]].code, items[runs["failed"]].reason) == ("exception", "no good")
    assert items[runs["failed"]].actions == ("retry", "drop")
    assert items[runs["timed_out"]].kind == "timed_out"
    assert items[orphan].kind == "orphaned"
    assert items[runs["input_required"]].kind == "input_required"
    assert items[runs["input_required"]].reason == "what now?"
    assert "fail" in items[runs["input_required"]].actions
    assert items["queue:nobody"].kind == items["queue:@nothing"].kind == "no_worker"
    assert (items["queue:nobody"].agent, items["queue:@nothing"].topic) == ("nobody", "nothing")
    assert items[f"dead:{letter}"].subject == "cb.task.x"
    assert items[f"dead:{letter}"].actions == ("replay", "drop")
    await eventually(lambda: len(heard) == 6)
    assert {notice.kind for notice in heard} == {"failed", "timed_out", "orphaned", "input_required", "no_worker"}


async def test_a_notice_is_written_once_whoever_settles_the_run(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, [failing], coordinators=2) as found:
        run = await found.submit("failing", "x")
        await found.ended(run)
        for _ in range(5):
            await bus.store(bus.subjects.command(run, "sweep"), b"")
        await listed(bus)
        await eventually(lambda: empty(found))
        assert [notice.state for notice in await notices(bus, run)] == ["open"]
        await Attention(bus).drop(run)
        await bus.store(bus.subjects.command(run, "sweep"), b"")
        await eventually(lambda: empty(found))
        assert [notice.state for notice in await notices(bus, run)] == ["open", "resolved"]
        assert await listed(bus, count=0) == []


async def empty(found: Company) -> bool:
    return not await found.waiting_messages(found.bus.subjects.inbox)


async def test_a_run_that_goes_on_is_off_the_list_by_itself(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, [asking]) as found:
        run = await found.submit("asking")
        await found.reaches(run, Status.RUNNING)
        await parked(found, run, status=Status.INPUT_REQUIRED, worker=None)
        await bus.store(bus.subjects.command(run, "sweep"), b"")
        await listed(bus)
        with pytest.raises(IllegalTransition, match="only what has ended"):
            await Attention(bus).drop(run)
        await found.submitter.cancel(run, reason="enough")
        assert await listed(bus, count=0) == []


async def test_what_parks_again_is_noted_again(bus: Bus) -> None:
    attention = Attention(bus)
    record = RunRecord(
        id="r", root="r", agent="a", status=Status.INPUT_REQUIRED, input=NOTHING, created_at=now(),
        updated_at=now(), rev=3,
    )  # fmt: skip
    assert await attention.park(record)
    assert not await attention.park(record)
    assert not await attention.park(replace(record, rev=2)), "an old state"
    assert await attention.park(replace(record, rev=7))
    assert await attention.resolve(replace(record, rev=7), "answered")
    assert not await attention.park(replace(record, rev=7)), "a late effect of the same state"
    assert await attention.park(replace(record, rev=9))
    assert [(one.rev, one.state) for one in await notices(bus, "r")] == [
        (3, "open"), (7, "open"), (7, "resolved"), (9, "open"),
    ]  # fmt: skip


async def test_a_word_on_a_run_that_comes_before_its_notice_holds(bus: Bus) -> None:
    attention = Attention(bus)
    record = RunRecord(
        id="r", root="r", agent="a", status=Status.FAILED, input=NOTHING, created_at=now(),
        updated_at=now(), rev=3, error=ErrorInfo(code="exception", message="no"),
    )  # fmt: skip
    assert await attention.resolve(record, "retried as x")
    assert not await attention.park(record)


async def test_the_queue_of_an_agent_is_off_the_list_when_a_worker_comes(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, coordinators=0) as found:
        await found.coordinator(unserved_after_s=0.4)
        await found.coordinator(unserved_after_s=0.4)
        run = await found.submit("failing", "x")
        (item,) = await listed(bus)
        assert (item.id, item.runs) == ("queue:failing", 1)
        await found.worker(failing)
        await found.ended(run)

        async def only_the_run() -> bool:
            return [item.id for item in await Attention(bus).items()] == [run]

        await eventually(only_the_run)
        assert not await Attention(bus).queues()


async def test_a_queue_that_is_only_slow_is_not_listed(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, coordinators=0) as found:
        await found.coordinator(unserved_after_s=1.5)
        await found.worker(asking, concurrency=1)
        for _ in range(5):
            await found.submit("asking")
        await asyncio.sleep(2.5)
        assert await Attention(bus).items() == []


async def test_dropping_what_does_not_wait_is_an_error(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, [failing]) as found:
        run = await found.submit("failing", "x")
        await found.ended(run)
        await listed(bus)
        await Attention(bus).drop(run)
        with pytest.raises(NotFound):
            await Attention(bus).drop(run)
        with pytest.raises(NotFound):
            await Attention(bus).drop("nowhere")


async def test_a_person_can_end_a_run_as_failed(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, [asking]) as found:
        run = await found.submit("asking")
        await found.reaches(run, Status.RUNNING)
        with pytest.raises(IllegalTransition, match="cancel it"):
            await found.submitter.command(run, "fail")
        await parked(found, run, status=Status.INPUT_REQUIRED, worker=None)
        await bus.store(bus.subjects.command(run, "sweep"), b"")
        await listed(bus)
        record = await found.submitter.command(run, "fail", "no answer will come")
        assert (record.status, record.reason) == (Status.FAILED, "no answer will come")
        assert record.error is not None
        assert record.error.code == "failed_by_hand"
        assert await found.submitter.command(run, "fail") == record, "again it changes nothing"
        assert await listed(bus, count=0) == []
        assert (await found.submitter.command(run, "retry")).retry_of == run
        queued = await found.submit("nobody")
        assert (await found.submitter.command(queued, "fail")).status is Status.FAILED
        with pytest.raises(IllegalTransition):
            await found.submitter.command(await found.submit("nobody"), "retry")


async def test_the_failure_of_a_child_is_listed_when_its_parent_has_ended_before(
    settings: BrokerSettings, bus: Bus
) -> None:
    @agent("slowly", retries=ONCE)
    async def slowly(ctx: Context, seconds: float) -> None:
        await asyncio.sleep(seconds)
        raise ValueError("too late")

    @agent("careless")
    async def careless(ctx: Context, _: Any) -> str:
        return (await ctx.start(slowly, 0.5)).id

    async with company(settings, bus, [slowly, careless]) as found:
        record = await found.run("careless")
        (item,) = await listed(bus)
        assert item.id == result_of(record)
