"""The same promises on a cluster of three nats-servers, with three copies of every stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from callboard.topics.messages import Status
from tests.support import invariants
from tests.support.nats import Cluster, private_cluster
from tests.support.system import System, result, system


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with private_cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
async def whole(cluster: Cluster, tmp_path: Path) -> AsyncIterator[System]:
    async with system(cluster.url, tmp_path, replicas=3) as found:
        for _ in range(2):
            found.start("coordinator")
        for _ in range(2):
            found.start("worker", "--concurrency", "8")
        await found.ready(coordinators=2, workers=2)
        yield found


async def test_runs_trees_and_sleeps_on_three_replicas(whole: System) -> None:
    plain = [await whole.submit("plus", number) for number in range(50)]
    tree = await whole.submit("tree", {"width": 10, "steps": 2, "seconds": 0.05})
    nap = await whole.submit("napper", 3)
    for number, run in enumerate(plain):
        assert result(await whole.finished(run)) == number + 1
    assert result(await whole.finished(tree)) == 20
    assert (await whole.finished(nap)).status is Status.COMPLETED
    await invariants.check(whole.bus, [*plain, tree, nap])


async def test_a_killed_server_a_killed_worker_and_a_killed_coordinator_lose_nothing(
    whole: System, cluster: Cluster
) -> None:
    runs = [await whole.submit("tree", {"width": 4, "steps": 3, "seconds": 0.1}) for _ in range(6)]
    leader = cluster.leader
    cluster.kill(leader)
    await asyncio.sleep(0.5)
    names = list(whole.processes)
    whole.kill(next(name for name in names if name.startswith("worker")))
    whole.kill(next(name for name in names if name.startswith("coordinator")))
    runs += [await whole.submit("plus", number) for number in range(20)]
    cluster.restart(leader)
    for run in runs:
        assert (await whole.finished(run, 90)).status is Status.COMPLETED
    await invariants.check(whole.bus, runs)
