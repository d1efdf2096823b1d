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

SETTINGS = RuntimeSettings(grace_s=2, lease_s=1, blocked_after_s=0.3)


def crunch() -> None:
    """What belongs into a step."""
    time.sleep(2.5)


@pytest.mark.parametrize("nested", [False, True])
async def test_the_agent_and_its_run_are_named_and_keep_the_lease(
    settings: BrokerSettings, bus: Bus, caplog: pytest.LogCaptureFixture, nested: bool
) -> None:
    async def inner() -> None:
        crunch()

    @agent("blocker")
    async def blocker(ctx: Context) -> int:
        if nested:
            async with asyncio.TaskGroup() as group:
                group.create_task(inner())
        else:
            crunch()
        return ctx.run.attempt

    async with company(settings, bus) as all_:
        await all_.join(
            lambda bus, leases: AgentWorker(bus, [blocker], leases, lease_s=1), runtime=SETTINGS, keeper=True
        )
        record = await all_.run("blocker")
        assert result_of(record) == 1, "no second attempt, although it stood still for more than two leases"
    warned = [one for one in caplog.records if "has stood still" in one.message and record.id in one.message]
    assert len(warned) == 1
    assert warned[0].levelno == logging.WARNING
    text = warned[0].message
    assert f"'run {record.id} of agent blocker'" in text
    assert "crunch() at " in text
    assert "time.sleep(2.5)" in text, "the line is shown"
