"""The projector in its host: it follows the log, sweeps runs that stand still, rebuilds, and ends with the host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from callboard.actors.projector import Projector
from callboard.runtime.host import Host
from callboard.store.projection import Projection
from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.messages import Status, encode
from callboard.topics.subjects import INBOX_CONSUMER
from callboard.topics.units import now
from tests.support.projection import START, life, publish, record


@pytest.fixture
async def projector(bus: Bus, tmp_path: Path) -> AsyncIterator[Projector]:
    actor = Projector(bus, tmp_path / "p.db")
    host = Host(bus)
    host.add(actor)
    await host.start()
    yield actor
    await host.drain()


async def commands(bus: Bus) -> list[str]:
    found: list[str] = []
    async for page in reads.read(bus, bus.subjects.inbox, f"{bus.subjects.cmd}.>"):
        found += [one.subject.removeprefix(f"{bus.subjects.cmd}.") for one in page]
    return sorted(found)


async def test_it_follows_the_log_and_ends_with_its_host(bus: Bus, tmp_path: Path) -> None:
    projector = Projector(bus, tmp_path / "p.db")
    host = Host(bus)
    host.add(projector)
    await host.start()
    last = await publish(bus, life(bus, "a", 1))
    await projector.projection.wait_applied(last, 5)
    assert await projector.lag() == 0
    await host.drain()
    assert not host.gave_up
    after = await Projection.open(tmp_path / "p.db")
    assert await after.position() == last
    await after.close()


async def test_runs_that_stand_still_are_swept_once_a_minute(bus: Bus, projector: Projector, tmp_path: Path) -> None:
    statuses = list(Status)
    last = await publish(
        bus, [(bus.subjects.state(f"r{n}"), encode(record(f"r{n}", status, n))) for n, status in enumerate(statuses)]
    )
    young = record("young", Status.RUNNING, created_at=now(), updated_at=now())
    last = await publish(bus, [(bus.subjects.state("young"), encode(young))])
    await projector.projection.wait_applied(last, 5)
    assert await projector.sweep() == 4
    swept = [Status.QUEUED, Status.RUNNING, Status.WAITING, Status.CANCEL_REQUESTED]
    assert await commands(bus) == sorted(f"r{statuses.index(status)}.sweep" for status in swept)
    assert await projector.sweep() == 0
    second = Projector(bus, tmp_path / "second.db")
    host = Host(bus)
    host.add(second)
    await host.start()
    await second.projection.wait_applied(last, 5)
    await second.sweep()
    assert len(await commands(bus)) <= 8  # one more each if the minute changed in between
    await host.drain()


async def test_a_run_that_stands_still_for_long_is_swept_more_rarely(projector: Projector, bus: Bus) -> None:
    last = await publish(bus, [(bus.subjects.state("a"), encode(record("a", Status.WAITING)))])
    await projector.projection.wait_applied(last, 5)
    soon = START + timedelta(seconds=31)
    assert await projector.sweep(soon) == 1
    projector._swept["a"] -= 61
    assert await projector.sweep(START + timedelta(hours=1)) == 0
    assert await projector.sweep(soon) == 1
    projector._swept["a"] -= 601
    assert await projector.sweep(START + timedelta(days=9)) == 1


async def test_every_still_run_is_reached_whatever_their_number(projector: Projector, bus: Bus) -> None:
    states = [(bus.subjects.state(f"r{n:04}"), encode(record(f"r{n:04}", Status.QUEUED, n // 3))) for n in range(1203)]
    last = await publish(bus, states)
    await projector.projection.wait_applied(last, 10)
    assert await projector.sweep() == 1203
    assert len(set(await commands(bus))) == 1203


async def test_nothing_is_swept_while_the_coordinators_are_behind(projector: Projector, bus: Bus) -> None:
    """What stands still may be waiting for them: commands about it would only make them later."""
    last = await publish(bus, [(bus.subjects.state("a"), encode(record("a", Status.QUEUED)))])
    await projector.projection.wait_applied(last, 5)
    asked = {"durable_name": INBOX_CONSUMER, "ack_policy": "explicit", "filter_subjects": [f"{bus.subjects.cmd}.>"]}
    path = f"CONSUMER.CREATE.{bus.subjects.inbox}.{INBOX_CONSUMER}"
    await bus.api(path, {"stream_name": bus.subjects.inbox, "config": asked})
    await publish(bus, [(bus.subjects.command(f"r{n}", "child"), b"") for n in range(1001)])
    assert await projector.sweep() == 0
    await bus.api(f"STREAM.PURGE.{bus.subjects.inbox}", {"keep": 1000})
    assert await projector.sweep() == 1


async def test_nothing_is_swept_while_the_server_is_away(projector: Projector, bus: Bus, tmp_path: Path) -> None:
    last = await publish(bus, [(bus.subjects.state("a"), encode(record("a", Status.QUEUED)))])
    await projector.projection.wait_applied(last, 5)
    await bus.client.close()
    with pytest.raises(Exception, match="NATS"):
        await projector.sweep()
    assert projector.sweeps == 0


async def test_rebuild_gives_identical_content(bus: Bus, tmp_path: Path) -> None:
    last = await publish(bus, [pair for n in range(200) for pair in life(bus, f"r{n:03}", n, metadata={"n": n})])
    digests = []
    for rebuild in (False, True):
        projector = Projector(bus, tmp_path / "p.db", rebuild=rebuild)
        host = Host(bus)
        host.add(projector)
        await host.start()
        await projector.projection.wait_applied(last, 10)
        digests.append(await projector.projection.content_digest())
        await projector.rebuild()
        await projector.projection.wait_applied(last, 10)
        digests.append(await projector.projection.content_digest())
        await host.drain()
    assert len(set(digests)) == 1


async def test_a_file_that_cannot_be_used_is_given_up_with_the_reason(bus: Bus, tmp_path: Path) -> None:
    from callboard.actors.errors import ActorGaveUp
    from callboard.runtime.config import RuntimeSettings

    host = Host(bus, RuntimeSettings(restart_limit=1, restart_initial_s=0.01))
    host.add(Projector(bus, tmp_path))
    async with asyncio.timeout(10):
        with pytest.raises(ActorGaveUp, match="cannot be"):
            await host.start()
