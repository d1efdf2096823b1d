"""Steps in processes of their own in real workers: nothing of them outlives the worker, however it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.topics.messages import Status
from tests.actors.company import eventually
from tests.support.system import result, system

AGENTS = str(Path(__file__).with_name("isolated_agents.py"))


def running(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_the_group_ends_with_its_worker_and_the_run_goes_on_elsewhere(
    nats: ServerProcess, tmp_path: Path, end: str
) -> None:
    async with system(nats.url, tmp_path) as whole:
        whole.start("coordinator")
        first = whole.start("worker", AGENTS, CALLBOARD_GRACE_S="0.5")
        await whole.ready()
        run = await whole.submit("apart", str(tmp_path))
        file = tmp_path / "pids"
        await eventually(file.exists, 40, whole.logs)
        pids = [int(word) for word in file.read_text().split()]
        assert len(pids) == 3
        assert all(map(running, pids))
        whole.kill(first) if end == "kill" else whole.stop(first)
        await eventually(lambda: not any(map(running, pids)), 5, lambda: f"{pids} have ended")
        whole.start("worker", AGENTS)
        record = await whole.finished(run)
        assert (record.status, record.attempt, result(record)) == (Status.COMPLETED, 2, "done")
