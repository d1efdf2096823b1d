"""A count of what was really executed, kept apart from Callboard's log so that the one can be held against the other.

When `AUDIT_EXECUTIONS` names a file, each execution of a step that is marked with `counted` appends one line to it as
it begins. Without the variable nothing is written.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

from callboard import Context

VARIABLE = "AUDIT_EXECUTIONS"
"""Environment variable: the path of the file. All processes of one machine may append to the same."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a step that has begun: by which attempt of which run, in which process."""

    run: str
    attempt: int
    step: str
    pid: int


_current: ContextVar[tuple[str, int] | None] = ContextVar("audit_run", default=None)


def counting(ctx: Context) -> None:
    """Say for which run the steps are executed from here on, in this task and the threads of its steps."""
    _current.set((ctx.run.id, ctx.run.attempt))


def counted(name: str, fn: Callable[P, R]) -> Callable[P, R]:
    """Return the function under the name of its step; each call is noted before it does anything."""

    @functools.wraps(fn)
    def step(*args: P.args, **kwargs: P.kwargs) -> R:
        _note(name)
        return fn(*args, **kwargs)

    step.__name__ = name
    return step


def executions(file: Path) -> list[Execution]:
    """Return what was noted, in order; nothing when no step has begun. A line torn by a crash of the machine fails."""
    if not file.exists():
        return []
    return [Execution(**json.loads(line)) for line in file.read_text().splitlines()]


def _note(step: str) -> None:
    file, current = os.environ.get(VARIABLE), _current.get()
    if not file or current is None:
        return
    run, attempt = current
    line = json.dumps(asdict(Execution(run, attempt, step, os.getpid()))) + "\n"
    # One write to a file opened for appending is never mixed with that of another process.
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)
