"""The projection against the log: rows that differ, are missing, or too many are found; a file that lags is not."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from callboard.store.agents import AgentRegistry
from callboard.store.projection import Projection, ProjectionFeed
from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.errors import NotFound
from callboard.topics.ids import new_run_id
from callboard.topics.messages import AgentInfo, Status, encode
from tests.support.projection import artifact

from .auditing import Forger, codes, look, only

Q, R, C = Status.QUEUED, Status.RUNNING, Status.COMPLETED


@pytest.fixture
async def forger(bus: Bus) -> Forger:
    """A log with three ended runs, artifacts, an agent."""
    found = Forger(bus)
    await AgentRegistry(bus).register(AgentInfo(name="reviewer"))
    for n in range(3):
        run = str(new_run_id())
        await found.path(run, Q, R, metadata={"n": n})
        await found.raw(run, "artifact", encode([artifact("a", n=1), artifact("b", n=2)]))
        await found.path(run, C, attempt=1, metadata={"n": n})
    return found


@pytest.fixture
async def file(bus: Bus, forger: Forger, tmp_path: Path) -> Path:
    """A projection of it."""
    path = tmp_path / "projection.db"
    await project(bus, path)
    return path


async def project(bus: Bus, path: Path) -> None:
    """Brings the file up to the end of the log."""
    projection = await Projection.open(path)
    info = await bus.api(f"STREAM.INFO.{bus.subjects.events}")
    assert info is not None
    await projection.adopt(f"{bus.subjects.events} of {info['created']}", info["state"]["last_seq"])
    applied = await projection.position()
    async for page in reads.read(bus, bus.subjects.events, f"{bus.subjects.namespace}.>", applied):
        await projection.apply(page)
    await projection.close()


def change(path: Path, sql: str, *values: Any) -> None:
    """Alters the file by hand."""
    with sqlite3.connect(path) as connection:
        assert connection.execute(sql, values).rowcount > 0
    connection.close()


async def test_a_projection_that_equals_the_log_is_clean(bus: Bus, file: Path) -> None:
    report = await look(bus, projection=file)
    assert (report.clean, report.findings) == (True, [])
    assert report.projection == str(file)


async def test_a_projection_made_by_a_feed_equals_the_log(bus: Bus, forger: Forger, tmp_path: Path) -> None:
    import asyncio

    projection = await Projection.open(tmp_path / "fed.db")
    feed = ProjectionFeed(bus, projection)
    task = asyncio.create_task(feed.run())
    info = await bus.api(f"STREAM.INFO.{bus.subjects.events}")
    assert info is not None
    await projection.wait_applied(info["state"]["last_seq"])
    assert await codes(bus, projection=tmp_path / "fed.db") == [], "also while the feed goes on"
    await feed.stop()
    await task
    await projection.close()


async def test_a_projection_that_lags_behind_is_compared_as_far_as_it_is(bus: Bus, forger: Forger, file: Path) -> None:
    run = str(new_run_id())
    await forger.path(run, Q, R, C)
    assert await codes(bus, projection=file) == []


async def test_a_row_that_differs(bus: Bus, file: Path) -> None:
    change(file, "UPDATE runs SET status = 'failed', attempt = 9 WHERE rowid = 2")
    found = await only(bus, "projection_differs", projection=file)
    assert found.found.startswith("runs id '")
    assert found.found.endswith("status failed, attempt 9")
    assert found.expected == "status completed, attempt 1"
    assert found.run is not None
    assert found.sequence > 0


async def test_a_record_that_differs_in_what_no_column_shows(bus: Bus, file: Path) -> None:
    change(file, "UPDATE runs SET record = record || ' ' WHERE rowid = 1")
    assert "record " in (await only(bus, "projection_differs", projection=file)).found


async def test_rows_that_are_missing(bus: Bus, file: Path) -> None:
    change(file, "DELETE FROM artifacts WHERE name = 'b'")
    report = await look(bus, projection=file)
    assert report.counts == {"projection_row_missing": 3}
    change(file, "DELETE FROM runs WHERE rowid = 3")
    report = await look(bus, projection=file)
    assert report.counts == {"projection_row_missing": 4}


async def test_rows_that_are_too_many(bus: Bus, file: Path) -> None:
    change(file, "INSERT INTO labels VALUES ('ghost', '1', 1, 'r')")
    change(file, "UPDATE counts SET n = n + 1")
    report = await look(bus, projection=file)
    assert report.counts == {"projection_differs": 1, "projection_row_extra": 1}


async def test_what_was_unreadable_and_has_been_taken_away_is_no_extra_row(
    bus: Bus, forger: Forger, file: Path
) -> None:
    """And an agent that was forgotten has none."""
    await AgentRegistry(bus).register(AgentInfo(name="late"))
    thread = f"{bus.subjects.thread}.t.message"
    await bus.store(thread, b"{")
    await project(bus, file)
    assert await codes(bus, projection=file) == []
    await bus.api(f"STREAM.PURGE.{bus.subjects.events}", {"filter": thread})
    await AgentRegistry(bus).forget("late")
    await forger.path(str(new_run_id()), Q, R, C)
    await project(bus, file)
    assert await codes(bus, projection=file) == []


async def test_a_readable_message_that_the_file_calls_unreadable(bus: Bus, file: Path) -> None:
    change(file, "INSERT INTO skipped VALUES (1, 'x', 'no reason', 1)")
    assert "skipped sequence 1" in (await only(bus, "projection_row_extra", projection=file)).found


async def test_a_file_that_cannot_be_used(bus: Bus, file: Path, tmp_path: Path) -> None:
    (tmp_path / "torn.db").write_bytes(b"not a database, by any means" * 100)
    assert "cannot be read" in (await only(bus, "projection_unusable", projection=tmp_path / "torn.db")).found
    with pytest.raises(NotFound):
        await look(bus, projection=tmp_path / "none.db")
    change(file, "UPDATE meta SET value = value + 1000 WHERE key = 'applied'")
    assert "the log ends at" in (await only(bus, "projection_unusable", projection=file)).found
    sqlite3.connect(file).execute("PRAGMA user_version = 99").connection.close()
    assert "schema version 99" in (await only(bus, "projection_unusable", projection=file)).found


async def test_the_file_of_another_installation(bus: Bus, file: Path) -> None:
    change(file, "UPDATE meta SET value = 'x_EVENTS of 2020' WHERE key = 'origin'")
    assert "built from x_EVENTS" in (await only(bus, "projection_unusable", projection=file)).found
    report = await look(bus, projection=file, foreign_ok=True)
    assert (report.clean, report.projection) == (True, None)


async def test_rows_that_outlive_the_log_are_no_fault(bus: Bus, forger: Forger, file: Path) -> None:
    await bus.api(f"STREAM.PURGE.{bus.subjects.events}", {"seq": 6})
    report = await look(bus, projection=file)
    assert (report.truncated, report.findings) == (True, [])


async def test_the_comparison_leaves_the_file_as_it_was(bus: Bus, file: Path) -> None:
    projection = await Projection.open(file)
    before = await projection.content_digest()
    await look(bus, projection=file)
    assert await projection.content_digest() == before
    await projection.close()
