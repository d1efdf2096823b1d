"""Processes that host the actor `recorder` (tests/runtime/programs/recorder.py), and what they noted."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from callboard.actors.asking import ask_actor
from callboard.actors.publication import publish
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import NoResponders, Unavailable
from tests.support.nursery import Process, born

PROGRAM = Path(__file__).parents[1] / "runtime" / "programs" / "recorder.py"


class Entry(NamedTuple):
    what: str
    pid: int
    key: str
    n: int
    attempt: int


class Fleet:
    """The processes of a test, and what they noted."""

    def __init__(self, settings: BrokerSettings, file: Path) -> None:
        self._settings, self._file = settings, file
        self.processes: list[Process] = []

    def start(self, takes_s: float = 0.02) -> Process:
        words = [PROGRAM, self._settings.nats_url, self._settings.namespace, self._file, takes_s]
        process = born([str(word) for word in words], os.environ)
        self.processes.append(process)
        return process

    @property
    def notes(self) -> list[Entry]:
        text = self._file.read_text() if self._file.exists() else ""
        words = [line.split() for line in text.splitlines()]
        return [Entry(what, int(pid), key, int(n), int(attempt)) for what, pid, key, n, attempt in words]

    def starts(self, pid: int | None = None) -> list[Entry]:
        return [entry for entry in self.notes if entry.what == "start" and pid in (None, entry.pid)]

    def ended(self) -> set[tuple[str, int]]:
        return {(entry.key, entry.n) for entry in self.notes if entry.what == "end"}

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()

    def check_order(self) -> None:
        """No message is started before the one before it of its key has ended; only the one in hand is seen twice."""
        newest: dict[str, int] = {}
        over: set[tuple[str, int]] = set()
        for entry in self.notes:
            if entry.what == "end":
                over.add((entry.key, entry.n))
            elif entry.what == "start":
                before = newest.get(entry.key, -1)
                assert entry.n in (before, before + 1), f"{entry} after {before}"
                assert entry.n in (0, before) or (entry.key, entry.n - 1) in over, (
                    f"{entry} before its predecessor ended"
                )
                newest[entry.key] = entry.n


async def eventually(condition: Callable[[], bool], within_s: float, what: str) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        await asyncio.sleep(0.02)


async def serving(bus: Bus, keys: int, within_s: float = 15) -> set[int]:
    """The pids that serve the keys, once every key is served."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return {await ask_actor(bus, "recorder", f"k{n}", None, int, 0.5, None) for n in range(keys)}
        except (NoResponders, Unavailable):
            assert time.monotonic() < deadline, "not every key is served"
            await asyncio.sleep(0.1)


async def both_serve(bus: Bus, processes: list[Process], keys: int) -> None:
    deadline = time.monotonic() + 15
    while await serving(bus, keys) != {process.pid for process in processes}:
        assert time.monotonic() < deadline, "the keys are not spread"
        await asyncio.sleep(0.1)


async def fill(bus: Bus, keys: int, each: int, first: int = 0) -> set[tuple[str, int]]:
    for n in range(first, first + each):
        await asyncio.gather(*(publish(bus, "notes", {"n": n}, f"k{key}") for key in range(keys)))
    return {(f"k{key}", n) for key in range(keys) for n in range(first, first + each)}
