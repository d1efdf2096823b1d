"""Cancel ends a tree: provably, whatever its runs are doing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.topics.errors import IllegalTransition
from callboard.topics.messages import RunRecord, Status
from tests.support import invariants
from tests.support.system import System, system


@pytest.fixture
async def whole(nats: ServerProcess, tmp_path: Path) -> AsyncIterator[System]:
    async with system(nats.url, tmp_path) as found:
        found.start("coordinator")
        found.start("coordinator")
        found.start("worker", "--concurrency", "8")
        await found.ready(coordinators=2)
        yield found


async def tree(whole: System, run: str) -> dict[str, RunRecord]:
    await whole.submitter.wait(run, 20)
    return {record.id: record for record in await whole.submitter._log.tree(run)}


async def started(whole: System, run: str, runs: int) -> None:
    """Waits until the tree has so many runs."""
    async with asyncio.timeout(20):
        while len(await whole.submitter._log.tree(run)) < runs:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("action", "status"),
    [("cancel", Status.CANCELED), ("interrupt", Status.INTERRUPTED), ("rollback", Status.ROLLED_BACK)],
)
async def test_a_tree_with_running_waiting_and_queued_runs_ends_as_asked(
    whole: System, action: str, status: Status
) -> None:
    run = await whole.submit("tree", {"width": 20, "steps": 40, "seconds": 0.25})
    await started(whole, run, 21)
    await asyncio.sleep(0.5)
    record, _ = await whole.submitter.cancel(run, action=action)  # type: ignore[arg-type]
    assert record.status in (Status.CANCEL_REQUESTED, status)
    found = await tree(whole, run)
    assert {one.status for one in found.values()} == {status}
    assert len(found) == 21
    before = len(whole.effects())
    await asyncio.sleep(1)
    assert len(whole.effects()) == before, "something still works"
    await invariants.check(whole.bus, [run])


async def test_finished_children_keep_their_results_and_the_root_ends_last(whole: System) -> None:
    run = await whole.submit("mixed", {"quick": 3, "slow": 3})
    await started(whole, run, 7)
    await asyncio.sleep(1)
    await whole.submitter.cancel(run, reason="enough")
    found = await tree(whole, run)
    below = [one for one in found.values() if one.parent == run]
    assert sorted(str(one.status) for one in below) == ["canceled"] * 3 + ["completed"] * 3
    assert all(one.result is not None for one in below if one.status is Status.COMPLETED)
    root = found[run]
    assert root.status is Status.CANCELED
    assert root.reason is not None
    assert "enough" in root.reason
    assert root.ended_at is not None
    assert all(one.ended_at is not None and one.ended_at <= root.ended_at for one in below)


async def test_the_run_alone_leaves_its_children_and_its_children_alone_leave_it(whole: System) -> None:
    alone = await whole.submit("tree", {"width": 3, "steps": 8, "seconds": 0.2})
    below = await whole.submit("forgiving", {"steps": 100, "seconds": 0.2})
    await started(whole, alone, 4)
    await started(whole, below, 4)
    await asyncio.sleep(0.3)
    await whole.submitter.cancel(alone, scope="run")
    await whole.submitter.cancel(below, scope="children")
    assert (await whole.finished(alone)).status is Status.CANCELED
    assert (await whole.finished(below)).status is Status.COMPLETED
    for one in await whole.submitter._log.tree(alone):
        expected = Status.CANCELED if one.id == alone else Status.COMPLETED
        assert (await whole.finished(one.id)).status is expected
    for one in await whole.submitter._log.tree(below):
        assert one.status is (Status.COMPLETED if one.id == below else Status.CANCELED)


async def test_detached_children_live_on(whole: System) -> None:
    run = await whole.submit("detacher", {"steps": 4, "seconds": 0.3})
    await started(whole, run, 2)
    await asyncio.sleep(0.2)
    await whole.submitter.cancel(run)
    found = await tree(whole, run)
    assert found[run].status is Status.CANCELED
    (child,) = [one for one in found.values() if one.parent == run]
    assert (await whole.finished(child.id)).status is Status.COMPLETED


async def test_sleeping_and_backing_off_runs_and_runs_without_a_worker_end_at_once(whole: System) -> None:
    runs = {
        "napper": await whole.submit("napper", 3600),
        "flaky": await whole.submit("flaky", None),
        "nobody": await whole.submit("nobody-serves-this", None),
    }
    await asyncio.sleep(3.5)
    for name, run in runs.items():
        record, alive = await whole.submitter.cancel(run)
        assert (record.status, alive) == (Status.CANCELED, []), name
        again, _ = await whole.submitter.cancel(run)
        assert again.status is Status.CANCELED, "a second cancel is harmless"
    done = await whole.submit("plus", 1)
    await whole.finished(done)
    with pytest.raises(IllegalTransition):
        await whole.submitter.cancel(done)
    await invariants.check(whole.bus, runs.values())


async def test_a_stalled_worker_s_runs_are_orphaned_and_the_root_ends(nats: ServerProcess, tmp_path: Path) -> None:
    async with system(nats.url, tmp_path) as whole:
        whole.start("coordinator", CALLBOARD_CANCEL_GRACE_S="2")
        first = whole.start("worker", "--concurrency", "2", CALLBOARD_LEASE_S="2")
        await whole.ready()
        run = await whole.submit("tree", {"width": 2, "steps": 50, "seconds": 0.2})
        await started(whole, run, 3)
        await asyncio.sleep(1.5)
        whole.pause(first)
        _, alive = await whole.submitter.cancel(run)
        assert alive, "the answer names what is still alive"
        found = await tree(whole, run)
        assert found[run].status is Status.CANCELED
        assert {one.status for one in found.values() if one.parent == run} == {Status.ORPHANED}
        whole.go_on(first)
        await asyncio.sleep(1)
        await invariants.check(whole.bus, [run])


async def test_a_coordinator_killed_in_the_middle_of_a_cancel(whole: System) -> None:
    run = await whole.submit("tree", {"width": 40, "steps": 40, "seconds": 0.25})
    await started(whole, run, 41)
    await asyncio.sleep(0.5)
    cancel = asyncio.create_task(whole.submitter.cancel(run))
    await asyncio.sleep(0.02)
    for name in [name for name in whole.processes if name.startswith("coordinator")]:
        whole.kill(name)
    whole.start("coordinator")
    await cancel
    found = await tree(whole, run)
    assert {one.status for one in found.values()} == {Status.CANCELED}
    await invariants.check(whole.bus, [run])
