"""Which files belong to an author's code, and when they change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist"})
_FOLDERS_MAX = 500


def folder_of(target: str) -> Path:
    """The folder whose Python files are watched: that of the file, or of the module's top package."""
    import importlib.util
    import sys

    from ..loading import Target

    parsed = Target.parse(target)
    if parsed.file is not None:
        return parsed.file.resolve().parent
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    spec = importlib.util.find_spec(parsed.module.partition(".")[0])  # of the top package: imports nothing
    if spec is None or spec.origin is None:
        return Path.cwd()
    return Path(spec.origin).resolve().parent


def folders(top: Path) -> list[Path]:
    """`top` and the folders below it that can hold Python code, at most 500.

    Hidden folders and environments are left out, so that neither `.callboard` nor a large `.venv` counts."""
    found: list[Path] = []
    for where, below, files in os.walk(top):
        below[:] = sorted(name for name in below if name not in _SKIPPED and not name.startswith("."))
        if "pyvenv.cfg" in files:
            below.clear()
            continue
        found.append(Path(where))
        if len(found) == _FOLDERS_MAX or Path(where) == Path.home():
            break
    return found


async def changes(top: Path, stop: asyncio.Event) -> AsyncIterator[list[Path]]:
    """The Python files that changed, each time some did. New folders count from the next change on."""
    from watchfiles import PythonFilter, awatch

    while not stop.is_set():
        async for found in awatch(
            *folders(top), watch_filter=PythonFilter(), stop_event=stop, recursive=False, debounce=200, step=50
        ):
            yield sorted({Path(path) for _, path in found})
            break
