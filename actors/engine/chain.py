"""The checkpoints that one attempt writes of one namespace, each as the child of the one before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from ...store.checkpoints import Checkpoints, State
from ...store.checkpoints.reader import kind_of
from ...store.checkpoints.scribe import Changes
from ...topics import crash
from ...topics.messages import Checkpoint
from .writer import Writer


class Chain:
    """Saves the states of a namespace through the attempt's pen."""

    def __init__(self, checkpoints: Checkpoints, writer: Writer, namespace: str, state: State | None) -> None:
        self._writer, self._kind = writer, kind_of(namespace)
        self._scribe = checkpoints.scribe(writer.flush, state)
        self.newest = 0
        """The newest checkpoint that was stored by this attempt; 0: none."""

    async def save(
        self,
        frame: Checkpoint,
        names: Collection[str],
        dump: Callable[[str], bytes],
        changes: Changes | None = None,
        plan: bytes | None = None,
    ) -> asyncio.Future[int]:
        """Queues a checkpoint; the future gives its sequence when it is stored. `changes` and errors as with
        `Scribe.sheet`."""
        sheet = await self._scribe.sheet(frame, names, dump, changes, plan)
        crash.point("worker.before-checkpoint-write")
        stored = self._writer.put_sheet(self._kind, sheet)
        stored.add_done_callback(self._stored)
        return stored

    def _stored(self, done: asyncio.Future[int]) -> None:
        if not done.cancelled() and done.exception() is None:
            self.newest = done.result()
