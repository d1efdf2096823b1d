"""What is said to a run while it is carried out: read when a notice has come, not otherwise."""

from __future__ import annotations

import asyncio
import contextlib

from ...store.words import Spoken, Words
from ...topics.bus import Bus
from ...topics.errors import CallboardError
from ...topics.messages import Answer

_LOOK_S = 5.0
"""A notice may be lost: whoever asks for messages looks himself this often."""


class Inbox:
    """The words to one run, as far as this attempt has read them. `after`: what earlier attempts have taken."""

    def __init__(self, bus: Bus, run: str, after: int) -> None:
        self._words, self._run = Words(bus), run
        self._read = self._taken = after
        self._told = 0
        self._fresh = True
        self._messages: list[Spoken] = []
        self._lock = asyncio.Lock()
        self._came = asyncio.Event()
        self._looked = 0.0

    @property
    def heard(self) -> int:
        """Sequence up to which everything is read."""
        return self._read

    @property
    def position(self) -> int:
        """Sequence up to which the code has taken the messages: where the next attempt goes on."""
        return self._taken

    def told(self, sequence: int = 0) -> None:
        """Something was said, up to this sequence; 0: perhaps."""
        self._told = max(self._told, sequence)
        self._fresh = True
        self._came.set()

    async def answers(self) -> list[Answer]:
        """Answers that have come since the last look."""
        return [one.word.answer for one in await self._look() if one.word.answer is not None]

    async def take(self, most: int | None = None) -> list[Spoken]:
        """The next messages, at most so many; none when none has come. No request while no notice has come. Raises
        Unavailable."""
        await self._look()
        new = [one for one in self._messages if one.sequence > self._taken][:most]
        if new:
            self._taken = new[-1].sequence
            self._messages = [one for one in self._messages if one.sequence > self._taken]
        return new

    async def since(self, position: int) -> list[Spoken]:
        """All messages after a position that the caller keeps himself, such as that of a checkpoint. No request while
        no notice has come. Raises Unavailable."""
        await self._look()
        self._taken = max(self._taken, position)
        self._messages = [one for one in self._messages if one.sequence > position]
        return list(self._messages)

    async def more(self) -> None:
        """Waits for the next notice, or until it is time to look without one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self._came.wait()
        self._fresh = True

    async def _look(self) -> list[Spoken]:
        """Everything new; messages among it are kept for whoever takes them."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if not self._fresh and now < self._looked + _LOOK_S:
                return []
            self._fresh, self._looked = False, now
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
