"""The whole system as separate processes: what each role promises when it is killed."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from callboard.actors.coordinator.transitions import MAX_LOSSES
from callboard.runtime.nats_server import ServerProcess
from callboard.topics.messages import Status
from tests.support import invariants
from tests.support.system import System, free_port, result, serving, system


@pytest.fixture
async def whole(nats: ServerProcess, tmp_path: Path) -> AsyncIterator[System]:
    async with system(nats.url, tmp_path) as found:
        yield found


def executions(whole: System) -> Counter[str]:
    return Counter(whole.effects())


async def test_a_killed_worker_s_runs_go_on_elsewhere_within_two_seconds(whole: System) -> None:
    whole.start("coordinator")
    first = whole.start("worker", "--concurrency", "4")
    await whole.ready()
    runs = [await whole.submit("job", {"steps": 20, "seconds": 0.25}) for _ in range(4)]
    await asyncio.sleep(0.5)
    second = whole.start("worker", "--concurrency", "4")
    await whole.ready(workers=2)
    whole.kill(first)
    killed = time.monotonic()
    records = [await whole.finished(run) for run in runs]
    assert time.monotonic() - killed < 20 * 0.25 + 2.5
    assert all(record.status is Status.COMPLETED and record.attempt == 2 for record in records)
    await invariants.check(whole.bus, runs)
    doubled = [line for line, count in executions(whole).items() if count > 1]
    assert len(doubled) <= 4, f"only the step under way at the kill may run again: {doubled}"
    assert whole.stop(second) == 0


async def test_two_coordinators_one_killed_and_nothing_is_lost_or_doubled(whole: System) -> None:
    first, _ = whole.start("coordinator"), whole.start("coordinator")
    whole.start("worker", "--concurrency", "16")
    await whole.ready(coordinators=2)
    runs = [await whole.submit("job", {"steps": 2, "seconds": 0.05}) for _ in range(60)]
    whole.kill(first)
    runs += [await whole.submit("job", {"steps": 2, "seconds": 0.05}) for _ in range(60)]
    for run in runs:
        assert (await whole.finished(run, 60)).status is Status.COMPLETED
    await invariants.check(whole.bus, runs)
    assert set(executions(whole).values()) == {1}


async def test_the_only_coordinator_killed_again_and_again(whole: System) -> None:
    name = whole.start("coordinator")
    whole.start("worker", "--concurrency", "8")
    await whole.ready()
    runs = [await whole.submit("tree", {"width": 5, "steps": 2, "seconds": 0.1}) for _ in range(6)]
    for _ in range(3):
        await asyncio.sleep(0.25)
        whole.kill(name)
        name = whole.start("coordinator")
        await whole.ready()
    for run in runs:
        record = await whole.finished(run, 60)
        assert (record.status, result(record)) == (Status.COMPLETED, 10)
    await invariants.check(whole.bus, runs)
    assert set(executions(whole).values()) == {1}


async def test_nats_server_killed_and_restarted_every_process_reconnects(whole: System, nats: ServerProcess) -> None:
    whole.start("coordinator")
    whole.start("worker", "--concurrency", "8")
    await whole.ready()
    runs = [await whole.submit("job", {"steps": 3, "seconds": 0.2}) for _ in range(12)]
    await asyncio.sleep(0.5)
    nats.kill()
    await asyncio.sleep(0.5)
    nats.start()
    for run in runs:
        assert (await whole.finished(run, 60)).status is Status.COMPLETED
    late = await whole.submit("plus", 1)
    assert result(await whole.finished(late)) == 2
    await invariants.check(whole.bus, [*runs, late])


async def test_a_killed_gateway_loses_nothing_and_its_clients_go_on_with_last_event_id(whole: System) -> None:
    whole.start("coordinator")
    whole.start("worker", "--concurrency", "4")
    port = free_port()
    gateway = whole.start("gateway", "--port", str(port))
    await whole.ready()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
        await serving(http)
        answer = await http.post("/runs", json={"agent": "job", "input": {"steps": 8, "seconds": 0.2}})
        assert answer.status_code == 202, answer.text
        run = answer.json()["run"]
        ids: list[str] = []
        try:
            await _read_events(http, run, ids, stop_after=4)
        finally:
            whole.kill(gateway)
        whole.start("gateway", "--port", str(port))
        await serving(http)
        await _read_events(http, run, ids)
    assert (await whole.finished(run)).status is Status.COMPLETED
    stored = (await invariants.histories(whole.bus))[run]
    assert [int(one.partition(".")[0]) for one in ids] == [one.sequence for one in stored]


async def _read_events(http: httpx.AsyncClient, run: str, ids: list[str], stop_after: int | None = None) -> None:
    headers = {"Last-Event-ID": ids[-1]} if ids else {}
    async with http.stream("GET", f"/runs/{run}/events", headers=headers) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("id:"):
                ids.append(line[3:].strip())
            if stop_after is not None and len(ids) >= stop_after:
                return


async def test_five_hundred_waiting_parents_with_one_worker_of_four(whole: System) -> None:
    whole.start("coordinator")
    whole.start("worker", "--concurrency", "4")
    await whole.ready()
    runs = [await whole.submit("waiter", number) for number in range(500)]
    for number, run in enumerate(runs):
        assert result(await whole.finished(run, 60)) == number + 1
    await invariants.check(whole.bus, runs)


async def test_a_poison_task_is_parked_and_others_go_on(whole: System) -> None:
    whole.start("coordinator")
    run = await whole.submit("poison")
    deadline = time.monotonic() + 60
    while not (await invariants.load(whole.bus, run)).terminal:
        assert time.monotonic() < deadline
        name = whole.start("worker", "--concurrency", "2")
        process = whole.processes[name]
        while process.poll() is None and not (await invariants.load(whole.bus, run)).terminal:
            await asyncio.sleep(0.05)
    record = await whole.finished(run)
    assert record.status is Status.FAILED
    assert record.error is not None
    assert record.error.code == "worker_lost"
    whole.start("worker")
    other = await whole.submit("plus", 1)
    assert result(await whole.finished(other)) == 2


@pytest.mark.parametrize(
    "job", [{"steps": 1, "seconds": 2.0}, pytest.param({"steps": 12, "seconds": 0.2}, marks=pytest.mark.proof)]
)
async def test_runs_that_stand_beside_a_poison_task_are_not_parked_with_it(whole: System, job: dict[str, Any]) -> None:
    """All in one process, which dies again and again; they take longer than it takes to die."""
    whole.start("coordinator")
    runs = [await whole.submit("job", job) for _ in range(3)]
    poison = await whole.submit("poison")
    deadline = time.monotonic() + 60
    while not (await invariants.load(whole.bus, poison)).terminal:
        assert time.monotonic() < deadline
        process = whole.processes[whole.start("worker", "--concurrency", "8")]
        while process.poll() is None and not (await invariants.load(whole.bus, poison)).terminal:
            await asyncio.sleep(0.05)
    for run in runs:
        record = await whole.finished(run)
        assert record.status is Status.COMPLETED, record
        assert record.losses < MAX_LOSSES - 1
    record = await whole.finished(poison)
    assert (record.status, record.losses) == (Status.FAILED, MAX_LOSSES)
    await invariants.check(whole.bus, [poison, *runs])


@pytest.mark.parametrize("role", ["coordinator", "worker", "gateway", "projector"])
async def test_sigterm_ends_every_role_with_0(whole: System, role: str) -> None:
    whole.start("coordinator")
    arguments = ("--port", str(free_port())) if role == "gateway" else ()
    name = whole.start(role, *arguments)
    async with asyncio.timeout(30):
        while " on NATS " not in whole.log(name):
            assert whole.processes[name].poll() is None, whole.log(name)
            await asyncio.sleep(0.1)
    assert whole.stop(name) == 0
    assert "Traceback" not in whole.log(name)


@pytest.mark.parametrize("role", ["coordinator", "worker", "gateway", "projector"])
async def test_sigterm_at_any_moment_of_the_start_ends_a_role_with_0(whole: System, role: str) -> None:
    for delay_s in (0.0, 0.1, 0.3, 0.6, 1.0):
        arguments = ("--port", str(free_port())) if role == "gateway" else ()
        name = whole.start_afresh(role, *arguments)
        async with asyncio.timeout(30):
            while not _hears_sigterm(whole.processes[name].pid):
                await asyncio.sleep(0.005)
        await asyncio.sleep(delay_s)
        assert whole.stop(name) == 0, f"{delay_s} s after it heard signals\n{whole.log(name)}"


def _hears_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(caught & 1 << (signal.SIGTERM - 1))


async def test_sigterm_hands_a_long_run_back_and_another_worker_finishes_it(whole: System) -> None:
    whole.start("coordinator")
    first = whole.start("worker", CALLBOARD_GRACE_S="1")
    await whole.ready()
    run = await whole.submit("job", {"steps": 8, "seconds": 0.4})
    await asyncio.sleep(1)
    whole.start("worker")
    await whole.ready(workers=2)
    assert whole.stop(first) == 0
    record = await whole.finished(run)
    assert record.status is Status.COMPLETED
    assert (record.losses, record.failures) == (0, 0)
    await invariants.check(whole.bus, [run])


async def test_code_that_blocks_the_loop_does_not_lose_its_lease(whole: System) -> None:
    whole.start("coordinator")
    worker = whole.start("worker", CALLBOARD_LEASE_S="1.5")
    await whole.ready()
    run = await whole.submit("blocker", 5)
    record = await whole.finished(run)
    assert (record.status, record.attempt) == (Status.COMPLETED, 1)
    assert "blocker" in whole.log(worker), whole.log(worker)


async def test_a_stalled_worker_is_taken_over_and_its_late_writes_are_refused(whole: System) -> None:
    whole.start("coordinator")
    first = whole.start("worker", CALLBOARD_LEASE_S="2")
    await whole.ready()
    run = await whole.submit("job", {"steps": 4, "seconds": 0.5})
    await asyncio.sleep(0.8)
    whole.pause(first)
    whole.start("worker", CALLBOARD_LEASE_S="2")
    record = await whole.finished(run, 20)
    assert (record.status, record.attempt) == (Status.COMPLETED, 2)
    whole.go_on(first)
    await asyncio.sleep(1)
    last = await invariants.check(whole.bus, [run])
    assert last[run].attempt == 2
