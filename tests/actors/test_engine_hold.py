"""When an attempt lets go of its worker's slot."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

from callboard.actors.engine.hold import Group, Hold
from callboard.topics import units
from callboard.topics.messages import NOTHING, Interrupt


class Watch:
    """A hold whose patience the test sets, and when it was suspended."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.suspended: list[float] = []
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self.hold = Hold(lambda: self.patience, lambda: self.suspended.append(self._loop.time() - self._began))


async def test_suspends_after_patience() -> None:
    watch, group = Watch(0.1), Group()
    with watch.hold.for_child(group, "r~c"):
        await asyncio.sleep(0.05)
        assert not watch.suspended
        await asyncio.sleep(0.1)
        assert len(watch.suspended) == 1


async def test_patience_ends_sooner_when_others_want_the_slot() -> None:
    """It is asked for again and again, not only when the waiting begins."""
    watch = Watch(60)
    with watch.hold.for_child(Group(), "r~c"):
        await asyncio.sleep(0.02)
        watch.patience = 0.01
        await asyncio.sleep(0.1)
        assert len(watch.suspended) == 1


async def test_not_while_a_step_is_under_way() -> None:
    watch = Watch(0.01)
    with watch.hold.for_child(Group(), "r~c"):
        with watch.hold.working():
            await asyncio.sleep(0.15)
            assert not watch.suspended
        await asyncio.sleep(0.1)
        assert len(watch.suspended) == 1


async def test_not_after_the_wait_is_over() -> None:
    watch = Watch(0.03)
    for _ in range(5):
        with watch.hold.for_child(Group(), "r~c"):
            await asyncio.sleep(0.015)
    await asyncio.sleep(0.06)
    assert not watch.suspended
    with watch.hold.until(datetime.now(UTC)):
        watch.hold.close()
        await asyncio.sleep(0.05)
    assert not watch.suspended


async def test_what_is_waited_for() -> None:
    """Groups by the suffix of their children, cut at the limit, and the next moment."""
    watch, pair = Watch(60), Group()
    soon = datetime.now(UTC)
    with (
        watch.hold.for_child(pair, "r~b"),
        watch.hold.for_child(pair, "r~a"),
        watch.hold.for_child(Group(), "r~c"),
        watch.hold.until(soon + timedelta(hours=1)),
        watch.hold.until(soon),
    ):
        assert watch.hold.groups(10) == [["a", "b"], ["c"]]
        assert watch.hold.groups(2) == [["a", "b"]]
        assert watch.hold.groups(1) == [["a"]]
        assert watch.hold.children == {"r~a", "r~b", "r~c"}
        assert watch.hold.look_at(1) == soon
    assert watch.hold.groups(10) == []
    assert watch.hold.look_at(0) is None


async def test_what_a_part_asks_as_it_ends_is_told() -> None:
    """Also when the patience of the others is over in that very turn of the loop."""
    told: list[list[str]] = []
    hold = Hold(lambda: 0.05, lambda: told.append([one.id for one in hold.asked]))
    loop, ends = asyncio.get_running_loop(), asyncio.Event()
    question = Interrupt(id="q", at="0", payload=NOTHING, created_at=units.now())
    jobs: list[asyncio.Task[None]] = []

    async def waits() -> None:
        with hold.unit(), hold.for_child(Group(), "r~1"):
            await asyncio.Event().wait()

    async def asks() -> None:
        with hold.for_answer(question):
            await asyncio.Event().wait()

    async def part() -> None:
        with hold.unit():
            await ends.wait()
        jobs.append(asyncio.create_task(asks()))

    jobs += [asyncio.create_task(waits()), asyncio.create_task(part())]
    await asyncio.sleep(0.2)
    timer = hold._timer
    assert isinstance(timer, asyncio.TimerHandle)
    ends.set()
    time.sleep(max(0.0, timer.when() - loop.time()) + 0.001)  # both are due in the next turn
    await asyncio.sleep(0.2)
    assert told == [["q"]]
    for job in jobs:
        job.cancel()
