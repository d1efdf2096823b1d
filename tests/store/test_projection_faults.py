"""What a broken file, a full disk, another version or another process do to the projection. Real SQLite, real files."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from pathlib import Path

import pytest

from callboard.store.projection import (
    Projection,
    ProjectionBehind,
    ProjectionCorrupt,
    ProjectionError,
    ProjectionFull,
    ProjectionMoved,
    ProjectionReadOnly,
)
from tests.support.projection import Tape


def tape_of(count: int, size: int = 10) -> Tape:
    tape = Tape()
    for number in range(count):
        tape.state(f"r{number:05}", second=number, reason="x" * size)
    return tape


async def test_a_file_that_is_no_database_is_moved_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "p.db"
    path.write_bytes(b"this is not a database, but it is long enough to look like one " * 200)
    projection = await Projection.open(path)
    try:
        assert projection.applied == 0
        assert await projection.apply(tape_of(3).messages) == 3
    finally:
        await projection.close()
    assert [one for one in tmp_path.iterdir() if ".damaged-" in one.name]
    assert "built again from the log" in caplog.text


async def test_damage_found_while_running_is_told_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    projection = await Projection.open(path)
    await projection.apply(tape_of(3000, 200).messages)
    await projection.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        for page in range(2, size // 4096):
            file.seek(page * 4096)
            file.write(b"\xaa" * 64)
    projection = await Projection.open(path)
    try:
        with pytest.raises(ProjectionCorrupt) as caught:
            await projection.apply(tape_of(4000, 200).messages)
        await projection.replace(caught.value)
        assert await projection.apply(tape_of(10).messages) == 10
        assert (await projection.counts()).total == 10
    finally:
        await projection.close()


async def test_a_full_disk_is_a_clear_error_and_nothing_is_half_applied(tmp_path: Path) -> None:
    projection = await Projection.open(tmp_path / "p.db")
    try:
        await projection.apply(tape_of(10).messages)
        digest = await projection.content_digest()
        await projection._database.execute("PRAGMA max_page_count = 60")
        with pytest.raises(ProjectionFull) as caught:
            await projection.apply(tape_of(3000, 500).messages)
        assert caught.value.retryable
        assert "disk space" in caught.value.message
        assert (projection.applied, await projection.position()) == (10, 10)
        assert await projection.content_digest() == digest
        await projection._database.execute("PRAGMA max_page_count = 1000000")
        assert await projection.apply(tape_of(3000, 500).messages) == 3000
    finally:
        await projection.close()


async def test_a_read_only_database_is_a_clear_error(tmp_path: Path) -> None:
    projection = await Projection.open(tmp_path / "p.db")
    try:
        await projection._database.execute("PRAGMA query_only = 1")
        with pytest.raises(ProjectionReadOnly, match="rights"):
            await projection.apply(tape_of(1).messages)
    finally:
        await projection.close()


async def test_a_path_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ProjectionError, match="cannot be"):
        await Projection.open(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ProjectionError, match="cannot be made"):
        await Projection.open(tmp_path / "file" / "p.db")


async def test_another_schema_version_is_built_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "p.db"
    projection = await Projection.open(path)
    await projection.apply(tape_of(3).messages)
    await projection.close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 99")
        other.execute("CREATE TABLE of_the_future (x)")
    other.close()
    with caplog.at_level(logging.WARNING):
        projection = await Projection.open(path)
    try:
        assert "schema version 99" in caplog.text
        assert (await projection.position(), (await projection.counts()).total) == (0, 0)
        await projection.apply(tape_of(3).messages)
        with sqlite3.connect(path) as other:
            other.execute("PRAGMA user_version = 98")
        other.close()
        with pytest.raises(ProjectionMoved, match="98"):
            await projection.apply(tape_of(4).messages)
    finally:
        await projection.close()


async def test_two_processes_may_feed_one_file(tmp_path: Path) -> None:
    one, two = await Projection.open(tmp_path / "p.db"), await Projection.open(tmp_path / "p.db")
    try:
        messages = tape_of(200).messages
        await asyncio.gather(
            *(one.apply(messages[start : start + 20]) for start in range(0, 200, 20)),
            *(two.apply(messages[start : start + 20]) for start in range(0, 200, 20)),
        )
        assert (await one.counts()).total == (await two.counts()).total == 200
        assert await one.content_digest() == await two.content_digest()
        await two.reset()
        with pytest.raises(ProjectionMoved):
            await one.apply(tape_of(201).messages[200:], after=200)
    finally:
        await one.close()
        await two.close()


async def test_waiting_sees_what_another_process_applies(tmp_path: Path) -> None:
    reader, writer = await Projection.open(tmp_path / "p.db"), await Projection.open(tmp_path / "p.db")
    try:
        waiter = asyncio.create_task(reader.wait_applied(3, 5))
        await asyncio.sleep(0.05)
        assert not waiter.done()
        assert reader.wanted == 3
        await writer.apply(tape_of(3).messages)
        assert await waiter == 3
        assert reader.wanted == 0
        await writer.mark(9, 3)
        assert await reader.wait_applied(9, 1) == 9
        assert await reader.position() == 3
        with pytest.raises(ProjectionBehind, match="projector") as caught:
            await reader.wait_applied(10, 0.1)
        assert (caught.value.applied, caught.value.sequence) == (9, 10)
    finally:
        await reader.close()
        await writer.close()
