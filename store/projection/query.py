"""Reading the projection: pages, filters, trees, counts. Every list is walked along an index, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw

from ...topics.errors import InvalidInput
from ...topics.messages import Status
from ...topics.units import now as wall_clock
from ...topics.units import utc
from .change import LABEL_CHARS, microseconds
from .cursor import query_digest, read_cursor, write_cursor
from .database import Database, Row
from .row import ArtifactRow, ArtifactVersion, Counts, Page, RunFilter, RunRow, SkippedRow, Still, ThreadRow

PAGE_LIMIT = 1000
"""The most rows that a page can have."""

_RUN_COLUMNS = (
    "id, root, agent, status, created, updated, parent, topic, thread, reason, started, ended, attempt, steps, rev, "
    "error_code, error_message, metadata, sequence, version, pinned, forked_from, forked_at"
)
_HAS_LABEL = "EXISTS (SELECT 1 FROM labels AS l WHERE (key, value, l.created, run) = (?, ?, runs.created, runs.id))"
_LONGEST_MESSAGE = 10_000
"""Artifacts that one message of the log can hold at most."""
_EQUAL = ("agent", "thread", "topic", "parent", "root", "forked_from")
_decode_metadata = msgspec.json.Decoder(dict[str, Any]).decode


class Query:
    """The reading half of a projection."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- runs ---------------------------------------------------------------------------------------------------

    async def run(self, run: str) -> RunRow | None:
        """One run, with its record."""
        rows = await self._database.read(f"SELECT {_RUN_COLUMNS}, record FROM runs WHERE id = ?", (run,))  # noqa: S608
        return _run(rows[0]) if rows else None

    async def runs(
        self, filters: RunFilter | None = None, *, limit: int = 50, cursor: str | None = None, records: bool = False
    ) -> Page[RunRow]:
        """Runs that match, newest first by creation. `records`: with the JSON of each record.

        Runs that come while pages are read appear on no later page; none is seen twice or left out. Raises
        InvalidInput for a bad cursor, limit, status or time."""
        filters = filters or RunFilter()
        _check_limit(limit)
        query = query_digest("runs", _statuses(filters), msgspec.structs.replace(filters, status=()))
        place = None if cursor is None else read_cursor(query, cursor)
        applied = (await self._database.meta())["applied"]
        sql, parameters = _run_query(filters, place, limit + 1)
        columns = ", ".join(f"runs.{name}" for name in _RUN_COLUMNS.split(", ")) + (", runs.record" if records else "")
        sql = f"SELECT {columns} FROM ({sql}) AS found JOIN runs ON runs.id = found.run ORDER BY 5 DESC, 1 DESC"  # noqa: S608
        rows = await self._database.read(sql, parameters)
        more = write_cursor(query, rows[limit - 1][4], rows[limit - 1][0]) if len(rows) > limit else None
        return Page([_run(row) for row in rows[:limit]], more, applied)

    async def tree(self, root: str, *, limit: int = 10_000) -> list[RunRow]:
        """A root and all its descendants, oldest first; empty when the root is not known."""
        sql = f"SELECT {_RUN_COLUMNS} FROM runs WHERE root = ? ORDER BY created, id LIMIT ?"  # noqa: S608
        return [_run(row) for row in await self._database.read(sql, (root, limit))]

    async def counts(self) -> Counts:
        """How many runs there are in each status, in all and by agent; costs the same for any number of runs."""
        by_status: dict[Status, int] = {}
        by_agent: dict[str, dict[Status, int]] = {}
        for agent, text, number in await self._database.read("SELECT agent, status, n FROM counts"):
            status = Status(text)
            by_status[status] = by_status.get(status, 0) + number
            by_agent.setdefault(agent, {})[status] = number
        return Counts(total=sum(by_status.values()), by_status=by_status, by_agent=by_agent)

    async def pinned(self) -> dict[str, dict[str, int]]:
        """How many runs that have not ended are pinned, by agent and version."""
        sql = "SELECT agent, version, count(*) FROM runs WHERE pinned = 1 AND ended IS NULL GROUP BY agent, version"
        found: dict[str, dict[str, int]] = {}
        for agent, version, number in await self._database.read(sql):
            found.setdefault(agent, {})[version] = number
        return found

    async def stuck(self, older_than_s: float, limit: int = 500) -> list[tuple[str, Status]]:
        """Runs in queued, running, waiting or cancel_requested that have not changed for that long, stillest first."""
        return [(one.id, one.status) for one in await self.still(older_than_s, limit)]

    async def still(
        self, older_than_s: float, limit: int = 500, *, after: Still | None = None, now: datetime | None = None
    ) -> list[Still]:
        """Like `stuck`, with the time of the last change; goes on behind `after`, the last one of the call before."""
        before = microseconds((now or wall_clock()) - timedelta(seconds=older_than_s))
        behind = (-1, "") if after is None else (microseconds(after.since), after.id)
        sql = (
            "SELECT id, status, updated FROM runs WHERE live = 1 AND updated < ? AND (updated, id) > (?, ?) "
            "ORDER BY updated, id LIMIT ?"
        )
        rows = await self._database.read(sql, (before, *behind, limit))
        return [Still(id=run, status=Status(status), since=utc(updated / 1e6)) for run, status, updated in rows]

    # -- what belongs to runs, and beside them ------------------------------------------------------------------

    async def artifacts(self, run: str) -> list[ArtifactRow]:
        """The newest version of each artifact of a run, by name."""
        sql = (
            "SELECT run, name, media_type, size, digest, stored, sequence FROM artifacts WHERE run = ? "
            "ORDER BY name, sequence, n"
        )
        newest: dict[str, Row] = {}
        versions: dict[str, int] = {}
        for row in await self._database.read(sql, (run,)):
            newest[row[1]] = row
            versions[row[1]] = versions.get(row[1], 0) + 1
        return [
            ArtifactRow(
                run=row[0], name=row[1], media_type=row[2], size=row[3], digest=row[4], versions=versions[row[1]],
                stored_at=utc(row[5] / 1e6), sequence=row[6],
            )
            for row in newest.values()
        ]  # fmt: skip

    async def thread_artifacts(
        self, thread: str, *, name: str | None = None, after: int = 0, limit: int = 100
    ) -> list[ArtifactVersion]:
        """What the runs of a thread have published, in the order of the log: each version with its run, without those
        of runs that were rolled back, themselves or with their root. A page exceeds the limit by what stands in the
        same message as its last one."""
        sql = (
            "SELECT artifacts.run, runs.status, artifacts.name, media_type, size, digest, stored, artifacts.sequence "
            "FROM runs JOIN artifacts ON artifacts.run = runs.id WHERE runs.thread = ? AND artifacts.sequence > ? "
            "AND runs.status <> 'rolled_back' AND NOT EXISTS (SELECT 1 FROM runs AS roots WHERE roots.id = runs.root "
            "AND roots.thread = runs.thread AND roots.status = 'rolled_back') "
            "AND (? IS NULL OR artifacts.name = ?) ORDER BY artifacts.sequence, artifacts.n LIMIT ?"
        )
        rows = await self._database.read(sql, (thread, after, name, name, limit))
        if len(rows) == limit:
            last = rows[-1][7]
            more = await self._database.read(sql, (thread, last - 1, name, name, _LONGEST_MESSAGE))
            rows = [row for row in rows if row[7] < last] + [row for row in more if row[7] == last]
        return [
            ArtifactVersion(
                run=row[0], status=Status(row[1]), name=row[2], media_type=row[3], size=row[4], digest=row[5],
                stored_at=utc(row[6] / 1e6), sequence=row[7],
            )
            for row in rows
        ]  # fmt: skip

    async def threads(self, *, limit: int = 50, cursor: str | None = None) -> Page[ThreadRow]:
        """Threads, newest first by creation. Raises InvalidInput as `runs` does."""
        _check_limit(limit)
        query = query_digest("threads")
        place = (2**63 - 1, "") if cursor is None else read_cursor(query, cursor)
        applied = (await self._database.meta())["applied"]
        sql = f"{_THREADS} WHERE (created, id) < (?, ?) ORDER BY created DESC, id DESC LIMIT ?"
        rows = await self._database.read(sql, (*place, limit + 1))
        more = write_cursor(query, rows[limit - 1][1], rows[limit - 1][0]) if len(rows) > limit else None
        return Page([_thread(row) for row in rows[:limit]], more, applied)

    async def thread(self, thread: str) -> ThreadRow | None:
        """One thread."""
        rows = await self._database.read(f"{_THREADS} WHERE id = ?", (thread,))
        return _thread(rows[0]) if rows else None

    async def skipped(self, limit: int = 100) -> tuple[int, list[SkippedRow]]:
        """How many messages could not become rows, and the newest of them."""
        total = (await self._database.meta())["skipped_total"]
        sql = "SELECT sequence, subject, reason, size FROM skipped ORDER BY sequence DESC LIMIT ?"
        rows = await self._database.read(sql, (limit,))
        return total, [SkippedRow(sequence=row[0], subject=row[1], reason=row[2], size=row[3]) for row in rows]


_UNDONE = (
    "SELECT coalesce(sum(n), 0) FROM said WHERE said.thread = threads.id AND EXISTS "
    "(SELECT 1 FROM runs WHERE runs.id IN (said.run, said.turn) AND runs.status = 'rolled_back')"
)
_THREADS = f"SELECT id, created, updated, messages - ({_UNDONE}), metadata, record IS NOT NULL, sequence FROM threads"  # noqa: S608


def _run_query(filters: RunFilter, place: tuple[int, str] | None, limit: int) -> tuple[str, list[Any]]:
    """SQL for the ids of a page. Each part is served by one index in the order of creation: with labels by the primary
    key of `labels`, else by one of `runs`, one part for each status."""
    where, parameters = _conditions(filters)
    labels = _labels(filters)
    statuses = _statuses(filters)
    lead = "labels" if labels else "runs"
    bound, bound_parameters = _bounds(filters, place, lead)
    order = f"ORDER BY {lead}.created DESC, {'labels.run' if labels else 'runs.id'} DESC LIMIT {limit}"
    if labels:
        if statuses:
            where.append(f"runs.status IN ({', '.join('?' * len(statuses))})")
            parameters += statuses
        for key, value in labels[1:]:
            where.append(_HAS_LABEL)
            parameters += [key, value]
        conditions = " AND ".join(["labels.key = ?", "labels.value = ?", *bound, *where])
        sql = f"SELECT labels.run AS run FROM labels CROSS JOIN runs ON runs.id = labels.run WHERE {conditions} {order}"  # noqa: S608
        return sql, [*labels[0], *bound_parameters, *parameters]
    if not statuses and filters.agent is not None:
        statuses = [status.value for status in Status]  # the index of agents has the status before the time
    conditions = " AND ".join([*(["runs.status = ?"] if statuses else []), *where, *bound]) or "1"
    part = f"SELECT * FROM (SELECT runs.id AS run, runs.created FROM runs WHERE {conditions} {order})"  # noqa: S608
    values: list[Any] = []
    parts: list[list[str]] = [[status] for status in statuses] or [[]]
    for chosen in parts:
        values += [*chosen, *parameters, *bound_parameters]
    union = " UNION ALL ".join([part] * len(parts))
    return f"SELECT run FROM ({union}) ORDER BY created DESC, run DESC LIMIT {limit}", values  # noqa: S608


def _conditions(filters: RunFilter) -> tuple[list[str], list[Any]]:
    chosen = [(name, getattr(filters, name)) for name in _EQUAL]
    chosen = [(name, value) for name, value in chosen if value is not None]
    return [f"runs.{name} = ?" for name, _ in chosen], [value for _, value in chosen]


def _labels(filters: RunFilter) -> list[tuple[str, str]]:
    pairs = list((filters.metadata or {}).items())
    for key, value in pairs:
        if max(len(key), len(value)) > LABEL_CHARS:
            raise InvalidInput(
                f"metadata filter {key[:40]!r} is too long: keys and values can have {LABEL_CHARS} characters"
            )
    return pairs


def _statuses(filters: RunFilter) -> list[str]:
    try:
        return list(dict.fromkeys(Status(status).value for status in filters.status))
    except ValueError as error:
        raise InvalidInput(f"{error}: use one of {', '.join(Status)}") from error


def _bounds(filters: RunFilter, place: tuple[int, str] | None, lead: str) -> tuple[list[str], list[Any]]:
    found: list[str] = []
    values: list[Any] = []
    for sign, moment in ((">", filters.created_after), ("<", filters.created_before)):
        if moment is not None:
            if moment.tzinfo is None:
                raise InvalidInput(f"time {moment.isoformat()} has no zone: add one, such as Z")
            found.append(f"{lead}.created {sign} ?")
            values.append(microseconds(moment))
    if place is not None:
        found.append(f"({lead}.created, {'labels.run' if lead == 'labels' else 'runs.id'}) < (?, ?)")
        values += place
    return found, values


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= PAGE_LIMIT:
        raise InvalidInput(f"limit {limit} must be 1 to {PAGE_LIMIT}")


def _run(row: Row) -> RunRow:
    values: Iterator[Any] = iter(row)
    (
        run, root, agent, status, created, updated, parent, topic, thread, reason, started, ended, attempt, steps, rev,
        error_code, error_message, metadata, sequence, version, pinned, forked_from, forked_at, *record,
    ) = values  # fmt: skip
    return RunRow(
        id=run, root=root, agent=agent, status=Status(status), created_at=utc(created / 1e6),
        updated_at=utc(updated / 1e6), parent=parent, topic=topic, thread=thread, reason=reason,
        started_at=_moment(started), ended_at=_moment(ended), attempt=attempt, steps=steps, rev=rev,
        error_code=error_code, error_message=error_message,
        metadata=None if metadata is None else _decode_metadata(metadata), sequence=sequence, version=version,
        pin=bool(pinned), forked_from=forked_from, forked_at=forked_at,
        record=Raw(record[0].encode()) if record else None,
    )  # fmt: skip


def _thread(row: Row) -> ThreadRow:
    return ThreadRow(
        id=row[0], created_at=utc(row[1] / 1e6), updated_at=utc(row[2] / 1e6), messages=row[3],
        metadata=None if row[4] is None else _decode_metadata(row[4]), recorded=bool(row[5]), sequence=row[6],
    )  # fmt: skip


def _moment(stamp: int | None) -> datetime | None:
    return None if stamp is None else utc(stamp / 1e6)
