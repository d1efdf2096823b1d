"""Where the demo leaves the report. Never inside the audited target: that is only read."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from .errors import DemoError

DEFAULT = Path(".callboard") / "demo"


def choose(out: Path | None, target: str | None) -> Path:
    """Return the folder of the report, made and writable.

    It is the folder that was asked for, else `.callboard/demo` here, else, where here is part of the target, a fresh
    folder for temporary files. Raises DemoError when it lies in the target or cannot be written to.
    """
    audited = None if target is None else Path(target).expanduser().resolve()
    if out is None:
        out = DEFAULT if not _within(DEFAULT, audited) else Path(tempfile.mkdtemp(prefix="callboard-audit-"))
    elif _within(out, audited):
        raise DemoError(f"{out} is part of what is audited, which is only read: choose another folder for the report")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            return out
    except OSError as error:
        why = f"the report cannot be written to {out}: {error.strerror}"
        raise DemoError(f"{why}; choose another folder with --out") from error


def discard_if_empty(folder: Path) -> None:
    """Remove the folder when nothing was written to it."""
    with suppress(OSError):
        folder.rmdir()


def write(folder: Path, name: str, content: bytes) -> Path:
    """Write a file so that nobody ever sees half of it."""
    path = folder / name
    draft = folder / f".{name}.{os.getpid()}"
    try:
        draft.write_bytes(content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def _within(folder: Path, audited: Path | None) -> bool:
    return audited is not None and folder.resolve().is_relative_to(audited)
