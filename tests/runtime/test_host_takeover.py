"""Actors over several processes: a process that dies, stalls, drains or joins never costs a message or its order."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from callboard.actors.asking import ask_actor
from callboard.actors.publication import publish
from callboard.runtime.nats_server import ServerProcess
from callboard.store.deadletters import DeadLetters
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import NoResponders, Unavailable

PROGRAM = Path(__file__).parent / "programs" / "recorder.py"
pytestmark = [pytest.mark.system, pytest.mark.crash]


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
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, takes_s: float = 0.02) -> subprocess.Popen[bytes]:
        command = [sys.executable, PROGRAM, self._settings.nats_url, self._settings.namespace, self._file, str(takes_s)]
        process = subprocess.Popen([str(word) for word in command])
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


@pytest.fixture
def fleet(settings: BrokerSettings, bus: Bus, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(settings, tmp_path / "notes")
    yield fleet
    fleet.end()


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


async def both_serve(bus: Bus, processes: list[subprocess.Popen[bytes]], keys: int) -> None:
    deadline = time.monotonic() + 15
    while await serving(bus, keys) != {process.pid for process in processes}:
        assert time.monotonic() < deadline, "the keys are not spread"
        await asyncio.sleep(0.1)


async def fill(bus: Bus, keys: int, each: int, first: int = 0) -> set[tuple[str, int]]:
    for n in range(first, first + each):
        await asyncio.gather(*(publish(bus, "notes", {"n": n}, f"k{key}") for key in range(keys)))
    return {(f"k{key}", n) for key in range(keys) for n in range(first, first + each)}


async def test_the_keys_are_shared_and_a_killed_process_is_replaced_within_seconds(bus: Bus, fleet: Fleet) -> None:
    one, two = fleet.start(), fleet.start()
    await both_serve(bus, [one, two], 24)
    expected = await fill(bus, 24, 20)
    await eventually(lambda: len(fleet.ended()) > 150, 20, "a third is handled")
    one.kill()
    one.wait()
    killed = time.monotonic()
    assert await serving(bus, 24) == {two.pid}
    took = time.monotonic() - killed
    await eventually(lambda: fleet.ended() >= expected, 30, "all messages are handled")
    fleet.check_order()
    assert took < 6, f"takeover took {took:.1f} s"
    twice = [key for key in expected if [(e.key, e.n) for e in fleet.starts()].count(key) > 1]
    assert len(twice) <= 24, "at most one message of each key is seen twice"


async def test_a_stalled_process_that_comes_back_starts_nothing_that_is_not_its_own(bus: Bus, fleet: Fleet) -> None:
    one, two = fleet.start(), fleet.start()
    await both_serve(bus, [one, two], 24)
    expected = await fill(bus, 24, 15)
    await eventually(lambda: len(fleet.ended()) > 100, 20, "some are handled")
    os.kill(one.pid, signal.SIGSTOP)
    assert await serving(bus, 24) == {two.pid}
    await eventually(lambda: fleet.ended() >= expected, 30, "the other handles all")
    expected |= await fill(bus, 24, 5, first=15)
    os.kill(one.pid, signal.SIGCONT)
    expected |= await fill(bus, 24, 5, first=20)
    await eventually(lambda: fleet.ended() >= expected, 30, "all messages are handled")
    fleet.check_order()


async def test_a_drained_process_finishes_what_it_holds_and_hands_over_at_once(bus: Bus, fleet: Fleet) -> None:
    one, two = fleet.start(), fleet.start()
    await both_serve(bus, [one, two], 24)
    expected = await fill(bus, 24, 20)
    await eventually(lambda: len(fleet.ended()) > 100, 20, "some are handled")
    one.terminate()
    assert await asyncio.to_thread(one.wait, 10) == 0
    await eventually(lambda: fleet.ended() >= expected, 30, "all messages are handled")
    fleet.check_order()
    assert sorted((e.key, e.n) for e in fleet.starts()) == sorted(expected), "none is seen twice"


async def test_the_broker_restarts_in_the_middle(bus: Bus, fleet: Fleet, nats: ServerProcess) -> None:
    fleet.start()
    await serving(bus, 24)
    expected = await fill(bus, 24, 10)
    await eventually(lambda: len(fleet.ended()) > 50, 20, "some are handled")
    nats.kill()
    await asyncio.sleep(0.5)
    await asyncio.to_thread(nats.start)
    await bus.connected()
    expected |= await fill(bus, 24, 5, first=10)
    await eventually(lambda: fleet.ended() >= expected, 30, "all messages are handled")
    fleet.check_order()


async def test_a_message_that_kills_its_process_ends_as_a_dead_letter(bus: Bus, fleet: Fleet) -> None:
    fleet.start()
    await serving(bus, 4)
    await publish(bus, "notes", {"n": 0, "kill": True}, "k0")
    await publish(bus, "notes", {"n": 1}, "k0")
    for _ in range(6):
        await eventually(lambda: fleet.processes[-1].poll() is not None or ("k0", 1) in fleet.ended(), 30, "killed")
        if ("k0", 1) in fleet.ended():
            break
        fleet.start()
    assert ("k0", 1) in fleet.ended(), "the next message of the key is handled"
    letters = await DeadLetters(bus).page(0, 10)
    assert "notes" in str(letters)
    assert 3 <= len([entry for entry in fleet.starts() if entry.n == 0]) <= 4
