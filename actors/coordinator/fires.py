"""What a coordinator does for schedules: make the run of each due time that has come, and keep the timers armed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import msgspec

from ...store.log import EventLog
from ...store.schedules import Schedules
from ...topics import crash, units
from ...topics.bus import Bus
from ...topics.errors import CallboardError, InvalidMessage, NotFound
from ...topics.messages import SubmitReply, TaskRequest
from ...topics.pull import Delivery
from ...topics.schedules import Fire, Schedule, due_after, due_by
from ...topics.subjects import require_token

log = logging.getLogger(__name__)

LATE_S = 10.0
"""A due time whose timer fired later than this, by the broker's clock, has been missed: the schedule's policy says what
becomes of it."""
WATCH_S = 10.0
_LOOK_BACK = timedelta(hours=1)
_decode = msgspec.json.Decoder(Fire).decode


class Fires:
    """Serves `cb.task.@schedule`. `submit` creates a run, and finds it when it is there."""

    def __init__(self, bus: Bus, submit: Callable[[TaskRequest], Awaitable[SubmitReply]]) -> None:
        self._submit = submit
        self._schedules, self._log = Schedules(bus), EventLog(bus)

    async def fire(self, delivery: Delivery) -> None:
        """A due time has come. Raises InvalidMessage, and what the creation of a run raises.

        The next timers come first: if this coordinator dies here, the schedule goes on."""
        fire = _parsed(delivery)
        try:
            schedule = await self._schedules.get(fire.name)
        except NotFound:
            log.info("a timer of schedule %s fired after it was removed", fire.name)
            return
        if schedule.paused or schedule.token != fire.token or fire.due <= schedule.since:
            log.info("a timer of schedule %s fired after it was paused or replaced", fire.name)
            return
        fired, now = units.utc(delivery.stored_ms / 1000), await self._schedules.now()
        await self._go_on(schedule, fire.due, now)
        crash.point("coordinator.between-timer-and-run")
        if await self._counts(schedule, fire.due, fired, now):
            await self._submit(_task(schedule, fire.due))

    async def _go_on(self, schedule: Schedule, due: datetime, now: datetime) -> None:
        """Arms what follows from now on, not from when this fired: what was armed in between has fired by itself. Only
        when this was handled so late that nothing is armed any more are there due times that nobody saw to."""
        following = due_after(schedule, due)
        if following is not None and following <= now and not await self._schedules.is_armed(schedule, now):
            await self._catch_up(schedule, due, now)
        await self._schedules.arm(schedule, max(now, due))

    async def _catch_up(self, schedule: Schedule, after: datetime, now: datetime) -> None:
        """Lets the due times between `after` and `now` fire at once that have no run: those that are merely late, and
        of the others, by policy, the newest."""
        late = list[datetime]()
        due = due_after(schedule, max(after, now - timedelta(seconds=LATE_S)))
        while due is not None and due <= now:
            late.append(due)
            due = due_after(schedule, due)
        skips = schedule.missed == "skip" and schedule.at is None
        newest = None if late or skips else due_by(schedule, now)
        if newest is not None and newest > after:
            late.append(newest)
        there = await self._log.load_many([schedule.run_at(due) for due in late])
        for due in late:
            if schedule.run_at(due) not in there:
                await self._schedules.arm_at(schedule, due)

    async def _counts(self, schedule: Schedule, due: datetime, fired: datetime, now: datetime) -> bool:
        """Whether this due time gets its run. Of several that were missed the newest stands for all."""
        if fired - due <= timedelta(seconds=LATE_S):
            return True
        if schedule.missed == "skip" and schedule.at is None:
            log.warning("schedule %s: %s was missed and is skipped", schedule.name, due.isoformat())
            return False
        newest = due_by(schedule, now)
        if newest is None or newest <= due:
            return True
        log.warning("schedule %s: %s was missed, one run makes up for all", schedule.name, due.isoformat())
        if not await self._has_run(schedule, newest):
            await self._schedules.arm_at(schedule, newest)
        return False

    async def watch(self) -> None:
        """Now and then: arms schedules that have no timer, because a process died between two writes."""
        while True:
            try:
                await self.mend()
            except CallboardError as error:
                log.info("schedules are looked at again: %s", error)
            await asyncio.sleep(WATCH_S)

    async def mend(self) -> None:
        """Arms each schedule that should have a timer and has none; what was due in the last hour, and has no run,
        fires at once as far as the policy says so."""
        active = [one for one in await self._schedules.all() if not one.paused]
        if not active:
            return
        armed, now = await self._schedules.armed(), await self._schedules.now()
        for schedule in active:
            if schedule.name in armed:
                continue
            await self._catch_up(schedule, now - _LOOK_BACK, now)
            if due_after(schedule, now) is not None:
                log.info("schedule %s had no timer: armed again", schedule.name)
                await self._schedules.arm(schedule, now)

    async def _has_run(self, schedule: Schedule, due: datetime) -> bool:
        return await self._log.load(schedule.run_at(due)) is not None


def _parsed(delivery: Delivery) -> Fire:
    try:
        fire = _decode(delivery.data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMessage(f"not a fire of a schedule: {error}", subject=delivery.subject) from error
    if fire.due.tzinfo is None:
        raise InvalidMessage("the due time of a fire has no time zone", subject=delivery.subject)
    require_token("schedule", fire.name)
    return fire


def _task(schedule: Schedule, due: datetime) -> TaskRequest:
    """The task of one due time; the run tells in its metadata which schedule it comes from."""
    marks = {"schedule": schedule.name, "scheduled_for": due.isoformat(timespec="milliseconds")}
    return TaskRequest(
        agent=schedule.agent,
        topic=schedule.topic,
        run=schedule.run_at(due),
        thread=schedule.thread,
        policy=schedule.policy,
        metadata=(schedule.metadata or {}) | marks,
    ).carrying(schedule.input)
