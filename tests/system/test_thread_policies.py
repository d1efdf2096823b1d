"""Policies of threads over every way to start a run, and with coordinators that die."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.store.schedules import Schedules
from callboard.store.threads import Threads
from callboard.topics.ids import new_run_id
from callboard.topics.messages import RunRecord, Status
from tests.support import invariants
from tests.support.system import System, free_port, serving, system

LONG = {"steps": 100, "seconds": 0.1}
SHORT = {"steps": 2, "seconds": 0.1}


@pytest.fixture
async def whole(nats: ServerProcess, tmp_path: Path) -> AsyncIterator[System]:
    async with system(nats.url, tmp_path) as found:
        found.start("coordinator")
        found.start("coordinator")
        found.start("worker", "--concurrency", "16")
        await found.ready(coordinators=2)
        yield found


async def reaches(whole: System, run: str, status: Status) -> RunRecord:
    async with asyncio.timeout(20):
        while True:
            loaded = await whole.submitter._log.load(run)
            if loaded is not None and loaded.record.status is status:
                return loaded.record
            await asyncio.sleep(0.02)


async def busy(whole: System, thread: str) -> str:
    """A run that is at work in the thread for a while."""
    run = await whole.submit("job", LONG, thread=thread)
    await reaches(whole, run, Status.RUNNING)
    return run


async def idle(whole: System, thread: str) -> int:
    """The version of the thread, once it is left by all."""
    async with asyncio.timeout(30):
        while True:
            order = (await Threads(whole.bus).head(thread)).order
            if order.active is None and not order.waiting:
                return order.version
            await asyncio.sleep(0.05)


async def test_from_a_topic(whole: System) -> None:
    first = await busy(whole, "t")
    runs = {policy: new_run_id() for policy in ("enqueue", "reject", "fork", "interrupt")}
    for policy, run in runs.items():
        await whole.submitter.publish("job", msgspec.json.encode(SHORT), run=run, thread="t", policy=policy)  # type: ignore[arg-type]
    found = {policy: await whole.finished(run) for policy, run in runs.items()}
    assert (await whole.finished(first)).status in (Status.INTERRUPTED, Status.COMPLETED)
    assert {policy: one.status for policy, one in found.items() if policy != "reject"} == {
        "enqueue": Status.COMPLETED, "fork": Status.COMPLETED, "interrupt": Status.COMPLETED,
    }  # fmt: skip
    assert found["fork"].thread == runs["fork"]
    await whole.bus.store(f"{whole.settings.namespace}.task.job", b"null", b"NATS/1.0\r\nCallboard-Policy: x\r\n\r\n")
    await idle(whole, "t")
    await invariants.check(whole.bus, runs.values())


async def test_over_http(whole: System) -> None:
    port = free_port()
    whole.start("gateway", "--port", str(port), "--no-projector")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as http:
        await serving(http)

        async def post(policy: str, value: Any = None) -> httpx.Response:
            asked = {"agent": "job", "input": value or SHORT, "thread": "t", "policy": policy}
            return await http.post("/runs", json=asked)

        first = (await post("enqueue", LONG)).json()
        assert first["turn"]["did"] == "started"
        await reaches(whole, first["run"], Status.RUNNING)
        refused = await post("reject")
        assert refused.status_code == 409
        assert (refused.json()["code"], refused.json()["busy"]) == ("thread_busy", first["run"])
        assert (await http.get(f"/runs/{refused.json()['run']}")).json()["status"] == "rejected"
        waits = (await post("enqueue")).json()
        assert (waits["turn"]["did"], waits["turn"]["met"], waits["status"]) == ("queued", first["run"], "queued")
        forked = (await post("fork")).json()
        assert (forked["turn"]["did"], forked["turn"]["origin"], forked["thread"]) == ("forked", "t", forked["run"])
        beside = (await post("optimistic")).json()
        assert (beside["turn"]["did"], beside["turn"]["base"]) == ("alongside", 0)
        lost = await whole.finished(beside["run"])
        assert lost.error is not None
        assert lost.error.code == "thread_conflict"
        replaced = (await post("rollback")).json()
        assert (replaced["turn"]["did"], replaced["turn"]["met"]) == ("rolled_back", first["run"])
        assert (await whole.finished(first["run"])).status is Status.ROLLED_BACK
        for run in (waits, forked, replaced):
            assert (await whole.finished(run["run"])).status is Status.COMPLETED
        assert (await http.post("/runs", json={"agent": "job", "policy": "fork"})).status_code == 400
        assert (await http.post("/runs", json={"agent": "job", "thread": "t", "policy": "x"})).status_code == 422


async def test_from_the_command_line(whole: System) -> None:
    first = await busy(whole, "t")
    value = json.dumps(SHORT)
    refused = await whole.command("run", "job", value, "--thread", "t", "--policy", "reject")
    assert refused.returncode != 0
    assert first in refused.stderr
    wrong = await whole.command("run", "job", value, "--thread", "t", "--policy", "x")
    assert wrong.returncode != 0
    assert "interrupt" in wrong.stderr
    published = await whole.command("publish", "job", value, "--thread", "t")
    waits = published.stdout.strip()
    assert "waits for run" in ((await reaches(whole, waits, Status.QUEUED)).reason or "")
    told = json.loads(
        (await whole.command("run", "job", value, "--thread", "t", "--policy", "interrupt", "--json")).stdout
    )
    assert (told["turn"]["did"], told["turn"]["met"]) == ("interrupted", first)
    assert (await whole.finished(first)).status is Status.INTERRUPTED
    for run in (told["run"], waits):
        assert (await whole.finished(run)).status is Status.COMPLETED


async def test_from_a_schedule(whole: System) -> None:
    first = await busy(whole, "t")
    schedules = Schedules(whole.bus)
    due = await schedules.now() + timedelta(seconds=1)
    names = ("reject", "interrupt")
    found = [
        await schedules.put(name, msgspec.json.encode(SHORT), at=due, agent="job", thread="t", policy=name)  # type: ignore[arg-type]
        for name in names
    ]
    rejected, taken = [await whole.finished(one.run_at(one.at)) for one in found if one.at is not None]
    assert rejected.status is Status.REJECTED
    assert taken.status is Status.COMPLETED
    assert (await whole.finished(first)).status is Status.INTERRUPTED


@pytest.mark.crash
async def test_coordinators_die_while_runs_take_their_turns(whole: System) -> None:
    """Of 20 runs under each policy, started while one coordinator after the other is killed, none is lost, none is
    forgotten in a queue, and each ends as its policy says."""

    async def killer() -> None:
        for _ in range(4):
            await asyncio.sleep(0.7)
            name = next(name for name in whole.processes if name.startswith("coordinator"))
            whole.kill(name)
            whole.start("coordinator")

    killing = asyncio.create_task(killer())
    runs: dict[str, list[str]] = {}
    for policy in ("enqueue", "interrupt", "rollback", "fork", "optimistic", "reject"):
        runs[policy] = list(
            await asyncio.gather(*(whole.submit("job", SHORT, thread=policy, policy=policy) for _ in range(20)))
        )
    await killing
    found = {policy: [await whole.finished(run, 60) for run in mine] for policy, mine in runs.items()}
    counts = {policy: Counter(str(one.status) for one in mine) for policy, mine in found.items()}
    assert counts["enqueue"] == {"completed": 20}
    assert counts["fork"] == {"completed": 20}
    assert counts["interrupt"].keys() <= {"completed", "interrupted"}
    assert counts["rollback"].keys() <= {"completed", "rolled_back"}
    assert counts["optimistic"].keys() <= {"completed", "failed"}
    assert counts["reject"].keys() <= {"completed", "rejected"}
    for policy in runs:
        if policy == "fork":
            assert {await idle(whole, one.thread or "") for one in found[policy]} == {1}
            continue
        version = await idle(whole, policy)
        begun = [one for one in found[policy] if one.attempt and one.status is not Status.ROLLED_BACK]
        kept = [one for one in begun if policy != "optimistic" or one.status is Status.COMPLETED]
        assert version == len(kept) >= 1, policy
    await invariants.check(whole.bus, [run for mine in runs.values() for run in mine])
