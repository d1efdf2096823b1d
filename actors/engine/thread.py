"""The thread of a run, as its agent sees it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ...store.threads import Owner
from ...topics import codec
from ...topics.errors import Conflict, StaleFence
from ...topics.messages import ThreadMessage
from .parts import Parts

_MESSAGES = 10_000


@dataclass(frozen=True)
class Said:
    """One message of a thread. `run` is the run that said it; None for somebody outside."""

    role: str
    content: Any
    """Plain JSON, whatever its size."""
    run: str | None = None


class ThreadHandle:
    """A context that outlives its runs: an id, and a common history of messages."""

    def __init__(self, step: Callable[..., Coroutine[Any, Any, Any]], run: str, thread: str, parts: Parts) -> None:
        self._step, self._run = step, run
        self._threads, self._blobs, self._writer, self._refused = (
            parts.workplace.conversations,
            parts.blobs,
            parts.writer,
            parts.refused,
        )
        self._turn = parts.record.turn
        self._place = (self._turn and self._turn.branch) or thread
        self.id = thread

    async def messages(self) -> list[Said]:
        """The messages so far, in the broker's order, without what was rolled back; journaled, so that every
        attempt sees the same. At most 10,000."""

        async def read() -> list[Said]:
            found = await self._threads.messages(self._place, limit=_MESSAGES)
            return [await self._said(one.message) for one in found]

        found: list[Said] = await self._step(read, name="thread.messages", returns=list[Said])
        return found

    async def _said(self, message: ThreadMessage) -> Said:
        return Said(message.role, codec.decode(await self._blobs.value(message.content)), message.run)

    async def say(self, role: str, content: Any) -> int:
        """Appends a message; its sequence. Once per run and place in the code, at least once over a crash; refused once
        the attempt is over. What an optimistic run says stands in a branch until the run is kept."""
        data = codec.encode(content)

        async def append() -> int:
            message = ThreadMessage(
                role=role, content=await self._blobs.payload(data), run=self._run, turn=await self._turn_of_another()
            )
            try:
                return await self._threads.append(self._place, message, Owner(self._run, self._writer.fence))
            except StaleFence:
                self._refused("said")
                raise

        sequence: int = await self._step(append, name="thread.say")
        return sequence

    async def _turn_of_another(self) -> str | None:
        """The run above this one in whose turn it speaks. Raises Conflict when that turn is over."""
        turn = self._turn
        if turn is None or turn.holder is None:
            return None
        if turn.branch is None:
            active = (await self._threads.head(self.id)).order.active
            if active is None or active.run != turn.holder:
                raise Conflict(
                    f"run {self._run} belongs to the turn of run {turn.holder} in thread {self.id}, which is over",
                    thread=self.id,
                    run=self._run,
                )
        return turn.holder
