"""A worker stands still past its lease and comes back: what it still wants to write is refused and counted, kind by
kind, and it begins nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from callboard.runtime.nats_server import ServerProcess
from callboard.store.journal import ENTRY_KINDS, entries
from callboard.topics import reads
from callboard.topics.messages import Status
from tests.actors.company import eventually
from tests.support.system import System, result, system

AGENTS = str(Path(__file__).with_name("late_agents.py"))
WRITES = ("step", "artifact", "custom", "delta", "message", "checkpoint", "outcome")
"""What the broker, or a coordinator, has to refuse."""
BEGINNINGS = ("begin", "child", "effect", "process", "said")
"""What the attempt does not even begin."""


async def beats(whole: System) -> list[dict[str, Any]]:
    """What all processes say of themselves."""
    return [msgspec.json.decode(one.data) for one in await whole.bus.gather(whole.bus.subjects.worker, wait_s=0.3)]


async def test_what_a_stalled_attempt_does_when_it_comes_back(nats: ServerProcess, tmp_path: Path) -> None:
    async with system(nats.url, tmp_path) as whole:
        whole.start("coordinator")
        lease = {"CALLBOARD_LEASE_S": "1.5", "CALLBOARD_BEAT_S": "0.2"}
        old = whole.start("worker", AGENTS, **lease)
        await whole.ready()
        kinds = (*WRITES, *BEGINNINGS)
        runs = {
            kind: await whole.submit(
                "late", [str(tmp_path), kind], metadata={"kind": kind}, thread="t" if kind == "said" else None
            )
            for kind in kinds
        }
        for kind in kinds:
            await eventually((tmp_path / f"{kind}.1").exists, 20, whole.logs)
        whole.pause(old)
        whole.start("worker", AGENTS, **lease)
        for kind in kinds:
            record = await whole.finished(runs[kind])
            assert (record.status, record.attempt, result(record)) == (Status.COMPLETED, 2, "done"), kind
        before = sorted(whole.effects())
        assert before == sorted(f"{kind} 2" for kind in BEGINNINGS if kind != "said")

        (tmp_path / "go").touch()
        whole.go_on(old)
        wanted = {
            "step": 1,
            "artifact": 1,
            "custom": 1,
            "delta": 1,
            "message": 1,
            "checkpoint": 1,
            "outcome": 1,
            "effect": 1,
        }  # the effect's claim: nothing was called

        found: list[dict[str, int]] = []

        async def counted() -> bool:
            found[:] = [one.get("refused", {}) for one in await beats(whole) if one["agents"]]
            return wanted in found

        await eventually(counted, 10, lambda: f"{wanted} were refused, not {found}\n{whole.logs()}")
        for kind in set(BEGINNINGS) - {"effect"}:
            words = f"run {runs[kind]} has moved on while its lease was in doubt"
            await eventually(lambda words=words: words in whole.log(old), 5, whole.logs)  # type: ignore[misc]

        async def told() -> bool:
            coordinator = [one for one in await beats(whole) if "coordinator" in one["actors"]]
            return coordinator[0].get("refused") == {"outcome": 1}

        await eventually(told, 10, whole.logs)
        await asyncio.sleep(0.5)  # longer than anything that had begun would need to leave its line
        assert sorted(whole.effects()) == before, "nothing was begun"
        for run in runs.values():
            await no_entry_of_the_first_attempt(whole, run)


async def no_entry_of_the_first_attempt(whole: System, run: str) -> None:
    subjects = whole.bus.subjects
    async for page in reads.read(whole.bus, subjects.events, f"{subjects.run}.{run}.{run}.*"):
        for stored in page:
            kind = stored.subject.rpartition(".")[2]
            if kind == "checkpoint":
                assert msgspec.json.decode(stored.data)["attempt"] == 2
            if kind in ENTRY_KINDS:
                assert all(one.attempt == 2 or getattr(one, "status", "") == "started" for one in entries(stored))
