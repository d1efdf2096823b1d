"""The SQLite file: opened in WAL mode, one connection that writes and one that reads, each with its own thread.

Several processes may have the same file open; writers wait for each other. A file that is no database, or damaged, is
moved aside and a new one begun; a database of another schema version is emptied.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiosqlite

from ...topics.errors import InvalidInput
from . import schema
from .errors import ProjectionCorrupt, ProjectionError, ProjectionMoved, error_of

log = logging.getLogger(__name__)

Row = tuple[Any, ...]

REFUSED = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""What SQLite says about a value that it cannot hold; nothing is wrong with the file."""

_BUSY_S = 10.0
_OWN_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",  # after a power loss the newest transactions may be missing: they are read again
    "PRAGMA wal_autocheckpoint = 2000",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -16000",
    "PRAGMA temp_store = MEMORY",
)


class Database:
    """Make it with `await Database.open(path)`; end it with `close()`. Raises subclasses of ProjectionError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = asyncio.Lock()
        self._writer: aiosqlite.Connection | None = None
        self._reader: aiosqlite.Connection | None = None

    @classmethod
    async def open(cls, path: Path) -> Database:
        """Opens or creates the file; a damaged one is moved aside."""
        database = cls(path)
        try:
            try:
                await database._open()
            except ProjectionCorrupt as error:
                await database.replace(error)
        except BaseException:
            await database.close()
            raise
        return database

    async def _open(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ProjectionError(f"the folder of the projection {self.path} cannot be made: {error}") from error
        try:
            # aiosqlite leaves its thread running for a moment when a file cannot be opened: find that out before.
            await asyncio.to_thread(_probe, self.path)
        except sqlite3.Error as error:
            raise error_of(error, self.path) from error
        self._writer = await self._connect()
        await self._migrate()
        self._reader = await self._connect()
        await self.read("PRAGMA query_only = 1")

    async def _connect(self) -> aiosqlite.Connection:
        try:
            connection = await aiosqlite.connect(self.path, timeout=_BUSY_S, isolation_level=None)
        except sqlite3.Error as error:
            raise error_of(error, self.path) from error
        try:
            for pragma in _PRAGMAS:
                await connection.execute_fetchall(pragma)
        except sqlite3.Error as error:
            await connection.close()
            raise error_of(error, self.path) from error
        except BaseException:
            connection.stop()  # its thread would keep a process that was told to end from ending
            raise
        return connection

    async def _migrate(self) -> None:
        """Makes the tables, or empties the file when they are of another version; safe to run by many at once."""
        if await self.version() == schema.VERSION:
            return
        async with self.transaction():
            found = await self.version()
            if found == schema.VERSION:
                return
            tables = await self.execute(_OWN_TABLES)
            if tables:
                log.warning(
                    "the projection %s has schema version %d, this Callboard's is %d: it is built again from the log",
                    self.path, found, schema.VERSION,
                )  # fmt: skip
            for (name,) in tables:
                await self.execute(f'DROP TABLE "{name}"')
            for statement in filter(str.strip, schema.TABLES.split(";")):
                await self.execute(statement)
            await self.many("INSERT INTO meta VALUES (?, 0)", [(key,) for key in schema.META])
            await self.execute("INSERT INTO meta VALUES ('origin', '')")
            await self.execute(f"PRAGMA user_version = {schema.VERSION}")

    async def version(self) -> int:
        """The schema version of the file, 0 for a new one."""
        rows = await self.execute("PRAGMA user_version")
        return int(rows[0][0])

    async def close(self) -> None:
        """Closes both connections; idempotent."""
        for connection in (self._reader, self._writer):
            if connection is not None:
                with suppress(sqlite3.Error, ValueError):
                    await connection.close()
        self._reader = self._writer = None

    async def replace(self, why: Exception) -> None:
        """Moves the damaged file aside (its name gains `.damaged-` and the time) and opens a new one."""
        await self.close()
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}")
        log.error("%s; it is moved to %s and built again from the log", why, aside.name)
        _move(self.path, aside)
        await self._open()

    # -- writing ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """All or nothing. Cancelled at any point it is rolled back, or was committed as a whole."""
        async with self._lock:
            try:
                await self.execute("BEGIN IMMEDIATE")
                yield
                await self.execute("COMMIT")
            except BaseException:
                # The connection works through its statements in order, so this one ends whatever was begun before it.
                with suppress(ProjectionError):
                    await self.execute("ROLLBACK")
                raise

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """One statement on the writing connection."""
        return await self._run(self._writer, sql, parameters)

    async def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """One statement for each of `rows` on the writing connection. Raises those of REFUSED as they are."""
        if self._writer is None:
            raise ProjectionError(f"the projection {self.path} is closed")
        try:
            await self._writer.executemany(sql, rows)
        except REFUSED:
            raise
        except sqlite3.Error as error:
            raise error_of(error, self.path) from error

    # -- reading ------------------------------------------------------------------------------------------------

    async def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """The rows of a query, from a snapshot that no writer waits for."""
        try:
            return await self._run(self._reader, sql, parameters)
        except (UnicodeError, OverflowError) as error:
            raise InvalidInput(f"the projection cannot be asked for this: {error}") from error

    async def _run(self, connection: aiosqlite.Connection | None, sql: str, parameters: Sequence[Any]) -> list[Row]:
        if connection is None:
            raise ProjectionError(f"the projection {self.path} is closed")
        try:
            return [tuple(row) for row in await connection.execute_fetchall(sql, parameters)]
        except sqlite3.Error as error:
            raise error_of(error, self.path) from error

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[aiosqlite.Connection]:
        """A connection of its own in a read transaction: one moment of the database, for as long as wanted."""
        connection = await self._connect()
        try:
            await connection.execute_fetchall("PRAGMA query_only = 1")
            await connection.execute_fetchall("BEGIN")
            yield connection
        except sqlite3.Error as error:
            raise error_of(error, self.path) from error
        finally:
            await connection.close()

    async def meta(self, *, fresh: bool = False) -> dict[str, Any]:
        """The values of `meta`; `fresh` reads them within the transaction under way.

        Raises ProjectionMoved when another version of Callboard has made the file its own."""
        sql = "SELECT key, value FROM meta UNION ALL SELECT 'version', user_version FROM pragma_user_version"
        rows = await (self.execute(sql) if fresh else self.read(sql))
        found: dict[str, Any] = {row[0]: row[1] for row in rows}
        if found["version"] != schema.VERSION:
            raise ProjectionMoved(
                f"the projection {self.path} was made version {found['version']} by another Callboard; "
                f"this one needs {schema.VERSION}: give each its own file",
                path=str(self.path),
            )
        return found


def _probe(path: Path) -> None:
    sqlite3.connect(path, timeout=_BUSY_S).close()


def _move(path: Path, aside: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            Path(f"{path}{suffix}").replace(f"{aside}{suffix}")
