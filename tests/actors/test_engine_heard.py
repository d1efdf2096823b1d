"""What is said to a run: durable, heard once and in order at the same place in every attempt, never by a run that has
ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from callboard.actors.agent import agent
from callboard.actors.engine import Context
from callboard.store.log import EventLog
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import IllegalTransition, NotFound
from callboard.topics.ids import new_run_id
from callboard.topics.messages import Command, Payload, Status, Step, encode
from tests.actors.company import Company, company, eventually, result_of
from tests.support import invariants

TICKS: Counter[str] = Counter()


async def tick(run: str) -> int:
    await asyncio.sleep(0.03)
    TICKS[run] += 1
    return TICKS[run]


@agent("steered")
async def steered(ctx: Context) -> list[Any]:
    """Works until it is told to stop."""
    found: list[Any] = []
    while "stop" not in found:
        await ctx.step(tick, ctx.run.id)
        found += [one.content for one in await ctx.heard()]
    return found


@agent("listener")
async def listener(ctx: Context, count: int) -> list[Any]:
    found = [await ctx.hear() for _ in range(count)]
    return [[one.content, one.by, one.key] for one in found]


@agent("impatient")
async def impatient(ctx: Context) -> Any:
    first = await ctx.hear(timeout=timedelta(seconds=0.3))
    second = await ctx.hear(timeout=timedelta(seconds=30))
    return [first, second and second.content]


@agent("sleeper")
async def sleeper(ctx: Context) -> list[Any]:
    before = await ctx.heard()
    await ctx.sleep(3)
    return [len(before), [one.content for one in await ctx.heard()], len(await ctx.heard())]


@pytest.fixture
async def troupe(settings: BrokerSettings, bus: Bus) -> AsyncIterator[Company]:
    TICKS.clear()
    agents = [steered, listener, impatient, sleeper]
    async with company(settings, bus, agents, coordinators=2, lease_s=20.0, patience_s=0.2) as found:
        yield found


def text(value: Any) -> Payload:
    return Payload(json=msgspec.Raw(msgspec.json.encode(value)))


async def test_a_running_agent_hears_each_message_once_and_in_order_without_being_ended(troupe: Company) -> None:
    run = await troupe.submit("steered")
    await eventually(lambda: TICKS[run] > 2)
    for word in ("left", "left", "right", "stop"):
        await troupe.submitter.say(run, text(word), key=word)
    record = await troupe.ended(run, 3)
    assert (result_of(record), record.attempt) == (["left", "right", "stop"], 1)
    await invariants.check(troupe.bus, [run])


async def test_a_waiting_run_is_woken_by_what_it_waits_for(troupe: Company) -> None:
    run = await troupe.submit("listener", 2)
    record = await troupe.reaches(run, Status.WAITING)
    assert (record.hears, record.reason, record.worker) == (True, "waits for a message", None)
    await troupe.submitter.say(run, text({"go": 1}), by="ann", key="k1")
    await troupe.submitter.say(run, text("x"), key="k2")
    record = await troupe.ended(run)
    assert result_of(record) == [[{"go": 1}, "ann", "k1"], ["x", None, "k2"]]
    await invariants.check(troupe.bus, [run])


async def test_a_command_on_the_subject_is_carried_out_once_however_often_it_is_delivered(troupe: Company) -> None:
    run = await troupe.submit("listener", 2)
    await troupe.reaches(run, Status.WAITING)
    for word in ("a", "a", "b"):
        body = encode(Command(value=text(word), key=word, by="nats"))
        await troupe.bus.store(troupe.bus.subjects.command(run, "say"), body)
    assert result_of(await troupe.ended(run)) == [["a", "nats", "a"], ["b", "nats", "b"]]


async def test_waiting_for_a_message_has_an_end(troupe: Company) -> None:
    run = await troupe.submit("impatient")
    await eventually(lambda: _waits_long(troupe, run))
    await troupe.submitter.say(run, text("late"))
    record = await troupe.ended(run)
    assert result_of(record) == [None, "late"]
    await invariants.check(troupe.bus, [run])


async def _waits_long(troupe: Company, run: str) -> bool:
    record = await troupe.record(run)
    left = (record.wake_at - record.updated_at).total_seconds() if record.wake_at else 0
    return record.status is Status.WAITING and left > 5


async def test_what_is_said_to_a_sleeping_run_is_heard_when_it_wakes(troupe: Company) -> None:
    run = await troupe.submit("sleeper")
    await troupe.reaches(run, Status.WAITING)
    await troupe.submitter.say(run, text("psst"))
    assert (await troupe.record(run)).status is Status.WAITING, "it is not woken"
    assert result_of(await troupe.ended(run)) == [0, ["psst"], 0]


async def test_what_is_said_before_a_run_begins_is_heard_by_its_first_attempt(
    settings: BrokerSettings, bus: Bus
) -> None:
    async with company(settings, bus) as found:
        run = await found.submit("listener", 1)
        await found.submitter.say(run, text("early"), key="k")
        await found.worker(listener)
        assert result_of(await found.ended(run)) == [["early", None, "k"]]


async def test_nothing_is_said_to_a_run_that_has_ended_or_does_not_exist(troupe: Company) -> None:
    run = await troupe.submit("listener", 0)
    await troupe.ended(run)
    with pytest.raises(IllegalTransition):
        await troupe.submitter.say(run, text("too late"))
    with pytest.raises(NotFound):
        await troupe.submitter.say(new_run_id(), text("nobody"))


async def test_a_message_that_was_accepted_is_accepted_again_when_the_run_has_ended(troupe: Company) -> None:
    """Whoever said it may not have been told, and cannot know that the run has ended since."""
    run = await troupe.submit("listener", 1)
    await troupe.submitter.say(run, text("one"), key="k")
    await troupe.ended(run)
    assert (await troupe.submitter.say(run, text("one"), key="k")).status is Status.COMPLETED
    with pytest.raises(IllegalTransition):
        await troupe.submitter.say(run, text("one"), key="another")
    stored = [one async for page in EventLog(troupe.bus).history(run) for one in page if one.kind == "said"]
    assert len(stored) == 1
    await invariants.check(troupe.bus, [run])


async def test_that_nothing_was_said_costs_no_message(troupe: Company) -> None:
    """Its entry travels with that of the next step."""
    run = await troupe.submit("steered")
    await eventually(lambda: TICKS[run] > 10)
    await troupe.submitter.say(run, text("stop"))
    await troupe.ended(run)
    pages = [page async for page in troupe.log.history(run)]
    events = [one for page in pages for one in page if one.kind == "step"]
    steps = [one for one in await troupe.told(run) if isinstance(one, Step)]
    assert len([one for one in steps if one.kind == "heard"]) == TICKS[run]
    assert len(events) <= TICKS[run] + 1


async def test_what_is_said_twice_at_the_same_time_is_stored_once(troupe: Company) -> None:
    """Each request looks for the key before it writes, and none finds it: a reader may come between two copies."""
    run = await troupe.submit("listener", 8)
    for number in range(8):
        key = f"k{number}"
        await asyncio.gather(*(troupe.submitter.say(run, text(number), key=key) for _ in range(4)))
    assert [key for _, _, key in result_of(await troupe.ended(run))] == [f"k{number}" for number in range(8)]
    stored = [one async for page in EventLog(troupe.bus).history(run) for one in page if one.kind == "said"]
    assert len(stored) == 8
