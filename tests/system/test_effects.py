"""Effects in a whole installation: workers die between claim and settlement, people decide, cancels undo. What was done
outside is counted in a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.topics.messages import RunRecord, Status
from tests.support import invariants
from tests.support.system import System, free_port, result, serving, system

AGENTS = str(Path(__file__).with_name("effect_agents.py"))


@pytest.fixture
async def whole(nats: ServerProcess, tmp_path: Path) -> AsyncIterator[System]:
    async with system(nats.url, tmp_path) as found:
        found.start("coordinator")
        found.start("worker", AGENTS)
        found.start("worker", AGENTS)
        await found.ready(workers=2)
        yield found


async def cli(whole: System, *words: str) -> tuple[int, str]:
    """Exit code and output of a command."""
    done = await whole.command(*words)
    return done.returncode, done.stdout + done.stderr


async def listed(whole: System, run: str) -> dict[str, dict[str, Any]]:
    """The effects of a run by name, as the command line prints them."""
    code, text = await cli(whole, "runs", "effects", run, "--json")
    assert code == 0, text
    return {one["name"]: one for one in map(msgspec.json.decode, text.splitlines())}


async def becomes(whole: System, run: str, status: Status, within_s: float = 20) -> RunRecord:
    async with asyncio.timeout(within_s):
        while True:
            record = await invariants.load(whole.bus, run)
            if record.status is status:
                return record
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("die", ["before", "after"])
async def test_a_hook_finds_out_whether_the_killed_worker_s_call_happened(whole: System, die: str) -> None:
    """Killed before the outside was reached: called again. Killed after it: not called again."""
    run = await whole.submit("shop", {"order": "o1", "die": die, "hook": True})
    record = await whole.finished(run)
    assert result(record)["charged"] == {"before": "charged o1", "after": f"found {run}/1"}[die]
    assert whole.effects() == [f"reserve {run}/0", f"charge {run}/1"]
    found = await listed(whole, run)
    assert (found["charge"]["status"], found["charge"]["calls"]) == ("settled", {"before": 2, "after": 1}[die])
    await invariants.check(whole.bus, [run])


async def test_without_a_hook_the_run_waits_and_a_person_decides_on_the_command_line(whole: System) -> None:
    run = await whole.submit("shop", {"order": "o1", "die": "after"})
    record = await becomes(whole, run, Status.INPUT_REQUIRED)
    assert "'charge' (1)" in (record.reason or "")
    await asyncio.sleep(1)
    assert whole.effects() == [f"reserve {run}/0", f"charge {run}/1"], "not repeated while nobody knows"
    found = await listed(whole, run)
    assert {name: one["status"] for name, one in found.items()} == {"reserve": "settled", "charge": "unknown"}
    code, text = await cli(whole, "runs", "effects", run)
    assert code == 0
    assert "unknown" in text
    code, text = await cli(whole, "runs", "reconcile", run, "charge")
    assert code == 2, text
    code, text = await cli(whole, "runs", "reconcile", run, "nothing", "--happened")
    assert code != 0
    assert "it waits for 1 (charge)" in text
    code, text = await cli(
        whole, "runs", "reconcile", run, "charge", "--happened", '"seen in the bank"', "--reason", "x"
    )
    assert code == 0, text
    assert result(await whole.finished(run)) == {"reserved": "reservation of o1", "charged": "seen in the bank"}
    assert len(whole.effects()) == 2
    assert (await listed(whole, run))["charge"]["settled_by"] == "person"
    await invariants.check(whole.bus, [run])


async def test_over_http_what_did_not_happen_is_done_again_with_the_same_key(whole: System) -> None:
    port = free_port()
    whole.start("gateway", CALLBOARD_PORT=str(port))
    run = await whole.submit("shop", {"order": "o1", "die": "before"})
    await becomes(whole, run, Status.INPUT_REQUIRED)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as http:
        await serving(http)
        answer = await http.get(f"/runs/{run}/effects")
        assert answer.status_code == 200
        one = {each["name"]: each for each in answer.json()["effects"]}["charge"]
        assert (one["status"], one["place"], one["key"], one["settled_at"]) == ("unknown", "1", f"{run}/1", None)
        path = f"/runs/{run}/effects/1/reconcile"
        assert (await http.post(path, json={"happened": False, "value": 1})).status_code == 422
        assert (await http.post(f"/runs/{run}/effects/9/reconcile", json={"happened": True})).status_code == 409
        answer = await http.post(path, json={"happened": False, "reason": "not in the books"})
        assert (answer.status_code, answer.json()["unknown"]) == (200, [])
        assert (await http.post(path, json={"happened": False})).status_code in (200, 409)
        assert result(await whole.finished(run))["charged"] == "charged o1"
        effects = (await http.get(f"/runs/{run}/effects")).json()["effects"]
        assert [each["status"] for each in effects] == ["settled", "settled"]
    assert whole.effects() == [f"reserve {run}/0", f"charge {run}/1"]
    await invariants.check(whole.bus, [run])


@pytest.mark.parametrize(("action", "status"), [("cancel", Status.CANCELED), ("rollback", Status.ROLLED_BACK)])
async def test_a_sleeping_run_is_undone_in_reverse_order_and_still_lists_its_effects(
    whole: System, action: Any, status: Status
) -> None:
    run = await whole.submit("shop", {"order": "o1", "sleep": 3600})
    await becomes(whole, run, Status.WAITING)
    await whole.submitter.cancel(run, action=action)
    assert (await whole.finished(run)).status is status
    assert whole.effects()[2:] == [f"refund o1 {run}/1:undo", f"release reservation of o1 {run}/0:undo"]
    found = await listed(whole, run)
    assert {name: one["status"] for name, one in found.items()} == {"reserve": "compensated", "charge": "compensated"}
    await invariants.check(whole.bus, [run])


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ("worker.after-effect-claim:2", ["reserve", "charge"]),
        ("worker.before-effect-settle:2", ["reserve", "charge"]),
        ("worker.after-effect-settle:2", ["reserve", "charge"]),
    ],
)
async def test_killed_at_any_point_of_an_effect_it_happens_once(
    nats: ServerProcess, tmp_path: Path, point: str, expected: list[str]
) -> None:
    """With a hook that can tell."""
    async with system(nats.url, tmp_path) as whole:
        whole.start("coordinator")
        whole.start("worker", AGENTS, CALLBOARD_CRASH_AT=point)
        await whole.ready()
        run = await whole.submit("shop", {"order": "o1", "hook": True})
        await died(whole, "worker-2")
        whole.start("worker", AGENTS)
        await whole.finished(run)
        assert [line.split()[0] for line in whole.effects()] == expected
        await invariants.check(whole.bus, [run])


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ("worker.before-compensation", ["refund", "release"]),
        ("worker.before-compensation-settle", ["refund", "refund", "release"]),
        pytest.param("worker.before-compensation:2", ["refund", "release"], marks=pytest.mark.proof),
        pytest.param("worker.before-compensation-settle:2", ["refund", "release", "release"], marks=pytest.mark.proof),
    ],
)
async def test_killed_in_a_compensation_the_next_worker_goes_on_and_repeats_none_that_is_settled(
    nats: ServerProcess, tmp_path: Path, point: str, expected: list[str]
) -> None:
    """One whose end is not in the log is called again, with the same key."""
    async with system(nats.url, tmp_path) as whole:
        whole.start("coordinator")
        whole.start("worker", AGENTS, CALLBOARD_CRASH_AT=point)
        await whole.ready()
        run = await whole.submit("shop", {"order": "o1", "sleep": 3600})
        await becomes(whole, run, Status.WAITING)
        await whole.submitter.cancel(run, action="rollback")
        await died(whole, "worker-2")
        whole.start("worker", AGENTS)
        assert (await whole.finished(run)).status is Status.ROLLED_BACK
        undone = whole.effects()[2:]
        assert [line.split()[0] for line in undone] == expected
        assert len(set(undone)) == 2, "the same key each time"
        found = await listed(whole, run)
        assert [one["status"] for one in found.values()] == ["compensated", "compensated"]
        await invariants.check(whole.bus, [run])


async def died(whole: System, name: str) -> None:
    """Waits for the end of a process."""
    async with asyncio.timeout(20):
        while whole.processes[name].poll() is None:
            await asyncio.sleep(0.05)
    whole.processes.pop(name)
