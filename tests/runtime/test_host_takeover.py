"""Actors over several processes: a process that dies, stalls, drains or joins never costs a message or its order."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.actors.publication import publish
from callboard.runtime.nats_server import ServerProcess
from callboard.store.deadletters import DeadLetters
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.ids import new_token
from callboard.topics.streams import ensure_streams
from tests.support.fleet import Fleet, both_serve, eventually, fill, serving
from tests.support.nats import private_cluster

pytestmark = [pytest.mark.system, pytest.mark.crash]


@pytest.fixture
def fleet(settings: BrokerSettings, bus: Bus, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(settings, tmp_path / "notes")
    yield fleet
    fleet.end()


async def test_the_keys_are_shared_and_a_killed_process_is_replaced_within_seconds(bus: Bus, fleet: Fleet) -> None:
    one, two = fleet.start(), fleet.start()
    await both_serve(bus, [one, two], 24)
    expected = await fill(bus, 24, 20)
    await eventually(lambda: len(fleet.ended()) > 150, 20, "a third is handled")
    one.kill()
    one.wait()
    killed = time.monotonic()
    assert await serving(bus, 24) == {two.pid}
    took = time.monotonic() - killed
    await eventually(lambda: fleet.ended() >= expected, 30, "all messages are handled")
    fleet.check_order()
    assert took < 6, f"takeover took {took:.1f} s"
    twice = [key for key in expected if [(e.key, e.n) for e in fleet.starts()].count(key) > 1]
    assert len(twice) <= 24, "at most one message of each key is seen twice"


async def test_a_stalled_process_that_comes_back_starts_nothing_that_is_not_its_own(bus: Bus, fleet: Fleet) -> None:
    one, two = fleet.start(), fleet.start()
    await both_serve(bus, [one, two], 24)
    expected = await fill(bus, 24, 15)
    await eventually(lambda: len(fleet.ended()) > 100, 20, "some are handled")
    os.kill(one.pid, signal.SIGSTOP)
    assert await serving(bus, 24) == {two.pid}
    await eventually(lambda: fleet.ended() >= expected, 30, "the other handles all")
    expected |= await fill(bus, 24, 5, first=15)
    os.kill(one.pid, signal.SIGCONT)
    expected |= await fill(bus, 24, 5, first=20)
    await eventually(lambda: fleet.ended() >= expected, 30, "all messages are handled")
    fleet.check_order()


async def test_a_drained_process_finishes_what_it_holds_and_hands_over_at_once(bus: Bus, fleet: Fleet) -> None:
    one, two = fleet.start(), fleet.start()
    await both_serve(bus, [one, two], 24)
    expected = await fill(bus, 24, 20)
    await eventually(lambda: len(fleet.ended()) > 100, 20, "some are handled")
    one.terminate()
    assert await asyncio.to_thread(one.wait, 10) == 0
    await eventually(lambda: fleet.ended() >= expected, 30, "all messages are handled")
    fleet.check_order()
    assert sorted((e.key, e.n) for e in fleet.starts()) == sorted(expected), "none is seen twice"


async def test_the_broker_restarts_in_the_middle(bus: Bus, fleet: Fleet, nats: ServerProcess) -> None:
    fleet.start()
    await serving(bus, 24)
    expected = await fill(bus, 24, 10)
    await eventually(lambda: len(fleet.ended()) > 50, 20, "some are handled")
    nats.kill()
    await asyncio.sleep(0.5)
    await asyncio.to_thread(nats.start)
    await bus.connected()
    expected |= await fill(bus, 24, 5, first=10)
    await eventually(lambda: fleet.ended() >= expected, 30, "all messages are handled")
    fleet.check_order()


async def test_a_message_that_kills_its_process_ends_as_a_dead_letter(bus: Bus, fleet: Fleet) -> None:
    fleet.start()
    await serving(bus, 4)
    await publish(bus, "notes", {"n": 0, "kill": True}, "k0")
    await publish(bus, "notes", {"n": 1}, "k0")
    for _ in range(6):
        await eventually(lambda: fleet.processes[-1].poll() is not None or ("k0", 1) in fleet.ended(), 30, "killed")
        if ("k0", 1) in fleet.ended():
            break
        fleet.start()
    assert ("k0", 1) in fleet.ended(), "the next message of the key is handled"
    letters = await DeadLetters(bus).page(0, 10)
    assert "notes" in str(letters)
    assert 3 <= len([entry for entry in fleet.starts() if entry.n == 0]) <= 4


@pytest.mark.cluster
@pytest.mark.proof
async def test_on_a_cluster_a_killed_process_and_a_killed_server_cost_nothing(tmp_path: Path) -> None:
    with private_cluster(tmp_path / "cluster") as cluster:
        settings = BrokerSettings(nats_url=cluster.url, namespace=f"t{new_token(8)}", replicas=3)
        bus = await Bus.connect(settings)
        await ensure_streams(bus, settings)
        fleet = Fleet(settings, tmp_path / "notes")
        try:
            one, two = fleet.start(), fleet.start()
            await both_serve(bus, [one, two], 24)
            expected = await fill(bus, 24, 12)
            one.kill()
            await asyncio.to_thread(cluster.kill, cluster.leader)
            expected |= await fill(bus, 24, 6, first=12)
            await eventually(lambda: fleet.ended() >= expected, 60, "all messages are handled")
            fleet.check_order()
            assert await serving(bus, 24) == {two.pid}
        finally:
            fleet.end()
            await bus.close()
