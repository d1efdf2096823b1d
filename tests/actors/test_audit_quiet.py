"""A system that is well gives no findings, however busy it is, and however it has been treated."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from callboard import Context, agent
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import Status

from .auditing import lines, look
from .company import company


def double(n: int) -> int:
    return 2 * n


@agent("leaf")
async def leaf(ctx: Context, n: int) -> int:
    await ctx.emit("custom", {"n": n})
    return await ctx.step(double, n)


@agent("branch")
async def branch(ctx: Context, n: int) -> int:
    first = await ctx.step(double, n)
    await ctx.sleep(timedelta(milliseconds=500 * (n % 5)))
    found = await ctx.gather(*(ctx.call("leaf", n + i, returns=int) for i in range(2)))
    total: int = first + sum(found)
    return total


@agent("dozer")
async def dozer(ctx: Context, seconds: float) -> str:
    await ctx.step(double, 1)
    await ctx.sleep(timedelta(seconds=seconds))
    return "awake"


@pytest.mark.proof
@pytest.mark.timeout(400)
async def test_no_false_alarms_while_two_hundred_runs_are_under_way(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, [leaf, branch, dozer], coordinators=2, patience_s=0.1) as troupe:
        await troupe.worker(leaf, branch, dozer, patience_s=0.1)
        runs = list(await asyncio.gather(*(troupe.submit("branch", n) for n in range(200))))
        more = asyncio.gather(*(troupe.submit("branch", n) for n in range(50)))
        looks: list[int] = []
        while not looks or looks[-1]:
            report = await look(bus, wait_s=3.0)
            assert report.clean, lines(report.findings)
            looks.append(report.live)
        runs += await more
        for run in runs:
            assert (await troupe.ended(run, 60)).status is Status.COMPLETED
        report = await look(bus)
        assert report.clean, lines(report.findings)
        assert (report.runs, report.live) == (750, 0)
        assert report.findings == []
        assert sum(live >= 100 for live in looks) >= 2, f"it was not busy while it was audited: {looks}"


async def test_sleeping_and_canceled_runs_and_a_killed_worker_leave_nothing_to_find(
    settings: BrokerSettings, bus: Bus
) -> None:
    async with company(settings, bus, coordinators=1) as troupe:
        first = await troupe.worker(leaf, dozer, patience_s=0.1)
        sleeping = await troupe.submit("dozer", 60)
        canceled = await troupe.submit("dozer", 60)
        await troupe.reaches(sleeping, Status.WAITING)
        await troupe.submitter.command(canceled, "cancel")
        await troupe.reaches(canceled, Status.CANCELED)
        busy = [await troupe.submit("dozer", 1.2) for _ in range(4)]
        await first.kill()
        await troupe.worker(leaf, dozer, patience_s=0.1)
        for run in busy:
            await troupe.ended(run, 30)
        report = await look(bus, wait_s=1.0)
        assert report.clean, lines(report.findings)
        assert report.live == 1
