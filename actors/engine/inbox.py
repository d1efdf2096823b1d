"""What is said to a run while it is carried out: read when a notice has come, not otherwise."""

from __future__ import annotations

import asyncio
import logging

from ...store.words import Spoken, Words
from ...topics.bus import Bus
from ...topics.errors import CallboardError
from ...topics.messages import Answer

log = logging.getLogger(__name__)


class Inbox:
    """The words to one run, as far as this attempt has read them. `after`: what earlier attempts have taken."""

    def __init__(self, bus: Bus, run: str, after: int) -> None:
        self._words, self._run = Words(bus), run
        self._read = after
        """Sequence up to which everything is read."""
        self._told = 0
        self._fresh = True
        """Whether something may have been said that is not read."""
        self._messages: list[Spoken] = []
        self._lock = asyncio.Lock()
        self._came = asyncio.Event()

    @property
    def heard(self) -> int:
        """Sequence up to which everything is read."""
        return self._read

    def told(self, sequence: int) -> None:
        """Something was said, up to this sequence; 0: perhaps."""
        self._told = max(self._told, sequence)
        self._fresh = True
        self._came.set()

    async def answers(self) -> list[Answer]:
        """Answers that have come since the last look."""
        return [one.word.answer for one in await self._look() if one.word.answer is not None]

    async def _look(self) -> list[Spoken]:
        """Everything new; messages among it are kept for whoever takes them. Raises Unavailable."""
        async with self._lock:
            if not self._fresh:
                return []
            self._fresh = False
            self._came.clear()
            try:
                found = await self._words.of(self._run, self._told if self._told > self._read else 0, self._read)
            except CallboardError:
                self._fresh = True
                raise
            if found:
                self._read = found[-1].sequence
            self._messages += [one for one in found if one.word.answer is None]
            return found
