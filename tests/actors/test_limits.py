"""Limits across all workers: never more at once than allowed, no slot lost with a crash, the important first."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from callboard.actors.agent import Agent, agent
from callboard.actors.engine import Context
from callboard.actors.limit import Limit, Rate
from callboard.store.agents import AgentRegistry
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import KEYLESS, Gate, Holder, Status, Work, encode
from callboard.topics.pull import consumer_info
from tests.actors.company import Company, company, eventually


class Watcher:
    """How many are inside at once, in all and by key, and when each came in."""

    def __init__(self) -> None:
        self.now: dict[str, int] = defaultdict(int)
        self.most: dict[str, int] = defaultdict(int)
        self.order: list[Any] = []
        self.begun: list[float] = []

    @contextmanager
    def inside(self, key: str, value: Any = None) -> Iterator[None]:
        self.order.append(value)
        self.begun.append(time.monotonic())
        for one in {"", key}:
            self.now[one] += 1
            self.most[one] = max(self.most[one], self.now[one])
        try:
            yield
        finally:
            for one in {"", key}:
                self.now[one] -= 1


def limited(watcher: Watcher, limit: Limit | None, rate: Rate | None = None, seconds: float = 0.03) -> Agent[Any]:
    """An agent whose runs take a while, watched."""

    @agent("limited", limit=limit, rate=rate)
    async def work(ctx: Context, value: dict[str, Any]) -> Any:
        with watcher.inside(str(value.get("tenant", "")), value.get("n")):
            await asyncio.sleep(value.get("seconds", seconds))
        return value.get("n")

    return work


async def ended(all_: Company, runs: list[str], within_s: float = 40.0) -> None:
    records = await asyncio.gather(*(all_.ended(run, within_s) for run in runs))
    assert {one.status for one in records} == {Status.COMPLETED}


async def test_never_more_at_once_than_the_limit_whatever_the_workers_could(settings: BrokerSettings, bus: Bus) -> None:
    watcher = Watcher()
    work = limited(watcher, Limit(concurrency=3))
    async with company(settings, bus, coordinators=2) as all_:
        for _ in range(3):
            await all_.worker(work)
        runs = await asyncio.gather(*(all_.submit("limited", {"n": n}) for n in range(60)))
        await ended(all_, runs)
        assert watcher.most[""] == 3
        assert sorted(watcher.order) == list(range(60))

        async def empty() -> bool:
            return not await all_.waiting_messages(bus.subjects.work_stream)

        await eventually(empty)


async def test_never_more_of_one_key_and_the_keys_take_turns(settings: BrokerSettings, bus: Bus) -> None:
    """A tenant with many runs does not keep the others waiting; runs without a key know only the common limit."""
    watcher = Watcher()
    work = limited(watcher, Limit(concurrency=4, per_key=1, key="$.tenant"))
    async with company(settings, bus, coordinators=2) as all_:
        await all_.worker(work)
        await all_.worker(work)
        many = [await all_.submit("limited", {"tenant": "many", "n": n}) for n in range(30)]
        few = [await all_.submit("limited", {"tenant": f"few {i}", "n": 100 + n}) for n in range(3) for i in range(2)]
        await ended(all_, few, 10)
        assert watcher.order.index(102) < 20
        await ended(all_, many)
        assert watcher.most["many"] == watcher.most["few 0"] == 1
        assert watcher.most[""] > 1
        assert [n for n in watcher.order if n < 100] == list(range(30))
        free = [await all_.submit("limited", {"n": n, "seconds": 0.3}) for n in range(8)]
        await ended(all_, free)
        assert watcher.most[""] == 4


@pytest.mark.parametrize("key", ["thread", "metadata.tenant"])
async def test_keys_from_elsewhere(settings: BrokerSettings, bus: Bus, key: str) -> None:
    watcher = Watcher()
    async with company(settings, bus, [limited(watcher, Limit(per_key=2, key=key))]) as all_:
        given = [{"tenant": f"t.{n % 2}", "n": n, "seconds": 0.2} for n in range(12)]
        runs = [await all_.submit("limited", one, metadata={"tenant": one["tenant"]}) for one in given]
        await ended(all_, runs)
        if key != "thread":
            assert watcher.most["t.0"] == watcher.most["t.1"] == 2


async def test_the_important_first_and_within_a_class_the_oldest(settings: BrokerSettings, bus: Bus) -> None:
    watcher = Watcher()
    async with company(settings, bus, coordinators=2) as all_:
        await all_.worker(limited(watcher, Limit(concurrency=1), seconds=0.02))
        first = await all_.submit("limited", {"n": "first", "seconds": 0.8})
        await all_.reaches(first, Status.RUNNING)
        runs = []
        for n in range(4):
            for priority in ("low", "normal", "high"):
                runs.append(await all_.submit("limited", {"n": f"{priority}{n}"}, priority=priority))
        await ended(all_, [first, *runs])
        wanted = [f"{priority}{n}" for priority in ("high", "normal", "low") for n in range(4)]
        assert watcher.order == ["first", *wanted]


async def test_a_rate_holds_for_all_workers(settings: BrokerSettings, bus: Bus) -> None:
    watcher = Watcher()
    work = limited(watcher, None, Rate(20, per=timedelta(seconds=1), burst=5), seconds=0.0)
    async with company(settings, bus, coordinators=2) as all_:
        await all_.worker(work)
        await all_.worker(work)
        runs = [await all_.submit("limited", {"n": n}) for n in range(35)]
        await ended(all_, runs)
        span = watcher.begun[-1] - watcher.begun[0]
        assert 1.3 < span < 4
        for start in watcher.begun:
            assert sum(start <= one < start + 0.5 for one in watcher.begun) <= 5 + 10 + 2


async def test_a_killed_worker_takes_no_slot_with_it(settings: BrokerSettings, bus: Bus) -> None:
    """Although its lease would last for long: the next attempt is under way within a second or two."""
    watcher = Watcher()
    async with company(settings, bus) as all_:
        work = limited(watcher, Limit(concurrency=2))
        victim = await all_.worker(work, keeper=True, lease_s=60.0)
        held = [await all_.submit("limited", {"n": n, "seconds": 1.0}) for n in range(2)]
        for run in held:
            await all_.reaches(run, Status.RUNNING)
        more = [await all_.submit("limited", {"n": n}) for n in range(2, 6)]
        await victim.kill()
        watcher.now.clear()
        killed = time.monotonic()
        await all_.worker(work, lease_s=60.0)
        await ended(all_, [*held, *more], 10)
        assert time.monotonic() - killed < 8
        assert watcher.most[""] == 2


async def test_a_coordinator_that_dies_in_between_loses_no_attempt(settings: BrokerSettings, bus: Bus) -> None:
    """A slot was given, and its work message never sent: whoever looks next sends it."""
    watcher = Watcher()
    async with company(settings, bus) as all_:
        first = await all_.worker(limited(watcher, Limit(concurrency=1)))
        await first.stop()
        run = await all_.submit("limited", {"n": 1})

        async def handed_over() -> bool:
            info = await bus.api(f"STREAM.INFO.{bus.subjects.work_stream}", {"subjects_filter": ">"})
            assert info is not None
            return list(info["state"].get("subjects") or {}) == [f"{bus.subjects.work}.limited"]

        await eventually(handed_over)
        await bus.api(f"STREAM.PURGE.{bus.subjects.work_stream}")
        body = encode(Work(run=run, dispatch=1))
        await bus.store(f"{bus.subjects.work}.limited.normal.{KEYLESS}", body)
        await all_.worker(limited(watcher, Limit(concurrency=1)))
        await all_.ended(run, 8)


async def test_a_slot_of_a_run_that_is_nowhere_is_free(settings: BrokerSettings, bus: Bus) -> None:
    watcher = Watcher()
    async with company(settings, bus) as all_:
        await all_.worker(limited(watcher, Limit(concurrency=1)))
        gate = Gate(agent="limited", holders=[Holder("nowhere", 1), Holder("neither", 4, "=x")])
        await bus.store(bus.subjects.gate("limited"), encode(gate))
        await all_.ended(await all_.submit("limited", {"n": 1}), 8)


async def test_a_suspended_run_holds_no_slot(settings: BrokerSettings, bus: Bus) -> None:
    """A parent waits for children of its own agent, which has one slot."""

    @agent("nested", limit=Limit(concurrency=1))
    async def nested(ctx: Context, depth: int) -> int:
        return 1 + await ctx.call(nested, depth - 1) if depth else 0

    async with company(settings, bus, [nested], patience_s=0.05) as all_:
        record = await all_.run("nested", 3)
        assert record.status is Status.COMPLETED


async def test_what_waits_can_be_canceled_and_starves_in_time(settings: BrokerSettings, bus: Bus) -> None:
    watcher = Watcher()
    async with company(settings, bus) as all_:
        await all_.worker(limited(watcher, Limit(concurrency=1)))
        first = await all_.submit("limited", {"n": 0, "seconds": 1.5})
        await all_.reaches(first, Status.RUNNING)
        canceled = await all_.submit("limited", {"n": 1})
        starved = await all_.submit("limited", {"n": 2}, wait_timeout_s=0.5)
        last = await all_.submit("limited", {"n": 3})
        await all_.submitter.cancel(canceled)
        assert (await all_.ended(canceled)).status is Status.CANCELED
        assert (await all_.ended(starved)).status is Status.TIMED_OUT
        await all_.submitter.command(last, "sweep")  # finds it at the gate
        assert (await all_.record(last)).dispatch == 1
        await ended(all_, [first, last])
        assert watcher.order == [0, 3]


async def test_limits_change_with_the_newest_registration(settings: BrokerSettings, bus: Bus) -> None:
    """Up, and away, while runs wait; a worker of the old version that declares its consumer again changes nothing."""
    watcher = Watcher()
    async with company(settings, bus, coordinators=2) as all_:
        old = await all_.worker(limited(watcher, Limit(concurrency=1), seconds=0.1))
        runs = [await all_.submit("limited", {"n": n}) for n in range(40)]
        await eventually(lambda: len(watcher.order) >= 3)
        assert watcher.most[""] == 1
        await all_.worker(limited(watcher, Limit(concurrency=4), seconds=0.1))
        await eventually(lambda: watcher.most[""] == 4)
        for puller in old.actor._pullers:
            puller._break()
        await asyncio.sleep(0.5)
        info = await consumer_info(bus, bus.subjects.work_stream, "limited")
        assert info is not None
        assert info["config"]["max_ack_pending"] == 4
        registered = await AgentRegistry(bus).current("limited")
        assert registered is not None
        assert registered.limits is not None
        assert registered.limits.concurrency == 4
        await all_.worker(limited(watcher, None, seconds=0.1))
        await ended(all_, runs)
        assert sorted(watcher.order) == list(range(40))
