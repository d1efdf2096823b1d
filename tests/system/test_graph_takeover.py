"""Graphs and saved loops as separate processes: whoever is killed, each step is done once, and the state goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callboard.actors.audit import audit
from callboard.runtime.nats_server import ServerProcess
from callboard.store.blobs import Blobs
from callboard.store.checkpoints import Checkpoints
from callboard.topics.messages import Status
from tests.support import invariants
from tests.support.system import System, result, system

ROUNDS = 12


@pytest.fixture
async def whole(nats: ServerProcess, tmp_path: Path) -> AsyncIterator[System]:
    async with system(nats.url, tmp_path) as found:
        yield found


async def reaches(whole: System, run: str, step: int) -> None:
    """Waits until a checkpoint with this number is stored."""
    store = Checkpoints(whole.bus, Blobs(whole.bus))
    async with asyncio.timeout(30):
        while (saved := await store.newest(run)) is None or saved.checkpoint.step < step:
            await asyncio.sleep(0.02)


async def kill_holder(whole: System, run: str) -> None:
    """Kills the worker that carries the run out."""
    pids = {beat["id"]: beat["pid"] for beat in await whole.beats()}
    holder = (await invariants.load(whole.bus, run)).worker
    assert holder is not None
    whole.kill(next(name for name, process in whole.processes.items() if process.pid == pids[holder]))


@pytest.mark.crash
@pytest.mark.system
async def test_workers_that_are_killed_in_the_middle_of_supersteps_are_followed_by_others(whole: System) -> None:
    whole.start("coordinator")
    for _ in range(3):
        whole.start("worker", "--concurrency", "4")
    await whole.ready(workers=3)
    woven = await whole.submit("weaver", {"rounds": ROUNDS})
    kept = await whole.submit("keeper", 2 * ROUNDS)
    for at in (4, 20):
        await reaches(whole, woven, at)
        await kill_holder(whole, woven)
    done = [f"{woven} {turn} {node}" for turn in range(ROUNDS) for node in ("first", "left", "right")]
    record = await whole.finished(woven, 60)
    assert (record.status, result(record)) == (Status.COMPLETED, {"done": done}), record
    assert record.attempt == 3
    loop = await whole.finished(kept, 60)
    assert result(loop) == [f"{kept} {index}" for index in range(2 * ROUNDS)]
    executed = Counter(whole.effects())
    assert set(done) <= executed.keys()
    again = [line for line, count in executed.items() if count > 1]
    assert len(again) <= 2 * 3, f"at most the step under way of each run at each kill: {again}"
    report = await audit(whole.bus, wait_s=2.0, blobs=True)
    assert report.clean, report.findings
    history = await Checkpoints(whole.bus, Blobs(whole.bus)).history(woven, limit=999)
    assert [saved.checkpoint.step for saved in history] == [*range(3 * ROUNDS, -1, -1)]


@pytest.mark.crash
@pytest.mark.system
async def test_a_worker_that_was_stopped_writes_no_checkpoint_after_it_was_taken_over(whole: System) -> None:
    whole.start("coordinator")
    first = whole.start("worker", "--concurrency", "4")
    await whole.ready()
    woven = await whole.submit("weaver", {"rounds": ROUNDS})
    await reaches(whole, woven, 4)
    whole.pause(first)
    whole.start("worker", "--concurrency", "4")
    await reaches(whole, woven, 12)
    whole.go_on(first)
    record = await whole.finished(woven, 60)
    assert record.status is Status.COMPLETED
    report = await audit(whole.bus, wait_s=2.0)
    assert report.clean, report.findings
    history = await Checkpoints(whole.bus, Blobs(whole.bus)).history(woven, limit=999)
    assert [saved.checkpoint.step for saved in history] == [*range(3 * ROUNDS, -1, -1)]
