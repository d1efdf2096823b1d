"""The way from the parts of an attempt back to it.

The attempt holds its parts, and they may have to end it. If they held it too, nothing of an attempt would be freed
before the garbage collector has found it, which costs more than all the rest of a short run. They hold the tether
instead, and the attempt cuts it when it has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


class Tether:
    """By which the parts of one attempt end it. `interrupt` is the attempt's; see there for the words it takes."""

    __slots__ = ("_attempt", "_interrupt", "_run")

    def __init__(self, run: str, attempt: int, interrupt: Callable[[str], None]) -> None:
        self._run, self._attempt = run, attempt
        self._interrupt: Callable[[str], None] | None = interrupt

    def end(self, why: str) -> None:
        """Ends the attempt; without effect on one that has ended."""
        if self._interrupt is not None:
            self._interrupt(why)

    def lost(self, error: BaseException) -> None:
        """The run turned out to be somebody else's."""
        log.info("run %s attempt %d is owned by somebody else now: %s", self._run, self._attempt, error)
        self.end("lost")

    def suspend(self) -> None:
        """The code only waits, and has waited for long enough."""
        self.end("suspended")

    def stop(self) -> None:
        """The code wants its own run to be canceled."""
        self.end("stopped")

    def cut(self) -> None:
        """The attempt has ended."""
        self._interrupt = None
