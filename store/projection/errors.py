"""What can go wrong with the read model. None of it touches the log: the projection can always be rebuilt from there.

ProjectionError          the database refused; the message names the file and what to do
├── ProjectionFull       the disk (or a limit of the database) is full; nothing of the batch was applied
├── ProjectionReadOnly   the file or its folder cannot be written
├── ProjectionBusy       another process holds the database for longer than the busy timeout
├── ProjectionCorrupt    the file is not a database any more: it is moved aside and rebuilt
├── ProjectionMoved      another process has reset the database: read again from where it stands
└── ProjectionBehind     the sequence that was waited for was not applied in time
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ...topics.errors import CallboardError


class ProjectionError(CallboardError):
    """The database of the projection cannot be used."""

    code = "projection_error"


class ProjectionFull(ProjectionError):
    """No space left for the projection; it goes on by itself when there is space again."""

    code = "projection_full"
    retryable = True


class ProjectionReadOnly(ProjectionError):
    """The file of the projection, or its folder, cannot be written."""

    code = "projection_read_only"


class ProjectionBusy(ProjectionError):
    """Another process writes the projection at this moment."""

    code = "projection_busy"
    retryable = True


class ProjectionCorrupt(ProjectionError):
    """The file is damaged or no database."""

    code = "projection_corrupt"


class ProjectionMoved(ProjectionError):
    """The database does not stand where this process left it: somebody reset or replaced it."""

    code = "projection_moved"
    retryable = True


class ProjectionBehind(ProjectionError):
    """The projection had not applied the sequence within the time given; `applied` says how far it was."""

    code = "projection_behind"
    retryable = True


def error_of(error: sqlite3.Error, path: Path) -> ProjectionError:
    """The projection's error for one of SQLite's, told apart by its result code."""
    name = getattr(error, "sqlite_errorname", None) or ""
    facts = {"path": str(path), "sqlite": name}
    if name.startswith("SQLITE_FULL"):
        return ProjectionFull(f"the projection {path} cannot grow: free some disk space ({error})", **facts)
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return ProjectionReadOnly(
            f"the projection {path} cannot be written: check the rights of the file and its folder ({error})", **facts
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return ProjectionBusy(f"the projection {path} is locked by another process ({error})", **facts)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return ProjectionCorrupt(f"the projection {path} is damaged ({error})", **facts)
    return ProjectionError(f"the projection {path} failed: {error} ({name or type(error).__name__})", **facts)
