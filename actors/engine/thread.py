"""The thread of a run, as its agent sees it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ...topics import codec
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
        self._threads, self._blobs = parts.threads, parts.blobs
        self.id = thread

    async def messages(self) -> list[Said]:
        """The messages so far, in the broker's order, without what was rolled back; journaled, so that every
        attempt sees the same. At most 10,000."""

        async def read() -> list[Said]:
            return [await self._said(one.message) for one in await self._threads.messages(self.id, limit=_MESSAGES)]

        found: list[Said] = await self._step(read, name="thread.messages", returns=list[Said])
        return found

    async def _said(self, message: ThreadMessage) -> Said:
        return Said(message.role, codec.decode(await self._blobs.value(message.content)), message.run)

    async def say(self, role: str, content: Any) -> int:
        """Appends a message; its sequence. Once per run and place in the code, at least once over a crash."""
        data = codec.encode(content)

        async def append() -> int:
            payload = await self._blobs.payload(data)
            return await self._threads.append(self.id, ThreadMessage(role=role, content=payload, run=self._run))

        sequence: int = await self._step(append, name="thread.say")
        return sequence
