"""Limits of time: a run past its deadline, and one that no worker takes, each end as timed_out with their own code."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from callboard.actors.agent import Retry, agent
from callboard.actors.coordinator.deadlines import decide, overdue
from callboard.actors.coordinator.effects import Dispatch, DropTimers, Timer, owed
from callboard.actors.coordinator.run_commands import Deadline, Due, Redispatch, Starved
from callboard.actors.coordinator.transitions import decide as decide_any
from callboard.actors.engine import Context
from callboard.store.deadletters import DeadLetters
from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.client import head_bytes
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import IdempotencyConflict, InvalidInput
from callboard.topics.messages import Answered, CancelOrder, RunRecord, Status
from tests.actors.company import company, eventually
from tests.actors.test_transitions import NOW, queued, running

AGO = NOW - timedelta(seconds=1)
TO_COME = NOW + timedelta(seconds=1)


@agent("sleeper", deadline=timedelta(seconds=0.8))
async def sleeper(ctx: Context) -> str:
    await ctx.sleep(timedelta(seconds=60))
    return "slept"


@agent("busy")
async def busy(ctx: Context) -> str:
    await asyncio.sleep(60)
    return "done"


@agent("parent", deadline=timedelta(seconds=1))
async def parent(ctx: Context) -> str:
    await ctx.call(busy)
    return "done"


@agent("flaky", retries=Retry(initial=timedelta(seconds=60)), deadline=timedelta(seconds=1))
async def flaky(ctx: Context) -> str:
    raise OSError("away")


@agent("quick", wait_timeout=timedelta(seconds=0.6))
async def quick(ctx: Context, value: Any = None) -> Any:
    return value


def code(record: RunRecord) -> str:
    assert record.status is Status.TIMED_OUT, record
    assert record.error is not None
    return record.error.code


# -- pure -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "status"),
    [
        (queued(), Status.TIMED_OUT),
        (queued(attempt=1), Status.CANCEL_REQUESTED),
        (running(), Status.CANCEL_REQUESTED),
        (running(status=Status.WAITING, worker=None), Status.CANCEL_REQUESTED),
        (running(status=Status.INPUT_REQUIRED, worker=None), Status.CANCEL_REQUESTED),
    ],
)
def test_a_deadline_stops_what_has_begun_and_ends_what_has_not(record: RunRecord, status: Status) -> None:
    after = decide(msgspec.structs.replace(record, deadline_at=AGO), Deadline(), NOW).record
    assert after is not None
    assert (after.status, after.cancel) == (status, CancelOrder(action="timeout", scope="tree"))
    assert after.undo == ""
    assert after.error is not None
    assert after.error.code == "deadline_exceeded"


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.CANCELED, Status.CANCEL_REQUESTED])
def test_a_deadline_changes_nothing_that_ends_or_has_ended(status: Status) -> None:
    record = running(status=status, deadline_at=AGO)
    assert decide(record, Deadline(), NOW).verdict == "stale"
    assert overdue(record, NOW) is None


def test_a_run_starves_only_in_the_dispatch_that_nobody_took() -> None:
    record = queued(wait_timeout_s=5.0, wait_until=AGO, dispatch=2)
    assert decide(record, Starved(1), NOW).verdict == "stale"
    assert decide(running(wait_timeout_s=5.0, wait_until=AGO), Starved(1), NOW).verdict == "stale"
    after = decide(record, Starved(2), NOW).record
    assert after is not None
    assert code(after) == "no_worker_in_time"
    assert overdue(record, NOW) == Starved(2)


def test_a_message_that_is_sent_again_does_not_begin_the_wait_anew() -> None:
    record = queued(wait_timeout_s=5.0, wait_until=TO_COME)
    again = decide_any(record, Redispatch("a", 1), NOW).record
    assert again is not None
    assert (again.dispatch, again.wait_until) == (2, TO_COME)
    delayed = decide_any(queued(wait_timeout_s=5.0, wake_at=NOW), Due(1), NOW).record
    assert delayed is not None
    assert delayed.wait_until == NOW + timedelta(seconds=5)


def test_timers_stand_before_the_work_message_and_cost_nothing_without_a_limit() -> None:
    assert owed(queued()) == (Dispatch("a", "r1", 1),)
    record = queued(deadline_at=TO_COME, wait_until=TO_COME)
    assert owed(record) == (
        Timer("r1", "deadline", TO_COME),
        Timer("r1", "starved", TO_COME, dispatch=1),
        Dispatch("a", "r1", 1),
    )


def test_a_run_that_ends_drops_its_timers_if_it_may_have_any() -> None:
    ended = msgspec.structs.replace(queued(), status=Status.COMPLETED)
    assert owed(ended) == ()
    answered = [Answered(id="q", digest="d")]
    for more in ({"deadline_at": TO_COME}, {"wait_timeout_s": 5.0}, {"cancel": CancelOrder()}, {"answered": answered}):
        assert owed(msgspec.structs.replace(ended, **more)) == (DropTimers("r1"),)


# -- with workers -----------------------------------------------------------------------------------------------------


async def test_a_run_past_its_deadline_is_timed_out_whatever_it_does(settings: BrokerSettings, bus: Bus) -> None:
    """Asleep, in the middle of an attempt with a child, between two attempts; by its agent's word or by the request."""
    async with company(settings, bus, [sleeper, parent, busy, flaky]) as all_:
        runs = {name: await all_.submit(name) for name in ("sleeper", "parent", "flaky")}
        runs["busy"] = await all_.submit("busy", deadline_s=0.5)
        for name, run in runs.items():
            record = await all_.ended(run, 10)
            assert code(record) == "deadline_exceeded", name
            assert record.ended_at is not None
            took = (record.ended_at - record.created_at).total_seconds()
            assert 0.4 < took < 4, (name, took)
        children = [one for one in await all_.log.tree(runs["parent"]) if one.parent]
        assert [one.status for one in children] == [Status.CANCELED]
        member = all_.members[-1]
        assert not member.actor.beat()["running"]


async def test_a_run_that_no_worker_takes_in_time_says_so(settings: BrokerSettings, bus: Bus) -> None:
    """Its agent has no worker at all; or it has one that is not free; a later one finds nothing of it."""
    async with company(settings, bus, [busy], concurrency=1) as all_:
        first = await all_.submit("busy")
        await all_.reaches(first, Status.RUNNING)
        second = await all_.submit("busy", wait_timeout_s=0.5)
        nobody = await all_.submit("nobody", wait_timeout_s=0.5)
        delayed = await all_.submit("nobody", wait_timeout_s=0.5, run_at=0.7)
        records = [await all_.ended(run, 10) for run in (second, nobody, delayed)]
        assert {(code(one), one.attempt) for one in records} == {("no_worker_in_time", 0)}
        record = records[-1]
        assert record.ended_at is not None
        assert (record.ended_at - record.created_at).total_seconds() > 1.1
        assert (await all_.record(first)).status is Status.RUNNING


async def test_a_run_that_is_taken_in_time_is_left_alone(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, [quick]) as all_:
        run = await all_.submit("quick", 7, deadline_s=1.5)
        record = await all_.ended(run)
        await asyncio.sleep(1.8)
        assert await all_.record(run) == record
        assert [one.status for one in await all_.states(run)] == [Status.QUEUED, Status.RUNNING, Status.COMPLETED]


async def test_a_lost_timer_is_made_up_for_by_a_sweep(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus) as all_:
        run = await all_.submit("nobody", deadline_s=0.3)
        await bus.api(f"STREAM.PURGE.{bus.subjects.inbox}", {"filter": f"{bus.subjects.timer}.>"})
        await asyncio.sleep(0.5)
        assert (await all_.record(run)).status is Status.QUEUED
        await asyncio.sleep(5.2)
        await all_.submitter.command(run, "sweep")
        assert code(await all_.record(run)) == "deadline_exceeded"


async def test_terms_of_a_published_task(settings: BrokerSettings, bus: Bus) -> None:
    """In headers; what is no time is set aside; the same key with other terms is another request."""
    async with company(settings, bus) as all_:
        subject = f"{settings.namespace}.task.nowhere"
        given = {"Callboard-Run": "mine", "Callboard-Deadline": "0.4", "Callboard-Priority": "high"}
        await bus.store(subject, b"1", head_bytes(given))
        record = await all_.ended("mine")
        assert (code(record), record.priority) == ("deadline_exceeded", "high")
        await bus.store(subject, b"1", head_bytes({"Callboard-Deadline": "soon"}))
        await bus.store(subject, b"1", head_bytes({"Callboard-Wait-Timeout": "-1"}))
        await bus.store(subject, b"1", head_bytes({"Callboard-Priority": "urgent"}))
        async with asyncio.timeout(5):
            while len(found := await DeadLetters(bus).page(after=0, limit=10)) < 3:
                await asyncio.sleep(0.05)
        assert {one.letter.reason.code for one in found} == {"invalid_input"}
        with pytest.raises(InvalidInput):
            await all_.submit("nobody", deadline_s=0.0)
        await all_.submit("nobody", key="k", deadline_s=5.0)
        with pytest.raises(IdempotencyConflict):
            await all_.submit("nobody", key="k", deadline_s=6.0)


async def test_a_run_that_ends_in_time_leaves_no_timer(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, [quick]) as all_:
        delayed = await all_.submit("quick", 1, deadline_s=60.0)
        assert (await all_.ended(delayed)).status is Status.COMPLETED

        async def gone() -> bool:
            left = [
                await reads.last_from_leader(bus, bus.subjects.inbox, f"{bus.subjects.timer}.{delayed}.{verb}")
                for verb in ("deadline", "starved")
            ]
            return left == [None, None]

        await eventually(gone)
