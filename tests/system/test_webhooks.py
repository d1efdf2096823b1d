"""Webhooks delivered by processes that are killed in the middle: every event arrives, signed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.store.webhooks import Webhooks, new_secret
from tests.support.receiver import Receiver
from tests.support.system import System, system


@pytest.fixture
async def whole(nats: ServerProcess, tmp_path: Path) -> AsyncIterator[System]:
    async with system(nats.url, tmp_path) as found:
        yield found


@pytest.fixture
def secret() -> str:
    return new_secret()


@pytest.fixture
def receiver(secret: str) -> Iterator[Receiver]:
    found = Receiver(secret)
    found.start()
    yield found
    found.stop()


async def all_in(receiver: Receiver, runs: set[str], within_s: float, whole: System) -> None:
    deadline = time.monotonic() + within_s
    while {one.data["run"] for one in receiver.got if one.valid} != runs:
        missing = runs - {one.data["run"] for one in receiver.got}
        assert time.monotonic() < deadline, f"{len(missing)} of {len(runs)} are missing\n{whole.logs()}"
        await asyncio.sleep(0.1)


@pytest.mark.crash
@pytest.mark.system
@pytest.mark.proof
async def test_a_deliverer_killed_again_and_again_loses_nothing(whole: System, receiver: Receiver, secret: str) -> None:
    """Also while the receiver is down for a part of the time, and refuses for another."""
    receiver.delay_s = 0.02
    quick = {"CALLBOARD_WEBHOOK_TIMEOUT_S": "2", "CALLBOARD_WEBHOOK_DELAY_MAX_S": "1"}
    whole.start("coordinator", "--no-webhooks")
    whole.start("worker", "--concurrency", "16")
    await whole.ready()
    name = whole.start("webhooks", "run", **quick)
    await Webhooks(whole.bus).add(receiver.url, events=["run.completed"], secret=secret)
    runs: set[str] = set()
    for turn in range(4):
        runs |= {await whole.submit("plus", number) for number in range(40)}
        for _ in range(100):
            if len(receiver.got) > turn * 40:
                break
            await asyncio.sleep(0.05)
        whole.kill(name)
        match turn:
            case 0:
                receiver.stop()
            case 1:
                receiver.start()
                receiver.status = 500
            case _:
                receiver.status = 204
        name = whole.start("webhooks", "run", **quick)
        await asyncio.sleep(1.0)
    await all_in(receiver, runs, 60, whole)
    assert all(one.valid for one in receiver.got)
    ids: dict[str, set[str]] = {}
    for one in receiver.got:
        ids.setdefault(one.data["run"], set()).add(one.id)
    assert all(len(found) == 1 for found in ids.values()), "what comes again comes under the same id"
    assert whole.stop(name) == 0


@pytest.mark.system
async def test_the_server_killed_in_the_middle_loses_no_event(
    whole: System, receiver: Receiver, secret: str, nats: ServerProcess
) -> None:
    receiver.delay_s = 0.05
    whole.start("coordinator")
    whole.start("worker", "--concurrency", "16")
    await whole.ready()
    await Webhooks(whole.bus).add(receiver.url, events=["run.completed"], secret=secret)
    runs = {await whole.submit("plus", number) for number in range(60)}
    while len(receiver.got) < 5:
        await asyncio.sleep(0.05)
    nats.kill()
    await asyncio.sleep(0.5)
    nats.start()
    await whole.bus.connected()
    runs |= {await whole.submit("plus", number) for number in range(20)}
    await all_in(receiver, runs, 60, whole)
