"""Schedules that stand still, due times that gave two runs, and timers that ended runs have left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from callboard.store.schedules import Schedules
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.ids import new_run_id
from callboard.topics.messages import Payload, Status
from callboard.topics.schedules import Schedule, due_by
from tests.actors.company import company, eventually

from .auditing import WAIT_S, Forger, look, only

Q, C = Status.QUEUED, Status.COMPLETED
HOUR = timedelta(hours=1)


MARKS = {"schedule": "tick", "scheduled_for": "2026-01-01T00:00:00.000+00:00"}


def fire_of(token: str, due: str = MARKS["scheduled_for"]) -> str:
    """The id of the run of a due time, under the definition of this token."""
    at = datetime.fromisoformat(due)
    return Schedule(name="tick", token=token, created_at=at, since=at, input=Payload()).run_at(at)


@pytest.fixture
def forger(bus: Bus) -> Forger:
    return Forger(bus)


async def disarmed(bus: Bus, name: str) -> None:
    await Schedules(bus)._disarm(name)


async def defined_long_ago(bus: Bus, **options: object) -> Schedule:
    """A schedule whose last due time was some 30 seconds ago, and whose timers are armed from now on."""
    now = datetime.now(UTC)
    given = {"every_s": 600.0, "missed": "once"} | options
    schedule = Schedule(
        name="tick", token="t", created_at=now - timedelta(seconds=630), since=now - timedelta(seconds=630),
        input=Payload(), agent="reviewer", **given,  # type: ignore[arg-type]
    )  # fmt: skip
    schedules = Schedules(bus)
    await schedules._write(schedule, 0)
    await schedules.arm(schedule, now)
    return schedule


async def test_a_schedule_with_its_timer_is_sound(bus: Bus) -> None:
    await Schedules(bus).put("tick", every_s=600, agent="reviewer")
    assert (await look(bus)).clean


async def test_a_schedule_without_a_timer(bus: Bus) -> None:
    schedules = Schedules(bus)
    await schedules.put("tick", every_s=600, agent="reviewer")
    await disarmed(bus, "tick")
    found = await only(bus, "schedule_unarmed")
    assert "tick" in found.found
    assert found.repair is not None
    report = await look(bus, repair=True)
    assert report.clean
    assert report.findings[0].mended
    assert await schedules.armed() == {"tick"}
    assert (await look(bus)).counts == {}


async def test_a_paused_schedule_needs_none(bus: Bus) -> None:
    schedules = Schedules(bus)
    await schedules.put("tick", every_s=600, agent="reviewer")
    await schedules.pause("tick")
    assert (await look(bus)).clean


async def test_a_due_time_without_its_run_is_made_up_for(settings: BrokerSettings, bus: Bus) -> None:
    schedule = await defined_long_ago(bus)
    found = await only(bus, "schedule_missed")
    due = due_by(schedule, datetime.now(UTC))
    assert due is not None
    assert found.run == schedule.run_at(due)
    async with company(settings, bus) as firm:
        report = await look(bus, repair=True)
        assert report.findings[0].mended, report.findings

        async def there() -> bool:
            return await firm.log.load(schedule.run_at(due)) is not None

        await eventually(there)
        assert (await look(bus)).clean


async def test_a_due_time_with_its_run_or_with_a_policy_that_skips_it(bus: Bus, forger: Forger) -> None:
    schedule = await defined_long_ago(bus)
    due = due_by(schedule, datetime.now(UTC))
    assert due is not None
    await forger.path(schedule.run_at(due), Q, Status.RUNNING, C)
    assert (await look(bus)).clean


async def test_a_missed_due_time_may_be_skipped(bus: Bus) -> None:
    await defined_long_ago(bus, missed="skip")
    assert (await look(bus)).clean


async def test_a_due_time_that_gave_two_runs(bus: Bus, forger: Forger) -> None:
    first, second = (fire_of(token) for token in ("a", "b"))
    await forger.path(first, Q, Status.RUNNING, C, metadata=MARKS)
    later = "2026-01-01T00:10:00.000+00:00"
    await forger.path(fire_of("a", later), Q, Status.RUNNING, C, metadata=MARKS | {"scheduled_for": later})
    assert (await look(bus)).clean
    await forger.path(second, Q, Status.RUNNING, C, metadata=MARKS)
    assert (await only(bus, "schedule_doubled")).run == second


@pytest.mark.parametrize("how", ["retry_of", "successor_of", "forked_from", None])
async def test_what_looks_like_a_scheduled_run_is_no_second_fire(bus: Bus, forger: Forger, how: str | None) -> None:
    """It goes on from one; or somebody has given it such metadata."""
    first, other = fire_of("a"), str(new_run_id())
    await forger.path(first, Q, Status.RUNNING, Status.FAILED, metadata=MARKS)
    await forger.path(other, Q, Status.RUNNING, C, metadata=MARKS, **({how: first} if how else {}))
    await forger.path(str(new_run_id()), Q, Status.RUNNING, C, metadata=MARKS | {"scheduled_for": "soon"})
    assert "schedule_doubled" not in (await look(bus)).counts


async def test_timers_that_an_ended_run_has_left_are_noted_and_taken_away(bus: Bus, forger: Forger) -> None:
    ended, live = str(new_run_id()), str(new_run_id())
    await forger.path(ended, Q, Status.RUNNING, C)
    at = datetime.now(UTC) + HOUR
    await forger.state(live, Q, deadline_at=at)
    await forger.work(live)
    for verb in ("deadline", "starved"):
        await forger.timer(ended, verb, at)
    await forger.timer(live, "deadline", at)
    report = await look(bus, wait_s=WAIT_S)
    assert report.clean
    assert [(one.code, one.run, one.severity) for one in report.findings] == [("timer_left", ended, "note")]
    assert "deadline, starved" in report.findings[0].found
    mended = await look(bus, repair=True)
    assert mended.findings[0].mended
    assert (await look(bus)).counts == {}
    info = await bus.api(f"STREAM.INFO.{bus.subjects.inbox}")
    assert info is not None
    assert info["state"]["messages"] == 1
