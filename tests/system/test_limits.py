"""An agent's limits in a whole installation of processes: never more at once, whoever is killed."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.store.log import EventLog, decode_record
from callboard.topics.messages import RunRecord, Status
from tests.support.system import System, system


async def attempts(whole: System, run: str) -> list[tuple[datetime, datetime]]:
    """When each attempt of a run began and ended, as its states tell."""
    states: list[RunRecord] = []
    async for page in EventLog(whole.bus).history(run):
        states += [decode_record(one.data) for one in page if one.kind == "state"]
    return [(one.updated_at, after.updated_at) for one, after in pairwise(states) if one.status is Status.RUNNING]


def most(spans: list[tuple[datetime, datetime]]) -> int:
    """How many of them were under way at once."""
    changes = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    under_way = found = 0
    for _, change in changes:
        under_way += change
        found = max(found, under_way)
    return found


@pytest.mark.system
async def test_limits_hold_while_workers_and_coordinators_are_killed(nats: ServerProcess, tmp_path: Path) -> None:
    async with system(nats.url, tmp_path) as whole:
        coordinators = [whole.start("coordinator") for _ in range(2)]
        workers = [whole.start("worker", "--concurrency", "8") for _ in range(3)]
        await whole.ready(2, 3)
        jobs = [{"steps": 3, "seconds": 0.15, "key": n % 4} for n in range(24)]
        runs = await asyncio.gather(*(whole.submit("narrow", job) for job in jobs))
        begun = time.monotonic()
        for victims, role in ((workers, "worker"), (coordinators, "coordinator"), (workers, "worker")):
            await asyncio.sleep(1.2)
            whole.kill(victims.pop())
            whole.start(role)
        for run in runs:
            assert (await whole.finished(run, 25)).status is Status.COMPLETED
        assert time.monotonic() - begun < 20, "slots were lost until a lease was over"
        found = [await attempts(whole, run) for run in runs]
        assert most([span for spans in found for span in spans]) <= 2
        for key in range(4):
            assert most([span for spans in found[key::4] for span in spans]) == 1
