"""Waiting that a signal ends. Signals only leave a note here, so that nothing is ever cut off half-started."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Patience:
    """Pauses of the main thread, and the signals that came meanwhile."""

    def __init__(self) -> None:
        self._told = threading.Event()
        self._number = 0
        self.hurried = False
        """A second signal came: what still runs is to be killed instead of asked."""

    def check(self) -> None:
        """Raises Interrupted if a signal came."""
        if self._told.is_set():
            raise Interrupted(self._number)

    def pause(self, seconds: float) -> None:
        """Sleeps; raises Interrupted as soon as a signal comes."""
        self._told.wait(seconds)
        self.check()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Takes SIGINT, SIGTERM and SIGHUP over, and gives them back at the end. Must be called in the main thread."""
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.hurried = self._told.is_set()
        self._number = self._number or number
        self._told.set()
