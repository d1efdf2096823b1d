"""One of two coordinators is killed with a request in its hand: the other one answers it within two seconds."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.topics.crash import VARIABLE
from callboard.topics.messages import Status
from tests.support import invariants
from tests.support.system import System, system

LOST_S = 2.0
"""One request that is sent again after a second, and what the run takes besides."""
POINTS = {
    "coordinator.before-submit-reply": "a submit",
    "coordinator.before-grant": "a claim",
    "coordinator.before-verdict": "an outcome",
    "coordinator.before-children-reply": "a request for children",
    "coordinator.before-effects.cancel_requested": "a cancel",
}

pytestmark = [pytest.mark.crash, pytest.mark.system, pytest.mark.proof]


async def one_run(whole: System, point: str) -> float:
    """Seconds from before the submit of a run to its end; it makes a request of the kind that the point is about."""
    started = time.monotonic()
    if "cancel" in point:
        run = await whole.submit("job", {"steps": 1, "seconds": 3600})
        async with asyncio.timeout(10):
            while (await invariants.load(whole.bus, run)).status is not Status.RUNNING:
                await asyncio.sleep(0.01)
        await whole.submitter.cancel(run)
    else:
        run = await whole.submit("waiter" if "children" in point else "plus", 1)
    record = await whole.finished(run)
    assert record.status is (Status.CANCELED if "cancel" in point else Status.COMPLETED), record
    return time.monotonic() - started


async def test_a_request_outlives_its_coordinator(nats: ServerProcess, tmp_path: Path) -> None:
    async with system(nats.url, tmp_path) as whole:
        whole.start("coordinator")
        whole.start("worker")
        await whole.ready()
        for point, what in POINTS.items():
            usual = max([await one_run(whole, point) for _ in range(3)])
            name = whole.start("coordinator", **{VARIABLE: point})
            await whole.ready(coordinators=2)
            took: list[float] = []
            while whole.processes[name].poll() is None:
                took.append(await one_run(whole, point))
                assert len(took) < 200, f"{point} was never passed"
            assert f"crash point {point}" in whole.log(name)
            assert max(took) < usual + LOST_S, f"{what} waited: {took} s, and {usual} s with one coordinator"
        await invariants.check(whole.bus)
