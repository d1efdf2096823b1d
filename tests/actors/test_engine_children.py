"""Child runs: started once, waited for without a slot, their failures data."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from callboard.actors.agent import Retryable, Terminal, agent
from callboard.actors.engine import ChildFailed, Context, attempt, hold
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import InvalidSubject
from callboard.topics.messages import Status
from tests.actors.company import company, eventually, result_of


@agent("leaf")
async def leaf(ctx: Context, n: int) -> int:
    return n + 1


@agent("slow_leaf")
async def slow_leaf(ctx: Context, seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


@agent("bad_leaf")
async def bad_leaf(ctx: Context, text: str) -> None:
    raise Terminal(text)


@agent("one")
async def one(ctx: Context, n: int) -> int:
    return await ctx.call(leaf, n)


@agent("many")
async def many(ctx: Context, n: int) -> int:
    return sum(await ctx.gather(*(ctx.call(leaf, i) for i in range(n))))


@agent("plain")
async def plain(ctx: Context, n: int) -> int:
    return sum(await asyncio.gather(*(ctx.call(leaf, i) for i in range(n))))


@pytest.mark.proof
async def test_five_hundred_parents_with_one_small_worker(settings: BrokerSettings, bus: Bus) -> None:
    """Each parent waits for a child and lets its slot go meanwhile: four slots are enough."""
    async with company(settings, bus, [leaf, one], concurrency=4) as all_:
        began = time.monotonic()
        runs = await asyncio.gather(*(all_.submit("one", n) for n in range(500)))
        for n, run in enumerate(runs):
            assert result_of(await all_.ended(run, 60)) == n + 1
        print(f"500 parents: {time.monotonic() - began:.1f} s")
        assert time.monotonic() - began < 30


@pytest.mark.parametrize("kind", ["many", "plain"])
async def test_wide_fan_out(settings: BrokerSettings, bus: Bus, kind: str) -> None:
    """A thousand children in ctx.gather, two hundred in asyncio's, each started once."""
    count = 1000 if kind == "many" else 200
    async with company(settings, bus, [leaf, many, plain], concurrency=64) as all_:
        began = time.monotonic()
        record = await all_.run(kind, count, within_s=40)
        print(f"{count} children ({kind}): {time.monotonic() - began:.2f} s, {record.attempt} attempts")
        assert result_of(record) == sum(range(1, count + 1))
        tree = await all_.log.tree(record.id)
        assert len(tree) == count + 1
        assert all(child.attempt == 1 for child in tree if child.parent)


async def test_nested_parents(settings: BrokerSettings, bus: Bus) -> None:
    """Deeper than the worker has slots: every level is suspended."""

    @agent("nest")
    async def nest(ctx: Context, depth: int) -> int:
        return 1 + await ctx.call("nest", depth - 1, returns=int) if depth else 0

    async with company(settings, bus, [nest], concurrency=2) as all_:
        record = await all_.run("nest", 12, within_s=20)
        assert result_of(record) == 12
        tree = await all_.log.tree(record.id)
        assert len(tree) == 13
        assert {child.root for child in tree} == {record.id}


async def test_childs_failure_is_data(settings: BrokerSettings, bus: Bus) -> None:
    """A parent can go on; one that does not is failed with its child's error, without a retry."""

    @agent("brave")
    async def brave(ctx: Context, catch: bool) -> list[str]:
        try:
            await ctx.call(bad_leaf, "broken")
        except ChildFailed as error:
            if not catch:
                raise
            code = error.error.code if error.error else ""
            found = await ctx.gather(ctx.call(bad_leaf, "x"), ctx.call(leaf, 1), return_exceptions=True)
            return [error.status, code, type(found[0]).__name__, str(found[1])]
        return []

    async with company(settings, bus, [brave, bad_leaf, leaf]) as all_:
        assert result_of(await all_.run("brave", True)) == ["failed", "terminal", "ChildFailed", "2"]
        record = await all_.run("brave", False)
        assert record.status is Status.FAILED
        assert record.error is not None
        assert record.error.code == "child_failed"
        assert record.attempt == 1


async def test_bad_agent_name_fails_its_own_call_only(settings: BrokerSettings, bus: Bus) -> None:
    """Refused where it is written, not together with the other children of the same request."""

    @agent("typo")
    async def typo(ctx: Context) -> list[Any]:
        good = ctx.call(leaf, 1)
        try:
            ctx.call("no such agent", 1)
        except InvalidSubject as error:
            return [error.code, await good]
        return []

    async with company(settings, bus, [typo, leaf]) as all_:
        assert result_of(await all_.run("typo")) == ["invalid_subject", 2]


async def test_long_sleep_suspends_and_wakes(settings: BrokerSettings, bus: Bus) -> None:
    """A durable timer, no worker slot; the time before is not lived again."""
    steps: Counter[str] = Counter()

    def note(name: str) -> str:
        steps[name] += 1
        return name

    @agent("sleeper")
    async def sleeper(ctx: Context, seconds: float) -> float:
        await ctx.step(note, "before")
        first = await ctx.now()
        await ctx.sleep(timedelta(seconds=seconds))
        await ctx.step(note, "after")
        return (await ctx.now() - first).total_seconds()

    async with company(settings, bus, [sleeper], concurrency=1, patience_s=0.1) as all_:
        run = await all_.submit("sleeper", 2.5)
        record = await all_.reaches(run, Status.WAITING, 2)
        assert "the clock" in (record.reason or "")
        assert record.worker is None
        short = await all_.run("sleeper", 0.05)  # the slot is free
        assert short.attempt == 1
        record = await all_.ended(run)
        assert record.attempt == 2
        assert 2.4 < result_of(record) < 4
        assert steps == {"before": 2, "after": 2}


async def test_a_sleep_that_the_broker_cannot_count_is_refused_where_it_is_asked_for(
    settings: BrokerSettings, bus: Bus
) -> None:
    """Beyond its 64 bits of nanoseconds a timer is due at once, so that the run would be given out for ever."""

    @agent("sleeper")
    async def sleeper(ctx: Context, seconds: str) -> None:
        await ctx.sleep(float(seconds))

    async with company(settings, bus, [sleeper], patience_s=0.1) as all_:
        for seconds in ("1e10", "1e17", "nan", "inf"):
            record = await all_.run("sleeper", seconds)
            assert record.error is not None
            assert (record.attempt, record.error.code) == (1, "invalid_input")
        run = await all_.submit("sleeper", "7e9")  # two centuries
        assert (await all_.reaches(run, Status.WAITING, 2)).attempt == 1
        await asyncio.sleep(0.3)
        assert (await all_.record(run)).attempt == 1


async def test_more_children_than_a_record_can_tell_of_are_looked_at_too(
    settings: BrokerSettings, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that ends is none of those whose end wakes the run."""
    monkeypatch.setattr(attempt.Attempt, "_group_limit", lambda _: 2)
    monkeypatch.setattr(hold, "LEFT_OUT", timedelta(seconds=0.3))

    @agent("racer")
    async def racer(ctx: Context) -> bool:
        calls = {asyncio.ensure_future(ctx.call(slow_leaf, seconds)): seconds for seconds in (60, 60, 60, 0.6)}
        done, left = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        for one in left:
            one.cancel()
        return [calls[one] for one in done] == [0.6]

    async with company(settings, bus, [racer, slow_leaf], patience_s=0.05) as all_:
        run = await all_.submit("racer")
        record = await all_.reaches(run, Status.WAITING)
        assert len(record.waits or ()) == 2
        assert result_of(await all_.ended(run)) is True
        await all_.submitter.cancel(run)


async def test_sleep_beside_children_wakes_by_whatever_is_first(settings: BrokerSettings, bus: Bus) -> None:
    """A race between a timer and a child, by plain asyncio."""

    @agent("racer")
    async def racer(ctx: Context, seconds: list[float]) -> str:
        child = asyncio.ensure_future(ctx.call(slow_leaf, seconds[0]))
        timer = asyncio.ensure_future(ctx.sleep(seconds[1]))
        done, _ = await asyncio.wait({child, timer}, return_when=asyncio.FIRST_COMPLETED)
        child.cancel()
        timer.cancel()
        return "child" if child in done else "timer"

    async with company(settings, bus, [racer, slow_leaf], patience_s=0.05) as all_:
        began = time.monotonic()
        assert result_of(await all_.run("racer", [0.5, 30])) == "child"
        assert result_of(await all_.run("racer", [6, 2.2])) == "timer"
        assert time.monotonic() - began < 6


async def test_handles_and_detached_children(settings: BrokerSettings, bus: Bus) -> None:
    """A started child's result can be asked for later, also after a retry; a detached one is in the tree as well."""
    tries: list[int] = []

    @agent("starter")
    async def starter(ctx: Context) -> list[Any]:
        child = await ctx.start(leaf, 5)
        away = await ctx.start(leaf, 6, detached=True)
        tries.append(1)
        if len(tries) == 1:
            raise Retryable("again")
        return [child.id, away.id, await child.result(), await child.result(), await away.result()]

    async with company(settings, bus, [starter, leaf]) as all_:
        record = await all_.run("starter")
        child, away, *results = result_of(record)
        assert results == [6, 6, 7]
        assert (await all_.record(child)).parent == record.id
        assert (await all_.record(away)).detached
        assert len(await all_.log.tree(record.id)) == 3


async def test_suspension_that_meets_the_end_of_its_child(settings: BrokerSettings, bus: Bus) -> None:
    """Children that end about when their parent's patience does: no parent is left waiting."""

    @agent("close")
    async def close(ctx: Context, seconds: float) -> float:
        return await ctx.call(slow_leaf, seconds)

    async with company(settings, bus, [close, slow_leaf], concurrency=64, patience_s=0.15, coordinators=2) as all_:
        runs = [await all_.submit("close", 0.1 + 0.002 * n) for n in range(50)]
        for run in runs:
            assert (await all_.ended(run)).status is Status.COMPLETED
        attempts = Counter([(await all_.record(run)).attempt for run in runs])
        assert set(attempts) <= {1, 2}
        print(f"attempts: {dict(attempts)}")


async def test_large_values_everywhere(settings: BrokerSettings, bus: Bus) -> None:
    """5 MB as input, step result, child input and result, event, artifact, result."""

    @agent("big_leaf")
    async def big_leaf(ctx: Context, text: str) -> str:
        return text[::-1]

    @agent("big")
    async def big(ctx: Context, text: str) -> str:
        again = await ctx.step(lambda: text + "!", name="again")
        await ctx.emit("big", again)
        await ctx.artifact("big.txt", again)
        return await ctx.call(big_leaf, again)

    async with company(settings, bus, [big, big_leaf]) as all_:
        text = "ab" * 2_500_000
        record = await all_.run("big", text)
        assert record.result is not None
        assert record.result.ref is not None
        assert (await all_.submitter._blobs.value(record.result)).decode() == f'"!{text[::-1]}"'
        assert record.input.ref is not None
        names = {type(entry).__name__ for entry in await all_.told(record.id)}
        assert {"Step", "Event", "Artifact"} <= names


async def test_cancel_of_a_waiting_parent(settings: BrokerSettings, bus: Bus) -> None:
    """It holds no worker, so it ends at once."""

    @agent("idle")
    async def idle(ctx: Context) -> None:
        await ctx.sleep(3600)

    async with company(settings, bus, [idle], patience_s=0.05) as all_:
        run = await all_.submit("idle")
        await all_.reaches(run, Status.WAITING)
        record = await all_.submitter.command(run, "cancel", "enough")
        assert (record.status, record.reason) == (Status.CANCELED, "enough")
        await eventually(lambda: not all_.members[1].actor._running)
