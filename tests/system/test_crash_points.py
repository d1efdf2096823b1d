"""A process of each role dies at each crash point: nothing is lost, nothing is done twice, everything ends.

The scenes wait more than they work, so several are played at once in the background; each test awaits its own.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.topics.crash import POINTS
from tests.system import crash_scenes

AT_ONCE = 3
ROOT = Path(__file__).parents[2]


class Stage:
    """A loop in a thread of its own, in which scenes are played, a few at a time."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self._loop = asyncio.new_event_loop()
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stage")
        self._thread.start()
        self.plays: dict[str, Future[None]] = {}

    def announce(self, points: list[str]) -> None:
        for point in points:
            self.plays[point] = asyncio.run_coroutine_threadsafe(self._play(point), self._loop)

    async def _play(self, point: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        async with self._gate:
            folder = self._folder / point
            folder.mkdir()
            await crash_scenes.play(self._url, folder, point)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        """Scenes that nobody has waited for end as they would have done: each closes what it has opened."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture(scope="module")
def stage(
    nats: ServerProcess, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Stage]:
    found = Stage(nats.url, tmp_path_factory.mktemp("scenes"))
    here = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    found.announce([one.params["point"] for one in here if one is not None and "point" in one.params])
    yield found
    found.close()


@pytest.mark.crash
@pytest.mark.proof
@pytest.mark.system
@pytest.mark.parametrize("point", POINTS)
def test_a_process_dies_at(point: str, stage: Stage) -> None:
    stage.plays[point].result(175)


def test_every_point_stands_in_the_code_and_has_a_scene() -> None:
    found: set[str] = set()
    for room in ("actors", "store", "gateway", "runtime"):
        for path in (ROOT / room).rglob("*.py"):
            for name, detail in re.findall(r'crash\.point\(\s*"([^"]+)"(, )?', path.read_text()):
                found.add(name + (".*" if detail else ""))
    wanted = {name if name in found else f"{name.rpartition('.')[0]}.*" for name in POINTS}
    assert wanted == found
    assert {*crash_scenes.SCENES, "gateway.before-answer"} == POINTS.keys()


@pytest.mark.parametrize("wrong", ["worker.nowhere", "worker.before-ack:x", ":1"])
def test_a_point_that_does_not_exist_is_refused_at_the_start(wrong: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import callboard.topics.crash"],
        env={"CALLBOARD_CRASH_AT": wrong}, capture_output=True, text=True, cwd="/", timeout=30,
    )  # fmt: skip
    assert done.returncode == 1
    assert "names no crash point" in done.stderr
