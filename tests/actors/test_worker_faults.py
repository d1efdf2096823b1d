"""Workers and coordinators that die, stall and come back: one outcome, no step twice, nobody waits for long."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from callboard import Limit
from callboard.actors.agent import Retry, Terminal, agent
from callboard.actors.coordinator.transitions import LEGAL, MAX_LOSSES
from callboard.actors.engine import Context
from callboard.topics.bus import Bus, fence
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import IllegalTransition, StaleFence
from callboard.topics.messages import TERMINAL, Command, Outcome, RunRecord, Status, encode
from tests.actors.company import Company, Member, company, eventually, result_of

QUICK = Retry(max_attempts=3, initial=timedelta(milliseconds=10))


class Stage:
    """Steps that count themselves, and one that waits for the test."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.gate = asyncio.Event()

    async def quick(self, name: str) -> str:
        self.calls[name] += 1
        return name

    def called(self, name: str, count: int) -> bool:
        return self.calls[name] == count

    async def held(self, name: str) -> str:
        self.calls[name] += 1
        await self.gate.wait()
        return name


def staged(stage: Stage, name: str = "staged", **options: Any) -> Any:
    @agent(name, **options)
    async def code(ctx: Context) -> list[str]:
        await ctx.emit("begun", ctx.run.attempt)
        return [await ctx.step(stage.quick, "a"), await ctx.step(stage.held, "b"), await ctx.step(stage.quick, "c")]

    return code


async def legal(all_: Company, run: str) -> list[RunRecord]:
    """The run's states, after a check that each may follow the one before and one outcome is the last."""
    states = await all_.states(run)
    for before, after in pairwise(states):
        assert after.status in LEGAL[before.status]
        assert after.rev == before.rev + 1
    assert [one.status in TERMINAL for one in states] == [False] * (len(states) - 1) + [True]
    return states


async def test_killed_worker_is_replaced_within_a_second(settings: BrokerSettings, bus: Bus) -> None:
    """Long before its lease ends; what was finished is not executed again."""
    stage = Stage()
    async with company(settings, bus, [staged(stage)], lease_s=30) as all_:
        run = await all_.submit("staged")
        await eventually(lambda: stage.calls["b"])
        first = all_.members[1]
        await all_.worker(staged(stage), lease_s=30)
        killed = time.monotonic()
        await first.kill()
        await eventually(lambda: stage.calls["b"] == 2, 5)
        took = time.monotonic() - killed
        stage.gate.set()
        record = await all_.ended(run)
        assert result_of(record) == ["a", "b", "c"]
        assert (record.attempt, record.losses) == (2, 1)
        assert stage.calls == {"a": 1, "b": 2, "c": 1}
        assert took < 1.5
        await legal(all_, run)


async def test_stalled_worker_is_fenced_out(settings: BrokerSettings, bus: Bus) -> None:
    """Its lease runs out; when it comes back its writes are refused and it stops, and the new attempt is the run."""
    stage = Stage()
    ends: list[str] = []

    @agent("stall")
    async def stall(ctx: Context) -> list[str]:
        try:
            first = await ctx.step(stage.quick, "a")
            mine = await ctx.step(stage.held, "b") if ctx.run.attempt == 1 else "b2"
            return [first, mine, await ctx.step(stage.quick, "c")]
        except asyncio.CancelledError:
            ends.append("stopped")
            raise

    async with company(settings, bus, [stall], lease_s=1) as all_:
        run = await all_.submit("stall")
        await eventually(lambda: stage.calls["b"])
        await all_.worker(stall, lease_s=1, keeper=True)
        record = await all_.ended(run)
        assert result_of(record) == ["a", "b2", "c"]
        stage.gate.set()
        await eventually(lambda: ends == ["stopped"])
        states = await legal(all_, run)
        assert [one.attempt for one in states if one.status is Status.RUNNING] == [1, 2]
        steps = await all_.steps(run)
        assert [(one.at, one.name, one.attempt) for one in steps] == [("0", "quick", 1), ("1", "quick", 2)]
        head = fence(3, bus.subjects.state(run))
        with pytest.raises(StaleFence):
            await bus.write(bus.subjects.event(run, "step"), b"{}", head)


async def test_lease_is_kept_while_a_run_lasts(settings: BrokerSettings, bus: Bus) -> None:
    """A run longer than its lease stays one attempt, with a second worker waiting for it."""

    @agent("long")
    async def long(ctx: Context) -> int:
        await asyncio.sleep(2.5)
        return ctx.run.attempt

    async with company(settings, bus) as all_:
        for _ in range(2):
            await all_.worker(long, lease_s=2, keeper=True)
        assert result_of(await all_.run("long")) == 1


@pytest.mark.parametrize("limit", [None, Limit(concurrency=3)])
async def test_runs_of_a_killed_worker_go_before_those_that_wait(
    settings: BrokerSettings, bus: Bus, limit: Limit | None
) -> None:
    """The queue is long, and the worker that is left has little room: what had begun goes on within a second or so."""
    order: list[str] = []

    @agent("busy", limit=limit)
    async def busy(ctx: Context, name: str) -> None:
        order.append(name)
        await asyncio.sleep(0.1 if len(order) > 2 else 60)

    async with company(settings, bus, [busy], concurrency=2) as all_:
        begun = [await all_.submit("busy", f"begun {turn}") for turn in range(2)]
        await eventually(lambda: len(order) == 2)
        waiting = [await all_.submit("busy", f"waits {turn}") for turn in range(40)]
        await all_.members[-1].kill()
        await all_.worker(busy, concurrency=1)
        for run in begun:
            await all_.ended(run)
            assert [(one.status, one.dispatch) for one in await all_.states(run)][2:] == [
                (Status.QUEUED, 1), (Status.RUNNING, 1), (Status.COMPLETED, 1),
            ]  # fmt: skip
        for run in waiting:
            assert (await all_.ended(run)).attempt == 1
        assert len(order) == 44
        before = order.index("begun 0", 2), order.index("begun 1", 2)
        assert max(before) < 35, f"others went before them: {order}"


async def test_run_that_kills_its_workers_is_parked(settings: BrokerSettings, bus: Bus) -> None:
    """After MAX_LOSSES dead processes the run is failed, with a reason to read."""
    stage = Stage()
    async with company(settings, bus) as all_:
        run = await all_.submit("staged")
        for count in range(1, MAX_LOSSES + 1):
            member = await all_.worker(staged(stage), lease_s=30)
            await eventually(partial(stage.called, "b", count))
            await member.kill()
        record = await all_.ended(run)
        assert record.status is Status.FAILED
        assert record.error is not None
        assert record.error.code == "worker_lost"
        await legal(all_, run)


async def test_outcome_without_a_coordinator_waits_for_the_next_one(settings: BrokerSettings, bus: Bus) -> None:
    """The worker leaves it as a durable command; the result is not lost and not executed again."""
    stage = Stage()
    async with company(settings, bus, [staged(stage)]) as all_:
        run = await all_.submit("staged")
        await eventually(lambda: stage.calls["b"])
        await all_.members[0].kill()
        stage.gate.set()

        async def left() -> bool:
            return await all_.waiting_messages(bus.subjects.inbox) == 1

        await eventually(left, 10)
        await all_.coordinator()
        record = await all_.ended(run, 40)
        assert result_of(record) == ["a", "b", "c"]
        assert stage.calls["b"] == 1


async def test_killed_coordinator_beside_another(settings: BrokerSettings, bus: Bus) -> None:
    """A hundred runs while one of two coordinators dies: all end, each once."""

    @agent("busy")
    async def busy(ctx: Context, n: int) -> int:
        async def work() -> int:
            await asyncio.sleep(0.01)
            return n

        return await ctx.step(work) + await ctx.step(work)

    async with company(settings, bus, [busy], coordinators=2, concurrency=16) as all_:
        runs = [asyncio.ensure_future(all_.submit("busy", n)) for n in range(100)]
        await asyncio.sleep(0.15)
        await all_.members[0].kill()
        for n, run in enumerate(runs):
            assert result_of(await all_.ended(await run, 30)) == 2 * n
            await legal(all_, await run)


@pytest.mark.parametrize("verb", ["due", "wake", "outcome"])
async def test_crash_between_a_record_and_its_work_message(settings: BrokerSettings, bus: Bus, verb: str) -> None:
    """A coordinator died after it had written the record: the command that comes again brings the message."""
    stage = Stage()
    stage.gate.set()
    async with company(settings, bus) as all_:
        run = await all_.submit("staged")
        subject = f"{bus.subjects.work}.staged"
        await bus.api(f"STREAM.PURGE.{bus.subjects.work_stream}", {"filter": subject})
        loaded = await all_.log.require(run)
        after = msgspec.structs.replace(loaded.record, rev=2, dispatch=2, attempt=1)
        await all_.log.append_state(after, loaded.sequence)
        command = Command(dispatch=1)
        if verb == "outcome":
            command = Command(outcome=Outcome(run=run, attempt=1, kind="released"))
        await bus.store(bus.subjects.command(run, verb), encode(command))
        await all_.worker(staged(stage))
        assert (await all_.ended(run)).status is Status.COMPLETED


async def test_lost_worker_whose_coordinator_died_too(settings: BrokerSettings, bus: Bus) -> None:
    """The record says queued, nobody sent the message: the redelivery of the dead worker's message brings it."""
    stage = Stage()
    async with company(settings, bus, [staged(stage)], lease_s=1) as all_:
        run = await all_.submit("staged")
        await eventually(lambda: stage.calls["b"])
        for member in all_.members:
            await member.kill()
        loaded = await all_.log.require(run)
        after = msgspec.structs.replace(
            loaded.record, status=Status.QUEUED, rev=loaded.record.rev + 1, dispatch=2, worker=None, lease=0, losses=1
        )
        await all_.log.append_state(after, loaded.sequence)
        stage.gate.set()
        await all_.coordinator()
        await all_.worker(staged(stage), lease_s=1)
        assert (await all_.ended(run)).attempt == 2


# -- cancel ---------------------------------------------------------------------------------------------------------


async def test_cancel_of_a_queued_run(settings: BrokerSettings, bus: Bus) -> None:
    """It never begins, also when a worker comes later."""
    stage = Stage()
    async with company(settings, bus) as all_:
        run = await all_.submit("staged")
        assert (await all_.submitter.command(run, "cancel")).status is Status.CANCELED
        await all_.worker(staged(stage))
        await asyncio.sleep(0.2)
        assert not stage.calls
        assert (await all_.submitter.command(run, "cancel")).status is Status.CANCELED


async def test_cancel_of_a_running_run(settings: BrokerSettings, bus: Bus) -> None:
    """Its code is stopped where it waits, and the run is canceled at once."""
    stage = Stage()
    async with company(settings, bus, [staged(stage)]) as all_:
        run = await all_.submit("staged")
        await eventually(lambda: stage.calls["b"])
        began = time.monotonic()
        record = await all_.submitter.command(run, "cancel", "enough")
        assert (record.status, record.epoch) == (Status.CANCEL_REQUESTED, 1)
        record = await all_.ended(run)
        assert (record.status, record.reason) == (Status.CANCELED, "enough")
        assert time.monotonic() - began < 1
        assert stage.calls["c"] == 0
        done = await all_.submit("staged")
        stage.gate.set()
        await all_.ended(done)
        with pytest.raises(IllegalTransition):
            await all_.submitter.command(done, "cancel")


async def test_cancel_that_meets_a_refused_write_first(settings: BrokerSettings, bus: Bus) -> None:
    """The notice is lost and the worker learns of the cancel by its fence: it says that it stopped all the same."""

    @agent("writer")
    async def writer(ctx: Context) -> None:
        while True:
            await ctx.stream("x")
            await asyncio.sleep(0.005)

    async with company(settings, bus, [writer]) as all_:
        run = await all_.submit("writer")
        await all_.reaches(run, Status.RUNNING)
        all_.members[0].actor._carrier._notify = lambda *_: None
        began = time.monotonic()
        await all_.submitter.command(run, "cancel")
        assert (await all_.ended(run)).status is Status.CANCELED
        assert time.monotonic() - began < 3


async def test_cancel_deadline_when_the_code_does_not_stop(settings: BrokerSettings, bus: Bus) -> None:
    """Code that swallows the cancel is left behind, fenced off; a sync step goes on in its thread, unheard."""
    release, ended = threading.Event(), threading.Event()

    def thread() -> str:
        release.wait(10)
        ended.set()
        return "late"

    @agent("sync")
    async def sync(ctx: Context) -> str:
        return await ctx.step(thread)

    @agent("stubborn")
    async def stubborn(ctx: Context) -> str:
        while True:
            try:
                await asyncio.sleep(0.3)
            except asyncio.CancelledError:
                if release.is_set():
                    return "stubborn"

    async with company(settings, bus) as all_:
        coordinator = await all_.coordinator(cancel_grace_s=0.5)
        await all_.members[0].stop()
        all_.members[:] = [coordinator]
        await all_.worker(sync, stubborn)
        run = ""
        for name in ("sync", "stubborn"):
            run = await all_.submit(name)
            await all_.reaches(run, Status.RUNNING)
            await asyncio.sleep(0.05)
            await all_.submitter.command(run, "cancel")
            assert (await all_.ended(run, 5)).status is Status.CANCELED
            await legal(all_, run)
        release.set()
        await eventually(ended.is_set)
        assert await all_.steps(run) == []


async def test_attempt_timeout(settings: BrokerSettings, bus: Bus) -> None:
    """An attempt that takes too long is ended, repeated under the policy, and in the end timed out; whatever its code
    returns when it is stopped is not a result."""
    tries: list[int] = []

    @agent(
        "slow", timeout=timedelta(seconds=0.2), retries=Retry(max_attempts=2, initial=timedelta(0), on=(TimeoutError,))
    )
    async def slow(ctx: Context) -> str:
        tries.append(ctx.run.attempt)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "swallowed"
        return "slept"

    async with company(settings, bus, [slow]) as all_:
        record = await all_.run("slow")
        assert record.status is Status.TIMED_OUT
        assert tries == [1, 2]
        assert record.error is not None
        assert record.error.code == "timed_out"


async def test_retries_wait_for_their_timer(settings: BrokerSettings, bus: Bus) -> None:
    """The backoff is a durable timer: queued with a moment and a reason meanwhile."""

    @agent("flaky", retries=Retry(max_attempts=3, initial=timedelta(seconds=0.4), factor=1.5, jitter=0))
    async def flaky(ctx: Context) -> int:
        if ctx.run.attempt < 3:
            raise ConnectionError(f"try {ctx.run.attempt}")
        return ctx.run.attempt

    async with company(settings, bus, [flaky]) as all_:
        began = time.monotonic()
        run = await all_.submit("flaky")
        assert result_of(await all_.ended(run)) == 3
        assert 0.9 < time.monotonic() - began < 6
        waits = [one for one in await all_.states(run) if one.wake_at]
        assert [(one.status, one.failures) for one in waits] == [(Status.QUEUED, 1), (Status.QUEUED, 2)]
        assert "again in 0.4 s" in (waits[0].reason or "")


async def test_draining_worker_hands_its_runs_over(settings: BrokerSettings, bus: Bus) -> None:
    """What it cannot finish in time goes back to the queue unharmed, and counts neither as loss nor failure."""
    stage = Stage()
    async with company(settings, bus, [staged(stage)]) as all_:
        run = await all_.submit("staged")
        await eventually(lambda: stage.calls["b"])
        first: Member = all_.members.pop(1)
        first.host.settings = first.host.settings.model_copy(update={"grace_s": 0.2})
        await first.stop()
        record = await all_.record(run)
        assert (record.status, record.losses, record.failures) == (Status.QUEUED, 0, 0)
        stage.gate.set()
        await all_.worker(staged(stage))
        assert result_of(await all_.ended(run)) == ["a", "b", "c"]
        assert stage.calls == {"a": 1, "b": 2, "c": 1}


async def test_step_entries_that_nobody_can_read_fail_the_run_visibly(settings: BrokerSettings, bus: Bus) -> None:
    """Somebody wrote garbage into the run's own log: the next attempt says so instead of doing steps again."""
    stage = Stage()

    @agent("reader", retries=QUICK)
    async def reader(ctx: Context) -> str:
        await ctx.step(stage.quick, "a")
        if ctx.run.attempt == 1:
            await bus.store(bus.subjects.event(ctx.run.id, "step"), b"\xff garbage")
            raise ConnectionError("again")
        return "never"

    async with company(settings, bus, [reader]) as all_:
        record = await all_.run("reader")
        assert record.status is Status.FAILED
        assert record.error is not None
        assert record.error.code == "invalid_message"
        assert stage.calls["a"] == 1


async def test_terminal_error_of_an_agent_with_bad_input(settings: BrokerSettings, bus: Bus) -> None:
    """Input that is not what the agent declares fails the run at once, with the path to the value."""

    @agent("strict", retries=QUICK)
    async def strict(ctx: Context, value: dict[str, int]) -> int:
        raise Terminal("not reached")

    async with company(settings, bus, [strict]) as all_:
        record = await all_.run("strict", {"a": "x"})
        assert record.status is Status.FAILED
        assert record.error is not None
        assert record.attempt == 1
        assert "a" in record.error.message
