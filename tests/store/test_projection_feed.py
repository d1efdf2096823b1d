"""The feed on a real server: in order, through restarts, deleted consumers, resets, floods; killed in the middle."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.store.projection import Projection, ProjectionFeed
from callboard.store.projection import feed as feed_module
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import Status, encode
from callboard.topics.streams import ensure_streams
from tests.support.projection import life, publish, record


async def eventually(condition: Callable[[], Awaitable[bool]], what: str, within_s: float = 20) -> None:
    deadline = asyncio.get_running_loop().time() + within_s
    while not await condition():
        assert asyncio.get_running_loop().time() < deadline, f"not within {within_s} s: {what}"
        await asyncio.sleep(0.02)


@pytest.fixture
async def projection(tmp_path: Path) -> AsyncIterator[Projection]:
    opened = await Projection.open(tmp_path / "p.db")
    yield opened
    await opened.close()


@pytest.fixture
async def feed(bus: Bus, projection: Projection) -> AsyncIterator[ProjectionFeed]:
    started = ProjectionFeed(bus, projection)
    task = asyncio.create_task(started.run())
    yield started
    await started.stop()
    await task


def lives(bus: Bus, runs: range) -> list[tuple[str, bytes]]:
    all_of_them = [life(bus, f"r{number:05}", number, metadata={"n": number % 7}) for number in runs]
    return [states[step] for step in range(3) for states in all_of_them]


async def test_what_is_stored_is_read_back(bus: Bus, projection: Projection, feed: ProjectionFeed) -> None:
    sequence = await publish(bus, [(bus.subjects.state("a"), encode(record("a")))])
    await projection.wait_applied(sequence, 5)
    row = await projection.run("a")
    assert row is not None
    assert (row.status, row.sequence) == (Status.QUEUED, sequence)
    assert await feed.lag() == 0


async def test_waiting_for_an_event_without_a_row_ends(bus: Bus, projection: Projection, feed: ProjectionFeed) -> None:
    """A step moves the stream on, and nothing is left to apply: who waits for its sequence is let go soon."""
    state = await publish(bus, [(bus.subjects.state("a"), encode(record("a")))])
    step = await publish(bus, [(bus.subjects.event("a", "step"), b"{}")] * 10)
    assert await projection.wait_applied(step, 2) == step
    assert await projection.position() == state
    assert feed.problem is None


async def test_the_log_before_the_start_is_read_and_joined_with_what_comes(bus: Bus, projection: Projection) -> None:
    """More history than is read filtered, then more under load: the content is that of a second projection."""
    await publish(bus, lives(bus, range(2500)))
    feed = ProjectionFeed(bus, projection)
    task = asyncio.create_task(feed.run())
    last = await publish(bus, lives(bus, range(2500, 4000)), window=50)
    await projection.wait_applied(last, 20)
    assert (await projection.counts()).by_status == {Status.COMPLETED: 4000}
    first = await projection.content_digest()
    await feed.rebuild()
    await projection.wait_applied(last, 20)
    assert await projection.content_digest() == first
    await feed.stop()
    await task


async def test_reading_filtered_and_whole_gives_the_same(
    bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subjects = bus.subjects
    mixed = [
        (f"{subjects.run}.a.b.c.d", b"x"), (f"{subjects.run}.a.a.step", b"x"), (f"{subjects.run}.a.a.artifact", b"x"),
        (f"{subjects.thread}.t.odd.thing", b"x"), (f"{subjects.namespace}.agent.z", b"x"),
    ]  # fmt: skip
    last = await publish(bus, [*mixed, *lives(bus, range(30)), *mixed])
    digests = []
    for far in (-1, 10**9):
        monkeypatch.setattr(feed_module, "_FAR", far)
        monkeypatch.setattr(feed_module, "_NEAR", -1)
        projection = await Projection.open(tmp_path / f"{far}.db")
        feed = ProjectionFeed(bus, projection)
        task = asyncio.create_task(feed.run())
        await projection.wait_applied(last, 5)
        digests.append(await projection.content_digest())
        assert (await projection.skipped())[0] == 4
        await feed.stop()
        await task
        await projection.close()
    assert digests[0] == digests[1]


@pytest.mark.crash
async def test_a_restart_of_the_server_loses_nothing(
    nats: ServerProcess, bus: Bus, projection: Projection, feed: ProjectionFeed
) -> None:
    first = await publish(bus, lives(bus, range(100)))
    await projection.wait_applied(first, 5)
    nats.kill()
    await asyncio.sleep(0.3)
    nats.start()
    await asyncio.wait_for(bus.connected(), 10)
    last = await publish(bus, lives(bus, range(100, 200)))
    await projection.wait_applied(last, 15)
    assert (await projection.counts()).by_status == {Status.COMPLETED: 200}
    assert (await projection.skipped())[0] == 0
    await eventually(lambda: _well(feed), "the feed says that all is well")


async def _well(feed: ProjectionFeed) -> bool:
    return feed.problem is None


async def test_a_deleted_consumer_is_made_again(bus: Bus, projection: Projection, feed: ProjectionFeed) -> None:
    first = await publish(bus, lives(bus, range(10)))
    await projection.wait_applied(first, 5)
    names = await bus.api(f"CONSUMER.NAMES.{bus.subjects.events}")
    assert names is not None
    assert len(names["consumers"]) == 1
    await bus.api(f"CONSUMER.DELETE.{bus.subjects.events}.{names['consumers'][0]}")
    last = await publish(bus, lives(bus, range(10, 20)))
    await projection.wait_applied(last, 10)
    assert (await projection.counts()).total == 20


async def test_no_consumer_is_left_behind(bus: Bus, projection: Projection) -> None:
    for _ in range(3):
        feed = ProjectionFeed(bus, projection)
        task = asyncio.create_task(feed.run())
        last = await publish(bus, lives(bus, range(3)))
        await projection.wait_applied(last, 5)
        await feed.stop()
        await task
    names = await bus.api(f"CONSUMER.NAMES.{bus.subjects.events}")
    assert names is not None
    assert not names["consumers"]


async def test_a_reset_by_another_process_is_noticed(bus: Bus, projection: Projection, feed: ProjectionFeed) -> None:
    last = await publish(bus, lives(bus, range(50)))
    await projection.wait_applied(last, 5)
    digest = await projection.content_digest()
    other = await Projection.open(projection.path)
    await other.reset()
    await other.wait_applied(last, 10)
    assert await other.content_digest() == digest
    await other.close()


async def test_another_stream_of_the_same_name_starts_anew(
    settings: BrokerSettings, bus: Bus, projection: Projection
) -> None:
    async def fed(runs: range) -> None:
        feed = ProjectionFeed(bus, projection)
        task = asyncio.create_task(feed.run())
        last = await publish(bus, lives(bus, runs))
        await eventually(lambda: _has(projection, f"r{runs[-1]:05}"), f"run {runs[-1]} at {last}")
        await feed.stop()
        await task

    await fed(range(20))
    await bus.api(f"STREAM.DELETE.{bus.subjects.events}")
    await asyncio.sleep(0.5)
    await ensure_streams(bus, settings)
    await fed(range(50, 55))
    assert (await projection.counts()).total == 5


async def _has(projection: Projection, run: str) -> bool:
    return await projection.run(run) is not None


async def test_a_missing_stream_is_waited_for(settings: BrokerSettings, bus: Bus, projection: Projection) -> None:
    await bus.api(f"STREAM.DELETE.{bus.subjects.events}")
    feed = ProjectionFeed(bus, projection)
    task = asyncio.create_task(feed.run())
    await eventually(lambda: _troubled(feed), "the feed names the problem")
    await ensure_streams(bus, settings)
    await eventually(lambda: _well(feed), "the feed goes on")
    await feed.stop()
    await task


async def _troubled(feed: ProjectionFeed) -> bool:
    return "stream not found" in (feed.problem or "")


async def test_a_full_disk_is_waited_out(bus: Bus, projection: Projection, feed: ProjectionFeed) -> None:
    await projection._database.execute("PRAGMA max_page_count = 60")
    last = await publish(bus, lives(bus, range(1500)))
    await eventually(lambda: _full(feed), "the feed says that the disk is full")
    await projection._database.execute("PRAGMA max_page_count = 1000000")
    await projection.wait_applied(last, 20)
    assert (await projection.counts()).by_status == {Status.COMPLETED: 1500}


async def _full(feed: ProjectionFeed) -> bool:
    return "disk space" in (feed.problem or "")


async def test_a_damaged_file_is_replaced_while_running(bus: Bus, projection: Projection, feed: ProjectionFeed) -> None:
    first = await publish(bus, lives(bus, range(1000)))
    await projection.wait_applied(first, 10)
    await projection._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with projection.path.open("r+b") as file:
        for page in range(1, projection.path.stat().st_size // 4096):
            file.seek(page * 4096)
            file.write(b"\xaa" * 4096)
    for connection in (projection._database._writer, projection._database._reader):
        assert connection is not None
        await connection.execute_fetchall("PRAGMA shrink_memory")
    last = await publish(bus, lives(bus, range(1000, 1100)))
    await eventually(lambda: _complete(projection, last), "the new file holds everything")
    assert (await projection.counts()).by_status == {Status.COMPLETED: 1100}
    assert [one for one in projection.path.parent.iterdir() if ".damaged-" in one.name]


async def _complete(projection: Projection, last: int) -> bool:
    return projection.applied >= last and (await projection.counts()).total == 1100


async def test_retention_is_followed_when_asked(
    bus: Bus, projection: Projection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "_RETENTION_S", 0.0)
    first = await publish(bus, lives(bus, range(10)))
    await publish(bus, lives(bus, range(10, 20)))
    await bus.api(f"STREAM.PURGE.{bus.subjects.events}", {"seq": first + 1})
    keeps = ProjectionFeed(bus, projection)
    await publish(bus, lives(bus, range(20, 21)))
    follows = ProjectionFeed(bus, projection, follow_retention=True)
    for feed, then in ((keeps, 11), (follows, 1)):
        task = asyncio.create_task(feed.run())
        if feed is follows:
            await bus.api(f"STREAM.PURGE.{bus.subjects.events}", {"seq": first + 31})

        async def holds(then: int = then) -> bool:
            return (await projection.counts()).total == then

        await eventually(holds, f"{then} runs are left")
        await feed.stop()
        await task


CHILD = """
import asyncio, sys
from callboard.store.projection import Projection, ProjectionFeed
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings

async def main(url, namespace, path):
    bus = await Bus.connect(BrokerSettings(nats_url=url, namespace=namespace))
    await ProjectionFeed(bus, await Projection.open(path), batch=37, window_s=0.001).run()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.crash
async def test_killed_again_and_again_while_applying_it_goes_on(
    nats: ServerProcess, settings: BrokerSettings, bus: Bus, tmp_path: Path
) -> None:
    """SIGKILL at random moments of the history and of live load: nothing is lost, nothing counted twice."""
    threads = [(f"{bus.subjects.thread}.t{n % 5}.message", b'{"role":"user","content":{}}') for n in range(2000)]
    await publish(bus, [*lives(bus, range(1500)), *threads])
    path = tmp_path / "killed.db"
    reader = await Projection.open(path)
    positions = [0]
    for number in range(6):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CHILD, nats.url, settings.namespace, str(path), stderr=asyncio.subprocess.DEVNULL
        )

        async def moved() -> bool:
            return await reader.position() > positions[-1]

        await publish(bus, lives(bus, range(1500 + number * 20, 1520 + number * 20)))
        await eventually(moved, "the child applies")
        await asyncio.sleep(0.01 * number)
        os.kill(child.pid, signal.SIGKILL)
        await child.wait()
        positions.append(await reader.position())
    assert positions == sorted(positions)
    whole = await Projection.open(tmp_path / "whole.db")
    for projection in (reader, whole):
        feed = ProjectionFeed(bus, projection)
        task = asyncio.create_task(feed.run())
        last = await publish(bus, [(f"{bus.subjects.thread}.end.message", b'{"role":"user","content":{}}')])
        await projection.wait_applied(last, 20)
        await feed.stop()
        await task
    thread = await reader.thread("t3")
    assert thread is not None
    assert thread.messages == 400
    assert (await reader.counts()).by_status == {Status.COMPLETED: 1620}
    feed = ProjectionFeed(bus, reader)
    task = asyncio.create_task(feed.run())
    await reader.wait_applied(whole.applied, 10)
    await feed.stop()
    await task
    assert await reader.content_digest() == await whole.content_digest()
    await reader.close()
    await whole.close()
