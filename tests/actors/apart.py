"""Functions that are called in processes of their own."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass
class Order:
    """What typed code wants."""

    name: str
    at: datetime


class Odd(Exception):
    """Cannot be made from what it says."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Plain(Exception):
    """Can be made again."""


def where() -> list[int]:
    """The step's process, and its parent's parent."""
    return [os.getpid(), os.getpgid(0)]


def typed(order: Order, *rest: datetime, **named: Order) -> dict[str, Any]:
    """Says what came in."""
    assert isinstance(order, Order)
    assert all(isinstance(one, datetime) for one in rest)
    return {"name": order.name, "year": order.at.year + len(rest), "named": {k: v.at.year for k, v in named.items()}}


async def asynchronous(text: str) -> str:
    """On a loop of its own."""
    return text.upper()


def big(size: int, text: str = "") -> str:
    """More than a pipe holds, in and out."""
    return text + "x" * size


def prints() -> None:
    """Says something every way."""
    print("to standard output")
    sys.stderr.write("to standard error, without an end")
    logging.getLogger("mine").warning("logged")
    print("x" * 20_000)


def raises(kind: str) -> Any:
    """Fails in one way or another."""
    match kind:
        case "plain":
            raise Plain("no")
        case "odd":
            raise Odd(1, 2)
        case "file":
            Path("/nonexistent/x").read_text()
        case "exit":
            sys.exit(3)
        case "leave":
            os._exit(3)
        case "crash":
            ctypes.string_at(0)
        case "result":
            return object()
    return None


def lingers(file: str) -> None:
    """Leaves a process behind in its group, and does not end; keeps the interpreter's lock as well."""
    below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    Path(file + ".new").write_text(f"{os.getpid()} {below.pid}")
    Path(file + ".new").rename(file)
    ctypes.PyDLL(None).sleep(300)
    time.sleep(300)


def leaves(file: str) -> str:
    """Ends, and leaves a process behind."""
    below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    Path(file).write_text(str(below.pid))
    return "done"
