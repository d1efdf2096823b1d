"""Steps: journaled once, replayed as they were, failures told apart by whether the code went on after them."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from callboard.actors.agent import Retry, Retryable, Terminal, agent
from callboard.actors.engine import Context, StepFailed
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import Status
from tests.actors.company import company, result_of

QUICK = Retry(max_attempts=3, initial=timedelta(milliseconds=10), on=(Exception,))


class Point(msgspec.Struct):
    x: int
    when: datetime


async def test_failure_that_was_caught_is_replayed_and_the_one_that_ended_the_attempt_is_executed_again(
    settings: BrokerSettings, bus: Bus
) -> None:
    """After a retry the caught failure is remembered as what it was; the fatal step runs again and may succeed."""
    calls: Counter[str] = Counter()

    def primary() -> str:
        calls["primary"] += 1
        raise ValueError("primary is down")

    def fallback() -> str:
        calls["fallback"] += 1
        if calls["fallback"] < 3:
            raise ConnectionError("fallback is down")
        return "fallback"

    @agent("careful", retries=QUICK)
    async def careful(ctx: Context) -> list[str]:
        try:
            first = await ctx.step(primary)
        except StepFailed as error:
            first = error.error.message
        return [first, await ctx.step(fallback)]

    async with company(settings, bus, [careful]) as all_:
        record = await all_.run("careful")
        assert result_of(record) == ["primary is down", "fallback"]
        assert calls == {"primary": 1, "fallback": 3}
        assert record.attempt == 3
        failed = [one for one in await all_.states(record.id) if one.status is Status.QUEUED and one.error]
        assert failed[0].error is not None
        assert (failed[0].error.details or {})["failed_steps"] == ["1"]


async def test_parallel_step_that_failed_is_executed_again_and_its_siblings_are_not(
    settings: BrokerSettings, bus: Bus
) -> None:
    """A failure in a gather ends the attempt although later steps were written after it."""
    calls: Counter[str] = Counter()

    async def work(name: str) -> str:
        calls[name] += 1
        if name == "a" and calls[name] == 1:
            raise ConnectionError("once")
        await asyncio.sleep(0.01)
        return name

    @agent("parallel", retries=QUICK)
    async def parallel(ctx: Context) -> list[str]:
        done = await asyncio.gather(*(ctx.step(work, name) for name in "bac"), return_exceptions=True)
        for one in done:
            if isinstance(one, BaseException):
                raise one
        return [await ctx.step(work, "end"), *done]  # type: ignore[list-item]

    @agent("group", retries=QUICK)
    async def group(ctx: Context) -> list[str]:
        async with asyncio.TaskGroup() as tasks:
            found = [tasks.create_task(ctx.step(work, f"{name}2")) for name in "bc"]
            found.append(tasks.create_task(ctx.step(work, "a")))
        return [one.result() for one in found]

    async with company(settings, bus, [parallel, group]) as all_:
        assert result_of(await all_.run("parallel")) == ["end", "b", "a", "c"]
        assert calls == {"a": 2, "b": 1, "c": 1, "end": 1}
        calls.clear()
        record = await all_.run("group")
        assert result_of(record) == ["b2", "c2", "a"]
        assert calls["a"] == 2
        assert record.attempt == 2


async def test_step_that_succeeded_after_a_failed_attempt_stays_succeeded(settings: BrokerSettings, bus: Bus) -> None:
    """A later attempt's result replaces the failure of an earlier one in every attempt after it."""
    calls: Counter[str] = Counter()

    def first() -> int:
        calls["first"] += 1
        if calls["first"] == 1:
            raise ConnectionError("once")
        return calls["first"]

    def second() -> int:
        calls["second"] += 1
        if calls["second"] == 1:
            raise ConnectionError("once")
        return calls["second"]

    @agent("late", retries=QUICK)
    async def late(ctx: Context) -> list[int]:
        return [await ctx.step(first), await ctx.step(second)]

    async with company(settings, bus, [late]) as all_:
        record = await all_.run("late")
        assert result_of(record) == [2, 2]
        assert calls == {"first": 2, "second": 2}


async def test_result_has_the_same_type_when_executed_and_when_replayed(settings: BrokerSettings, bus: Bus) -> None:
    """Also for scalars whose declared type is another: what the first attempt sees is what every attempt sees."""
    seen: list[list[Any]] = []
    now = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)

    def decimal() -> Decimal:
        return "1.10"  # type: ignore[return-value]

    def real() -> float:
        return 3

    def moment() -> datetime:
        return now

    def point() -> Point:
        return Point(1, now)

    def pair() -> tuple[int, str]:
        return (1, "a")

    def loose() -> Any:
        return (1, {"k": {2}})

    def nothing() -> None:
        return None

    @agent("typed", retries=QUICK)
    async def typed(ctx: Context) -> int:
        values = [await ctx.step(fn) for fn in (decimal, real, moment, point, pair, loose, nothing)]
        values += [await ctx.now(), await ctx.random(), await ctx.uuid()]
        seen.append(values)
        if len(seen) < 2:
            raise Retryable("again")
        return 1

    async with company(settings, bus, [typed]) as all_:
        await all_.run("typed")
    first, second = seen
    assert first == second
    assert [type(one) for one in first] == [type(one) for one in second]
    assert first[:5] == [Decimal("1.10"), 3.0, now, Point(1, now), (1, "a")]
    assert isinstance(first[1], float)


async def test_mismatch_names_both_operations(settings: BrokerSettings, bus: Bus) -> None:
    """Code that asks for something else than the journal has is told what and where."""
    tries: list[int] = []

    async def alpha() -> int:
        return 1

    async def beta() -> int:
        return 2

    @agent("moody", retries=QUICK)
    async def moody(ctx: Context) -> int:
        tries.append(1)
        await ctx.step(alpha if len(tries) == 1 else beta)
        if len(tries) == 1:
            raise Retryable("again")
        return 1

    async with company(settings, bus, [moody]) as all_:
        record = await all_.run("moody")
        assert record.status is Status.FAILED
        assert record.error is not None
        assert record.error.code == "journal_mismatch"
        assert "'alpha'" in record.error.message
        assert "'beta'" in record.error.message
        assert "operation 0" in record.error.message


async def test_retry_lists_terminal_and_retryable(settings: BrokerSettings, bus: Bus) -> None:
    """Terminal ends at once, Retryable repeats whatever the lists say, other errors as the policy says."""
    tries: Counter[str] = Counter()
    errors = {
        "terminal": Terminal("never"),
        "retryable": Retryable("always"),
        "value": ValueError("no"),
        "os": OSError("net"),
    }

    @agent("policy", retries=Retry(max_attempts=2, initial=timedelta(milliseconds=10), on=(OSError,)))
    async def policy(ctx: Context, kind: str) -> str:
        tries[kind] += 1
        raise errors[kind]

    async with company(settings, bus, [policy]) as all_:
        for kind in errors:
            record = await all_.run("policy", kind)
            assert record.status is Status.FAILED
            assert record.error is not None
            assert record.error.message == str(errors[kind])
    assert tries == {"terminal": 1, "retryable": 2, "value": 1, "os": 2}


async def test_steps_retry_by_themselves_and_time_out(settings: BrokerSettings, bus: Bus) -> None:
    """Retries inside a step cost no attempt; a timeout is a StepFailed with its own code."""
    calls: Counter[str] = Counter()

    def flaky() -> int:
        calls["flaky"] += 1
        if calls["flaky"] < 3:
            raise ConnectionError("once more")
        return 7

    async def slow() -> None:
        await asyncio.sleep(30)

    @agent("patient")
    async def patient(ctx: Context) -> list[Any]:
        value = await ctx.step(flaky, retries=QUICK)
        try:
            await ctx.step(slow, timeout=timedelta(seconds=0.05))
        except StepFailed as error:
            return [value, error.error.code]
        return [value]

    async with company(settings, bus, [patient]) as all_:
        record = await all_.run("patient")
        assert result_of(record) == [7, "step_timeout"]
        assert record.attempt == 1


async def test_context_inside_a_step_counts_by_itself(settings: BrokerSettings, bus: Bus) -> None:
    """A step that streams while it works does not shift the operations after it when it is replayed."""
    tries: list[int] = []

    async def model(ctx: Context) -> str:
        for piece in ("a", "b", "c"):
            await ctx.stream(piece)
        return "abc"

    async def after() -> str:
        return "after"

    @agent("streamer", retries=QUICK)
    async def streamer(ctx: Context) -> list[str]:
        text = await ctx.step(model, ctx)
        last = await ctx.step(after)
        tries.append(1)
        if len(tries) == 1:
            raise Retryable("again")
        return [text, last, await ctx.step(after, name="third")]

    async with company(settings, bus, [streamer]) as all_:
        record = await all_.run("streamer")
        assert result_of(record) == ["abc", "after", "after"]
        assert [one.at for one in await all_.told(record.id)] == ["0s:0", "0s:1", "0s:2", "0", "1", "2"]


async def test_code_that_calls_exit_fails_its_run_and_not_the_worker(settings: BrokerSettings, bus: Bus) -> None:
    """In the agent, in an async step, in a step's thread."""

    async def leave() -> None:
        sys.exit(3)

    def leave_thread() -> None:
        sys.exit(4)

    def interrupt() -> None:
        raise KeyboardInterrupt

    @agent("quitter")
    async def quitter(ctx: Context, how: str) -> None:
        if how == "agent":
            sys.exit(2)
        if how == "interrupt":
            raise KeyboardInterrupt
        await ctx.step({"step": leave, "thread": leave_thread, "interrupted step": interrupt}[how])

    @agent("fine")
    async def fine(ctx: Context) -> int:
        return 1

    async with company(settings, bus, [quitter, fine]) as all_:
        for how in ("agent", "step", "thread", "interrupt", "interrupted step"):
            record = await all_.run("quitter", how)
            assert record.status is Status.FAILED
            assert record.error is not None
            assert ("KeyboardInterrupt" if "interrupt" in how else "sys.exit") in record.error.message
        assert result_of(await all_.run("fine")) == 1


async def test_what_was_told_before_a_failure_is_kept(settings: BrokerSettings, bus: Bus) -> None:
    """Events are out before the run's end, however it ends."""

    @agent("teller")
    async def teller(ctx: Context) -> None:
        for count in range(20):
            await ctx.emit("count", count)
            if not count % 3:
                await ctx.stream("x")
        raise Terminal("the end")

    async with company(settings, bus, [teller]) as all_:
        record = await all_.run("teller")
        assert record.status is Status.FAILED
        counts = [one for one in await all_.told(record.id) if one.type == "count"]
        assert [msgspec.json.decode(bytes(one.data.json)) for one in counts] == list(range(20))


async def test_errors_of_any_size_fit(settings: BrokerSettings, bus: Bus) -> None:
    """A message of megabytes is cut, in the step and in the run."""

    def loud() -> None:
        raise ValueError("x" * 3_000_000)

    @agent("loud")
    async def louder(ctx: Context, how: str) -> None:
        if how == "agent":
            loud()
        await ctx.step(loud)

    async with company(settings, bus, [louder]) as all_:
        for how in ("agent", "step"):
            record = await all_.run("loud", how)
            assert record.error is not None
            assert 1000 < len(record.error.message) < 4000


@pytest.mark.parametrize("blocks", ["agent", "step"])
async def test_sync_code_may_block(settings: BrokerSettings, bus: Bus, blocks: str) -> None:
    """A sync step runs in a thread beside others; sync code in the agent blocks its worker and nothing else."""

    def sleepy() -> float:
        time.sleep(0.3)
        return 1.0

    @agent("blocker")
    async def blocker(ctx: Context, how: str) -> float:
        return sleepy() if how == "agent" else await ctx.step(sleepy)

    async with company(settings, bus, [blocker]) as all_:
        began = time.monotonic()
        runs = [await all_.submit("blocker", blocks) for _ in range(4)]
        for run in runs:
            assert result_of(await all_.ended(run)) == 1.0
        if blocks == "step":
            assert time.monotonic() - began < 1.0
