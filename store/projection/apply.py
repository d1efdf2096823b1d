"""A batch of messages, written: rows, counts and the stream sequence in one transaction.

Messages up to the sequence that is already applied are dropped, so a batch may be handed over twice, and two processes
may feed the same file.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from ...topics import crash
from ...topics.reads import Stored
from .change import Changes, labels_of
from .database import REFUSED, Database
from .errors import ProjectionMoved
from .schema import CONTENT, KEPT_SKIPPED

log = logging.getLogger(__name__)

_COLUMNS = (
    "id", "root", "parent", "agent", "topic", "thread", "status", "live", "reason", "created", "updated", "started",
    "ended", "attempt", "steps", "rev", "error_code", "error_message", "metadata", "sequence", "version", "pinned",
    "forked_from", "forked_at", "record",
)  # fmt: skip
_AGENT, _STATUS, _CREATED, _METADATA = (_COLUMNS.index(name) for name in ("agent", "status", "created", "metadata"))
_CHUNK = 500  # SQLite before 3.32 takes 999 parameters

_PUT_RUN = (
    f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "  # noqa: S608 names from above
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _COLUMNS[1:])}"
)
_PUT_COUNT = "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT (agent, status) DO UPDATE SET n = n + excluded.n"
_PUT_THREAD = (
    "INSERT INTO threads (id, created, updated, messages, metadata, record, sequence) VALUES (?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET updated = excluded.updated, messages = messages + excluded.messages, "
    "sequence = excluded.sequence, created = iif(excluded.record IS NULL, created, excluded.created), "
    "metadata = iif(excluded.record IS NULL, metadata, excluded.metadata), "
    "record = coalesce(excluded.record, record)"
)
_PUT_SAID = "INSERT INTO said VALUES (?, ?, ?, ?) ON CONFLICT (thread, run, turn) DO UPDATE SET n = n + excluded.n"
_PUT_ARTIFACT = "INSERT OR IGNORE INTO artifacts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_PUT_SKIPPED = "INSERT INTO skipped VALUES (?, ?, ?, ?)"
_TRIM_SKIPPED = (
    "DELETE FROM skipped WHERE sequence <= (SELECT sequence FROM skipped ORDER BY sequence DESC LIMIT 1 OFFSET ?)"
)


class Applier:
    """Writes batches into a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def apply(self, batch: Sequence[Stored], after: int | None = None) -> int:
        """Applies messages in the order of their sequences; returns the sequence that the database then stands at.

        `after`: the sequence up to which the caller has read before this batch. Raises ProjectionMoved when the
        database stands earlier, since something would be left out; other ProjectionErrors when nothing was applied."""
        try:
            return await self._apply(batch, after)
        except (*REFUSED, OverflowError, UnicodeError) as error:
            if len(batch) == 1:
                return await self._skip(batch[0], after, error)
            log.warning("a batch of %d messages is applied one by one: %s", len(batch), error)
        for message in batch:
            after = await self.apply([message], after)
        return after or 0

    async def _apply(self, batch: Sequence[Stored], after: int | None) -> int:
        async with self._database.transaction():
            applied = await self._position(after)
            changes = Changes(batch, applied)
            if changes.last > applied:
                await self._write(changes)
                crash.point("projector.before-commit")
        crash.point("projector.after-commit")
        return changes.last

    async def _skip(self, message: Stored, after: int | None, error: Exception) -> int:
        async with self._database.transaction():
            applied = await self._position(after)
            if message.sequence > applied:
                changes = Changes((), applied)
                changes.skip(message, f"SQLite cannot hold it: {error}")
                changes.last = message.sequence
                await self._write(changes)
        return max(applied, message.sequence)

    async def _position(self, after: int | None) -> int:
        applied = int((await self._database.meta(fresh=True))["applied"])
        if after is not None and applied < after:
            raise ProjectionMoved(
                f"the projection {self._database.path} stands at sequence {applied}, not at {after}: it was reset by "
                "another process and is read again from there",
                applied=applied,
            )
        return applied

    async def _write(self, changes: Changes) -> None:
        database = self._database
        if changes.runs:
            await self._write_runs(changes.runs)
        if changes.threads:
            rows = [
                (name, one.created, one.updated, one.messages, one.metadata, one.record, one.sequence)
                for name, one in changes.threads.items()
            ]
            await database.many(_PUT_THREAD, rows)
        if changes.said:
            await database.many(_PUT_SAID, [(*key, n) for key, n in changes.said.items()])
        if changes.artifacts:
            await database.many(_PUT_ARTIFACT, changes.artifacts)
        if changes.skipped:
            await database.many(_PUT_SKIPPED, changes.skipped)
            await database.execute(_TRIM_SKIPPED, (KEPT_SKIPPED,))
            await database.execute(
                "UPDATE meta SET value = value + ? WHERE key = 'skipped_total'", (len(changes.skipped),)
            )
        await database.execute("UPDATE meta SET value = ? WHERE key = 'applied'", (changes.last,))

    async def _write_runs(self, runs: dict[str, tuple[Any, ...]]) -> None:
        before = await self._before(list(runs))
        counts: dict[tuple[str, str], int] = {}
        gone: list[tuple[str, str, int, str]] = []
        come: list[tuple[str, str, int, str]] = []
        for run, row in runs.items():
            old = before.get(run)
            now = (row[_AGENT], row[_STATUS])
            counts[now] = counts.get(now, 0) + 1
            if old is not None:
                counts[old[0], old[1]] = counts.get((old[0], old[1]), 0) - 1
            labels = (row[_CREATED], row[_METADATA])
            if old is None or old[2:] != labels:
                come += _labels(run, *labels)
                gone += _labels(run, *old[2:]) if old is not None else []
        await self._database.many(_PUT_RUN, list(runs.values()))
        await self._write_counts(counts)
        if gone:
            await self._database.many("DELETE FROM labels WHERE (key, value, created, run) = (?, ?, ?, ?)", gone)
        if come:
            await self._database.many("INSERT INTO labels VALUES (?, ?, ?, ?)", come)

    async def _before(self, runs: list[str]) -> dict[str, tuple[Any, ...]]:
        found: dict[str, tuple[Any, ...]] = {}
        for start in range(0, len(runs), _CHUNK):
            chunk = runs[start : start + _CHUNK]
            marks = ", ".join("?" * len(chunk))
            sql = f"SELECT id, agent, status, created, metadata FROM runs WHERE id IN ({marks})"  # noqa: S608 marks only
            found.update((row[0], row[1:]) for row in await self._database.execute(sql, chunk))
        return found

    async def _write_counts(self, counts: dict[tuple[str, str], int]) -> None:
        rows = [(*key, n) for key, n in counts.items() if n]
        if rows:
            await self._database.many(_PUT_COUNT, rows)
            await self._database.execute("DELETE FROM counts WHERE n = 0")

    # -- beside the stream --------------------------------------------------------------------------------------

    async def mark(self, sequence: int, position: int) -> None:
        """Notes that nothing from `position` to `sequence` has rows, unless the database stands before `position`."""
        sql = (
            "UPDATE meta SET value = ?1 WHERE key = 'seen' AND value < ?1 "
            "AND (SELECT value FROM meta WHERE key = 'applied') >= ?2"
        )
        async with self._database.transaction():
            await self._database.execute(sql, (sequence, position))

    async def reset(self, origin: str | None = None) -> None:
        """Empties every table, so that the stream is read again from its beginning; `origin` names the stream."""
        async with self._database.transaction():
            await self._database.meta(fresh=True)
            for table in CONTENT:
                await self._database.execute(f"DELETE FROM {table}")  # noqa: S608 names of the schema
            await self._database.execute("UPDATE meta SET value = 0 WHERE key <> 'origin'")
            if origin is not None:
                await self._database.execute("UPDATE meta SET value = ? WHERE key = 'origin'", (origin,))

    async def forget(self, first: int, limit: int = 1000) -> int:
        """Removes rows of ended runs, their artifacts and labels, and threads, whose newest message lies before
        sequence `first`; at most `limit` runs and threads each. Returns how many went."""
        async with self._database.transaction():
            runs = await self._database.execute(
                "SELECT id, agent, status, created, metadata FROM runs WHERE sequence < ? AND live = 0 LIMIT ?",
                (first, limit),
            )
            threads = await self._database.execute("SELECT id FROM threads WHERE sequence < ? LIMIT ?", (first, limit))
            await self._remove(runs)
            await self._database.many("DELETE FROM threads WHERE id = ?", threads)
            await self._database.many("DELETE FROM said WHERE thread = ?", threads)
            await self._database.execute("DELETE FROM skipped WHERE sequence < ?", (first,))
        return len(runs) + len(threads)

    async def _remove(self, runs: Iterable[tuple[Any, ...]]) -> None:
        counts: dict[tuple[str, str], int] = {}
        labels: list[tuple[str, str, int, str]] = []
        for run, agent, status, created, metadata in runs:
            counts[agent, status] = counts.get((agent, status), 0) - 1
            labels += _labels(run, created, metadata)
        ids = [(row[0],) for row in runs]
        await self._database.many("DELETE FROM labels WHERE (key, value, created, run) = (?, ?, ?, ?)", labels)
        await self._database.many("DELETE FROM artifacts WHERE run = ?", ids)
        await self._database.many("DELETE FROM runs WHERE id = ?", ids)
        await self._write_counts(counts)


def _labels(run: str, created: int, metadata: str | None) -> list[tuple[str, str, int, str]]:
    return [(key, value, created, run) for key, value in labels_of(metadata)]
