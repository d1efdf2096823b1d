"""Sync steps that nobody waits for any more: told of, fenced off, and no burden for the others."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from callboard.actors.agent import agent
from callboard.actors.engine import Context, StepFailed, StepThreads
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import Status
from tests.actors.company import company, eventually, result_of


@pytest.fixture
def hung() -> Iterator[threading.Event]:
    """Lets go of what hangs."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_canceled_step_in_a_thread_is_reported_and_its_result_dropped(
    settings: BrokerSettings, bus: Bus, hung: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    begun = threading.Event()

    def hangs() -> str:
        begun.set()
        hung.wait(60)
        return "too late"

    @agent("hanging")
    async def hanging(ctx: Context) -> str:
        return await ctx.step(hangs)

    async with company(settings, bus, [hanging]) as all_:
        run = await all_.submit("hanging")
        await asyncio.to_thread(begun.wait, 10)
        await asyncio.sleep(0.1)
        await all_.submitter.cancel(run, reason="enough")
        record = await all_.ended(run, 5)
        assert record.status is Status.CANCELED
        assert record.reason == ("enough; abandoned in a thread, where it goes on, its result dropped: step 'hangs'")
        worker = all_.members[1].actor
        left = worker.beat()["abandoned"]
        assert [(one.run, one.step) for one in left] == [(run, "hangs")]
        assert 0.1 <= left[0].after_s < 5
        told = [one.message for one in caplog.records if "is abandoned" in one.message]
        assert len(told) == 1
        assert told[0].startswith(f"run {run}: step 'hangs' is abandoned after 0.")
        hung.set()
        await eventually(lambda: not worker.beat()["abandoned"])
        assert any("abandoned in its thread, has ended after" in one.message for one in caplog.records)
        assert await all_.steps(run) == []


async def test_functions_that_are_no_steps_are_abandoned_as_well(hung: threading.Event) -> None:
    threads, begun = StepThreads(1), threading.Event()

    def hangs() -> None:
        begun.set()
        hung.wait(60)

    loop = asyncio.get_running_loop()
    waits = loop.run_in_executor(threads, hangs)
    await asyncio.to_thread(begun.wait, 10)
    waits.cancel()
    await eventually(lambda: [one.step for one in threads.abandoned] == ["hangs"])
    assert await loop.run_in_executor(threads, lambda: 7) == 7
    hung.set()
    await eventually(lambda: not threads.abandoned)
    threads.shutdown()
    with pytest.raises(RuntimeError):
        threads.submit(hangs)


async def test_abandoned_threads_do_not_use_up_the_workers(
    settings: BrokerSettings, bus: Bus, hung: threading.Event
) -> None:
    def hangs() -> None:
        hung.wait(60)

    def works(number: int) -> int:
        return number

    @agent("stubborn")
    async def stubborn(ctx: Context) -> list[int]:
        calls = [ctx.step(hangs, timeout=timedelta(seconds=0.2)) for _ in range(20)]
        failed = await ctx.gather(*calls, return_exceptions=True)
        assert all(isinstance(one, StepFailed) for one in failed)
        return await ctx.gather(*(ctx.step(works, number) for number in range(50)))

    others = _step_threads()  # of workers before this one
    async with company(settings, bus, [stubborn], concurrency=1) as all_:
        record = await all_.run("stubborn", within_s=20)
        assert result_of(record) == list(range(50))
        worker = all_.members[1].actor
        began = len(worker.beat()["abandoned"])
        assert 6 <= began <= 20, "those that had a thread before their time was over"
        assert _step_threads() <= others + began + 6
        hung.set()
        await eventually(lambda: not worker.beat()["abandoned"])
        await eventually(lambda: _step_threads() <= others + 6)


def _step_threads() -> int:
    return [one.name for one in threading.enumerate()].count("callboard-step")
