"""A system that is well gives no findings, however busy it is, and however it has been treated."""

from __future__ import annotations

import asyncio
from datetime import timedelta

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
    await ctx.sleep(timedelta(milliseconds=50 * (n % 3)))
    found = await ctx.gather(*(ctx.call("leaf", n + i, returns=int) for i in range(2)))
    return first + sum(found)


@agent("dozer")
async def dozer(ctx: Context, seconds: float) -> str:
    await ctx.step(double, 1)
    await ctx.sleep(timedelta(seconds=seconds))
    return "awake"


async def test_no_false_alarms_while_two_hundred_runs_are_under_way(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, [leaf, branch, dozer], coordinators=2, patience_s=0.1) as troupe:
        await troupe.worker(leaf, branch, dozer, patience_s=0.1)
        runs: list[str] = []

        async def submit() -> None:
            for n in range(200):
                runs.append(await troupe.submit("branch", n))

        work = asyncio.create_task(submit())
        audits = 0
        while not work.done() or audits < 3:
            report = await look(bus, wait_s=2.0)
            assert report.clean, lines(report.findings)
            audits += 1
        await work
        for run in runs:
            assert (await troupe.ended(run, 60)).status is Status.COMPLETED
        report = await look(bus)
        assert report.clean, lines(report.findings)
        assert (report.runs, report.live) == (600, 0)
        assert report.findings == []


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
