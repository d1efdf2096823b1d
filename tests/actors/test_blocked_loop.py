"""Code that blocks the loop of its worker: named with its run, and its lease is kept."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from callboard.actors.agent import agent
from callboard.actors.engine import Context
from callboard.actors.worker import AgentWorker
from callboard.runtime.config import RuntimeSettings
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from tests.actors.company import company, result_of

SETTINGS = RuntimeSettings(grace_s=2, lease_s=2, blocked_after_s=0.3)


def crunch(seconds: float) -> None:
    """What belongs into a step."""
    time.sleep(seconds)


async def test_the_agent_and_its_run_are_named_and_keep_the_lease(
    settings: BrokerSettings, bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    """In the agent's own task as well as in one that it has created."""

    async def inner() -> None:
        crunch(4.5)

    @agent("blocker")
    async def blocker(ctx: Context) -> int:
        crunch(0.7)
        await asyncio.sleep(0.3)
        async with asyncio.TaskGroup() as group:
            group.create_task(inner())
        return ctx.run.attempt

    async with company(settings, bus) as all_:
        await all_.join(
            lambda bus, leases: AgentWorker(bus, [blocker], leases, lease_s=2), runtime=SETTINGS, keeper=True
        )
        record = await all_.run("blocker", within_s=30)
        assert result_of(record) == 1, "no second attempt, although it stood still for more than two leases"
    warned = [one for one in caplog.records if "has stood still" in one.message and record.id in one.message]
    assert len(warned) == 2
    for one in warned:
        assert one.levelno == logging.WARNING
        assert f"'run {record.id} of agent blocker'" in one.message
        assert "crunch() at " in one.message
        assert "time.sleep(seconds)" in one.message, "the line is shown"
