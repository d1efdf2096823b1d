"""A nats-server whose disk is full, and one that has reached its own limit: what was acknowledged ends once the server
was started again with room."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from callboard.actors.agent import agent
from callboard.actors.engine import Context
from callboard.runtime.nats_server import ServerProcess, ServerSettings
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import BrokerError, StorageFull, Unavailable
from callboard.topics.ids import new_run_id, new_token
from callboard.topics.streams import ensure_streams
from tests.actors.company import Company, company, result_of
from tests.support.invariants import check
from tests.support.nats import private_server

SMALL, LARGE = 6 * 2**20, 2**30
CHUNK = b"x" * 200_000
executed: Counter[str] = Counter()


@agent("worker", topics=["jobs"])
async def worker(ctx: Context, n: int) -> int:
    return await ctx.step(_count, ctx.run.id, n, returns=int)


def _count(run: str, n: int) -> int:
    executed[run] += 1
    return n


@asynccontextmanager
async def firm_on(server: ServerProcess) -> AsyncIterator[Company]:
    settings = BrokerSettings(nats_url=server.url, namespace=f"t{new_token(8)}", publish_timeout_s=1.0)
    bus = await Bus.connect(settings)
    try:
        await ensure_streams(bus, settings)
        async with company(settings, bus, [worker], keeper=True) as found:  # steps wait longer for room than a lease
            yield found
    finally:
        await bus.close()


async def publish_until_it_fails(firm: Company) -> tuple[list[str], BrokerError]:
    """Tasks, and what fills the disk beside them: the runs that were acknowledged, and how the end of it was told."""
    accepted: list[str] = []
    while True:
        run = new_run_id()
        try:
            await firm.submitter.publish("jobs", b"7", run=run)
            accepted.append(run)
            await firm.bus.write(f"{firm.bus.subjects.topic}.ballast.k", CHUNK)
        except BrokerError as error:
            return accepted, error


async def goes_on(firm: Company, accepted: list[str]) -> None:
    """With room again: new work is taken, and the old ends, each step executed once."""
    await firm.bus.connected()
    assert result_of(await firm.run("worker", 1, within_s=30)) == 1
    for run in accepted:
        assert result_of(await firm.ended(run, 30)) == 7
        assert executed[run] == 1
    await check(firm.bus, accepted)


async def test_a_server_at_its_limit_refuses_at_once_and_goes_on_with_a_larger_one(tmp_path: Path) -> None:
    with private_server(tmp_path, ServerSettings(max_store_bytes=SMALL)) as server:
        async with firm_on(server) as firm:
            accepted, told = await publish_until_it_fails(firm)
            assert isinstance(told, StorageFull)
            assert len(accepted) > 5
            began = time.monotonic()
            with pytest.raises(StorageFull):
                await firm.submitter.publish("jobs", b"7")
            with pytest.raises(StorageFull):
                await firm.submit("worker", 7)
            assert time.monotonic() - began < 1
            server.kill()
            larger = ServerProcess(tmp_path, ServerSettings(max_store_bytes=LARGE))
            larger.start()
            try:
                await goes_on(firm, accepted)
            finally:
                larger.stop()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if sys.platform != "linux" or os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system can only be mounted by root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def test_a_full_disk_loses_nothing_acknowledged(small_disk: Path) -> None:
    """The server answers no publish any more, until it is started again with room on its disk."""
    with private_server(small_disk, ServerSettings(max_store_bytes=LARGE)) as server:
        async with firm_on(server) as firm:
            accepted, told = await publish_until_it_fails(firm)
            assert isinstance(told, Unavailable | StorageFull)
            assert len(accepted) > 5
            subprocess.run(["mount", "-o", "remount,size=96m", str(small_disk)], check=True)
            server.kill()
            server.start()
            await goes_on(firm, accepted)
