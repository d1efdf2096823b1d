"""Logs of a process: one line a record, on standard error.

`2025-06-01T12:00:00.123Z INFO callboard.actors.worker: …`, and what a context's logger knows, as `run_id=…`. An
exception is told at the end of its line, with the places nearest to it; `-v` adds the debug level and whole
tracebacks.
"""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

_PLACES = 3
_FIELDS = ("run_id", "attempt", "agent", "actor", "key")
"""What a context's logger adds to its records."""
_QUIET = ("asyncio", "watchfiles", "uvicorn", "aiosqlite", "opentelemetry")

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class LineFormatter(logging.Formatter):
    """One line a record; with `tracebacks` an exception's traceback follows on lines of its own."""

    def __init__(self, *, tracebacks: bool = False) -> None:
        super().__init__()
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        stamp = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        message = record.getMessage().replace("\n", "\\n").replace("\r", "\\r")
        known = ((name, getattr(record, name, None)) for name in _FIELDS)
        fields = "".join(f" {name}={value}" for name, value in known if value is not None)
        line = f"{stamp}.{int(record.msecs):03d}Z {record.levelname} {record.name}: {message}{fields}"
        if not record.exc_info or record.exc_info[0] is None:
            return line
        line += f" | {_told(record.exc_info)}"
        return f"{line}\n{self.formatException(record.exc_info)}" if self._tracebacks else line


def _told(info: ExcInfo) -> str:
    error = info[1]
    text = " ".join(traceback.format_exception_only(error)).strip().replace("\n", " ")
    places = traceback.extract_tb(info[2])[-_PLACES:]
    where = " < ".join(f"{Path(place.filename).name}:{place.lineno} in {place.name}" for place in reversed(places))
    return f"{text} ({where})" if where else text


def set_up(verbose: int, *, quiet: bool = False) -> None:
    """Sets up logging for the process. `quiet`: warnings only, for commands that a person waits for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(tracebacks=verbose > 0))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    root.setLevel(logging.WARNING)
    logging.getLogger("callboard").setLevel(level)
    if not quiet:
        root.setLevel(logging.INFO)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.INFO if verbose > 1 else logging.WARNING)
