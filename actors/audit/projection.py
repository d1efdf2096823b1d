"""The projection against the log: the log is applied anew, to a file that is thrown away, and both are compared row by
row.

The file is read as it stands at the beginning, in one transaction, and the log up to the sequence that the file has
applied then: a projector may go on meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...store.projection import Projection, ProjectionError
from ...store.projection.schema import CONTENT, VERSION
from ...topics.errors import NotFound
from ...topics.reads import Stored
from .findings import Findings
from .stream import Moment

_BUSY_S = 10.0
_PAGE = 500
_SHOWN_CHARS = 60
_SUMS = frozenset({"counts", "labels", "skipped", "threads"})
"""Tables whose rows retention changes in other ways than by leaving more of them in the file."""


class Comparison:
    """Make it with `await Comparison.begin(path)`, give it the log, then `report(...)`; always `close()` it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        """Why the file cannot be compared."""
        self._folder = tempfile.TemporaryDirectory(prefix="callboard-check-")
        self._shadow: Projection | None = None
        self._file: sqlite3.Connection | None = None
        self._applied, self._origin = 0, ""
        self._gone: set[int] = set()
        """Sequences of what the file lists as unreadable, and the log does not hold: somebody has taken it away."""

    @classmethod
    async def begin(cls, path: Path) -> Comparison:
        """Fixes the moment of the file. Raises NotFound when there is none."""
        if not await asyncio.to_thread(path.is_file):
            raise NotFound(f"there is no projection {path}", path=str(path))
        found = cls(path)
        try:
            shadow = Path(found._folder.name) / "log.db"
            found._shadow = await Projection.open(shadow)
            await asyncio.to_thread(found._fix, shadow)
        except BaseException:
            await found.close()
            raise
        return found

    def _fix(self, shadow: Path) -> None:
        try:
            self._file = sqlite3.connect(
                f"file:{quote(str(self.path.absolute()))}?mode=ro", uri=True, timeout=_BUSY_S, isolation_level=None,
                check_same_thread=False,
            )  # fmt: skip
            version = self._file.execute("PRAGMA main.user_version").fetchone()[0]
            if version != VERSION:
                self.problem = f"it has schema version {version}, and this Callboard's is {VERSION}"
                return
            self._file.execute("ATTACH ? AS log", (str(shadow),))
            self._file.execute("BEGIN")
            meta = dict(self._file.execute("SELECT key, value FROM main.meta").fetchall())
            self._applied, self._origin = int(meta["applied"]), str(meta["origin"])
            self._gone = {row[0] for row in self._rows("SELECT sequence FROM main.skipped")}
        except (sqlite3.Error, KeyError, ValueError) as error:
            self.problem = f"it cannot be read: {error}"

    def belongs(self, moment: Moment, stream: str) -> bool:
        """Whether the file was built from this stream."""
        return self.problem is not None or self._origin == f"{stream} of {moment.created}"

    def judge(self, moment: Moment, stream: str) -> None:
        """Compares the file's position with the stream."""
        if self.problem is not None:
            return
        if not self.belongs(moment, stream):
            self.problem = f"it was built from {self._origin or 'an unnamed stream'}, not from {stream}"
        elif self._applied > moment.last:
            self.problem = f"it has applied sequence {self._applied}, and the log ends at {moment.last}"

    async def read(self, page: Sequence[Stored]) -> None:
        """The next messages of the log. Raises ProjectionError when the file beside cannot be written."""
        self._gone.difference_update(one.sequence for one in page)
        if self.problem is None and self._shadow is not None:
            await self._shadow.apply([one for one in page if one.sequence <= self._applied])

    async def report(self, findings: Findings, *, truncated: bool) -> None:
        """Compares. `truncated`: the log has lost messages whose rows stay."""
        if self.problem is None:
            try:
                await asyncio.to_thread(self._compare, findings, truncated)
            except (sqlite3.Error, ProjectionError) as error:
                self.problem = f"it cannot be read: {error}"
        if self.problem is not None:
            findings.add("projection_unusable", None, f"{self.path}: {self.problem}")

    async def close(self) -> None:
        """Lets go of the file. Idempotent."""
        if self._shadow is not None:
            await self._shadow.close()
            self._shadow = None
        await asyncio.to_thread(self._release)

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._folder.cleanup()

    # -- comparing ----------------------------------------------------------------------------------------------

    def _compare(self, findings: Findings, truncated: bool) -> None:
        for table, order in CONTENT.items():
            if not (table in _SUMS if truncated else table == "skipped" and self._gone):
                self._compare_table(findings, table, order.split(", "), truncated)

    def _compare_table(self, findings: Findings, table: str, key: list[str], truncated: bool) -> None:
        columns = [row[1] for row in self._rows(f"PRAGMA main.table_info({table})")]
        others = [name for name in columns if name not in key]
        for row in self._rows(_differing(table, key, others)):
            name, run, sequence = _name(table, key, row), _run(key, table, row), int(row[len(key)])
            there, ours, theirs = row[len(key) + 1], row[len(key) + 2 :: 2], row[len(key) + 3 :: 2]
            if not there:
                if not truncated:
                    findings.add("projection_row_extra", run, f"{name} is not in the log", sequence=sequence)
                continue
            found, expected = _difference(others, ours, theirs)
            findings.add("projection_differs", run, f"{name}: {found}", expected=expected, sequence=sequence)
        for row in self._rows(_absent(table, key)):
            run = _run(key, table, row)
            findings.add("projection_row_missing", run, f"{_name(table, key, row)} has no row", sequence=self._applied)

    def _rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        assert self._file is not None
        cursor = self._file.execute(sql)
        while page := cursor.fetchmany(_PAGE):
            yield from page


def _differing(table: str, key: list[str], others: list[str]) -> str:
    """Rows of the file that the log does not have, or not so: key, sequence, whether it is there, pairs of values."""
    same = " AND ".join(f"l.{name} = p.{name}" for name in key)
    unequal = " OR ".join([f"l.{key[0]} IS NULL", *(f"l.{name} IS NOT p.{name}" for name in others)])
    keys = ", ".join(f"p.{name}" for name in key)
    sequence = "p.sequence" if "sequence" in [*key, *others] else "0"
    pairs = "".join(f", p.{name}, l.{name}" for name in others)
    return (
        f"SELECT {keys}, {sequence}, l.{key[0]} IS NOT NULL{pairs} FROM main.{table} AS p "  # noqa: S608 schema's names
        f"LEFT JOIN log.{table} AS l ON {same} WHERE {unequal} ORDER BY {keys}"
    )


def _absent(table: str, key: list[str]) -> str:
    """Keys of rows that the log gives and the file lacks."""
    same = " AND ".join(f"l.{name} = p.{name}" for name in key)
    keys = ", ".join(f"l.{name}" for name in key)
    return (
        f"SELECT {keys} FROM log.{table} AS l LEFT JOIN main.{table} AS p ON {same} "  # noqa: S608 names of the schema
        f"WHERE p.{key[0]} IS NULL ORDER BY {keys}"
    )


def _name(table: str, key: list[str], row: Sequence[Any]) -> str:
    return f"{table} " + ", ".join(f"{name} {row[i]!r}" for i, name in enumerate(key))


def _run(key: list[str], table: str, row: Sequence[Any]) -> str | None:
    at = {"runs": "id", "labels": "run", "artifacts": "run"}.get(table)
    return None if at is None else str(row[key.index(at)])


def _difference(others: list[str], ours: Sequence[Any], theirs: Sequence[Any]) -> tuple[str, str]:
    """The columns that differ, but the record's text when others tell it better."""
    found = [(name, a, b) for name, a, b in zip(others, ours, theirs, strict=True) if a != b or type(a) is not type(b)]
    found = [one for one in found if one[0] != "record"] or found
    return (
        ", ".join(f"{name} {str(a)[:_SHOWN_CHARS]}" for name, a, _ in found),
        ", ".join(f"{name} {str(b)[:_SHOWN_CHARS]}" for name, _, b in found),
    )
