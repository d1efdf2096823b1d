"""Attempts that were taken over while their code wrote nothing end, and give their slot back."""

from __future__ import annotations

import asyncio
from typing import Any

from callboard.actors.agent import agent
from callboard.actors.engine import Context
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import Status
from tests.actors.company import Company, Member, company, eventually


class Sleepers:
    """Code that sleeps in its first attempt, without a write, and counts who was woken by a cancel."""

    def __init__(self) -> None:
        self.asleep, self.woken = 0, 0

    def agent(self) -> Any:
        @agent("sleeper")
        async def sleeper(ctx: Context) -> int:
            if ctx.run.attempt == 1:
                self.asleep += 1
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    self.woken += 1
                    raise
            return ctx.run.attempt

        return sleeper


async def stalled(all_: Company, sleepers: Sleepers) -> tuple[str, Member]:
    """A run whose worker holds its lease no longer."""
    member = await all_.worker(sleepers.agent(), keeper=True, lease_s=0.5, concurrency=2)
    run = await all_.submit("sleeper")
    await eventually(lambda: sleepers.asleep)
    assert member.keeper is not None
    for reply in list(member.keeper._held):
        member.keeper.remove(reply)
    return run, member


async def test_taken_over_by_another_worker(settings: BrokerSettings, bus: Bus) -> None:
    sleepers = Sleepers()
    async with company(settings, bus) as all_:
        run, member = await stalled(all_, sleepers)
        member.actor._draining = True  # takes nothing itself
        await all_.worker(sleepers.agent(), keeper=True, lease_s=0.5)
        assert (await all_.ended(run)).attempt == 2
        await eventually(lambda: sleepers.woken == 1, 3)
        await eventually(lambda: not member.actor._running, 3)


async def test_come_back_to_the_worker_that_lost_it(settings: BrokerSettings, bus: Bus) -> None:
    sleepers = Sleepers()
    async with company(settings, bus) as all_:
        run, member = await stalled(all_, sleepers)
        assert (await all_.ended(run)).attempt == 2
        await eventually(lambda: sleepers.woken == 1, 3)
        await eventually(lambda: not member.actor._running, 3)


async def test_a_cancel_whose_notice_was_lost(settings: BrokerSettings, bus: Bus) -> None:
    sleepers = Sleepers()
    async with company(settings, bus) as all_:
        await all_.worker(sleepers.agent(), keeper=True, lease_s=2)
        run = await all_.submit("sleeper")
        await eventually(lambda: sleepers.asleep)
        for coordinator in all_.members:
            if hasattr(coordinator.actor, "_carrier"):
                coordinator.actor._carrier._notify = lambda *_: None
        await all_.submitter.cancel(run)
        record = await all_.ended(run, 8)
        assert record.status is Status.CANCELED
        assert sleepers.woken == 1
