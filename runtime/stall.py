"""Who blocks the event loop? Watched from another thread, told once an episode."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import sysconfig
import time
import traceback
from pathlib import Path
from types import FrameType

log = logging.getLogger(__name__)

_ROOMS = [f"{Path(__file__).resolve().parents[1] / room}{os.sep}" for room in
          ("topics", "store", "actors", "gateway", "runtime", "callboard")]  # fmt: skip
_LIBRARIES = [str(Path(sysconfig.get_path(kind)).resolve()) for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
_NOT_THE_USERS = (*_ROOMS, *_LIBRARIES)


_FRAMES = 12


class StallWatch:
    """Lets the watched loop tick, and is asked by another thread (`look`) whether it still does."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: int, after_s: float) -> None:
        self._loop, self._thread, self._after_s = loop, thread, after_s
        self._ticked = time.monotonic()
        self._since: float | None = None
        self._handle: asyncio.TimerHandle | None = None
        self.episodes: list[str] = []
        """Where the loop stood, one entry an episode."""

    def start(self) -> None:
        """Begins to tick; called in the watched loop."""
        self._tick()

    def stop(self) -> None:
        """Ends it; called in the watched loop."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None
        self._ticked = float("inf")

    def _tick(self) -> None:
        self._ticked = time.monotonic()
        self._handle = self._loop.call_later(self._after_s / 4, self._tick)

    def look(self) -> None:
        """Called by the other thread, a few times within `after_s`."""
        ticked = self._ticked
        stood = time.monotonic() - ticked
        if self._since is not None and ticked > self._since:
            log.warning("the event loop goes on; it stood still for %.1f s", ticked - self._since)
            self._since = None
        elif self._since is None and stood > self._after_s:
            self._since = ticked
            frame = sys._current_frames().get(self._thread)  # noqa: SLF001  # the only way to see another thread
            place = blocker(frame)
            self.episodes.append(place)
            task = asyncio.current_task(self._loop)
            log.warning(
                "the event loop has stood still for %.1f s in %s, in task %r: nothing else runs meanwhile (leases are "
                "kept); await, or move the work to a thread or process\n%s",
                stood, place, task.get_name() if task else "none", "".join(traceback.format_stack(frame)[-_FRAMES:]),
            )  # fmt: skip


def blocker(top: FrameType | None) -> str:
    """The innermost function of the user's own code below `top`, otherwise the innermost of all, with file and line."""
    if top is None:
        return "an unknown place"
    frame: FrameType | None = top
    while frame is not None and not _is_users(frame.f_code.co_filename):
        frame = frame.f_back
    found = frame or top
    code = found.f_code
    return f"{code.co_qualname}() at {code.co_filename}:{found.f_lineno}"


def _is_users(filename: str) -> bool:
    if filename.startswith("<"):
        return False
    return not str(Path(filename).resolve()).startswith(_NOT_THE_USERS)
