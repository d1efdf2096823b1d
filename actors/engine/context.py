"""`Context`: what an agent's code may ask of the runtime."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import uuid
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from ...topics import codec, units
from ...topics.errors import InvalidInput
from ...topics.messages import (
    Artifact,
    Event,
    Payload,
    RunRecord,
    Step,
)
from ...topics.subjects import require_token
from ..graph.ground import Durability, Ground, Shape
from .artifact import made_artifact
from .ground import DurableGround
from .kin import Kin
from .place import untried
from .thread import ThreadHandle

T = TypeVar("T")
_SHORT_S = 2.0
"""A sleep up to this long keeps its process."""


class Context(Kin):
    """The handle of one attempt. Everything durable is fenced: an attempt that lost its run cannot write.

    Operations are journaled by their place in the code (see `place`): after a takeover or a suspension the
    function starts again, and each finished operation returns its recorded result at once. What is not an
    operation of the context is executed again."""

    # -- who am I -----------------------------------------------------------------------------------------------

    @property
    def run(self) -> RunRecord:
        """The run's record as this attempt began: id, root, parent, attempt, thread, metadata, created_at, …"""
        return self._parts.record

    @property
    def thread(self) -> ThreadHandle | None:
        """The run's thread, if it was started in one."""
        thread = self._parts.record.thread
        return ThreadHandle(self.step, self.run.id, thread, self._parts) if thread else None

    @property
    def state(self) -> Any:
        """What the run keeps from checkpoint to checkpoint: a dict, or of the type that `@agent(state=…)` names. Change
        it as you like; it is saved by `checkpoint()` alone."""
        return self._parts.memory.state

    async def checkpoint(self, *, label: str | None = None) -> str:
        """Saves `state`, and forgets the journal before it: the next attempt begins with this state, calls the function
        from its first line, and counts operations on from here. Returns the checkpoint's id once it is durable.

        Write the function so that the state alone says what is left to be done: `while ctx.state["i"] < n: …`. An
        operation before the loop is asked for again after a takeover; what must happen once only is guarded by the
        state. A checkpoint with a `label` is kept by pruning and found by it. Raises CheckpointMisplaced in a task that
        the agent has created, in a step, and while other operations are under way; EncodeError for a state that cannot
        be carried."""
        self._place()
        self._parts.check()
        if label is not None:
            require_token("label", label)
        return await self._parts.memory.save(label)

    def ground(self, shape: Shape, durability: Durability) -> Ground:
        """The ground of the run's root graph: for the function of a graph's agent."""
        memory = self._parts.memory
        if memory.root is None:
            memory.root = DurableGround(self._parts, self, shape, durability)
        return memory.root

    @property
    def threads(self) -> Executor:
        """Where sync functions run."""
        return self._parts.workplace.threads

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds `run_id`, `attempt` and `agent` to its records."""
        return self._parts.logger

    # -- time and chance ----------------------------------------------------------------------------------------

    async def sleep(self, duration: timedelta | float) -> None:
        """Sleeps (a timedelta, or seconds). A longer sleep is a durable timer and holds no worker; it may end a
        moment late. Raises InvalidInput for what is no duration, or ends after the year 2261."""
        place, parts = self._place(), self._parts
        parts.check()
        found = parts.steps.recorded(place, "sleep", "sleep")
        until = found.until if found and found.until else _end_of(duration)
        if found is None:
            await parts.steps.note(
                Step(
                    at=place,
                    name="sleep",
                    attempt=parts.record.attempt,
                    n=parts.writer.number(),
                    kind="sleep",
                    until=until,
                )
            )
        left = (until - units.now()).total_seconds()
        if left <= _SHORT_S:
            await asyncio.sleep(max(0.0, left))
            return
        with parts.hold.until(until):
            while (left := (until - units.now()).total_seconds()) > 0:
                await asyncio.sleep(left)

    async def now(self) -> datetime:
        """The time at which this was first asked, the same in every attempt."""
        return await self._noted("now", units.now, datetime)

    async def random(self) -> float:
        """A random number of 0 to 1 (1 excluded), the same in every attempt. Not for secrets."""
        return random.Random(self._seed()).random()

    async def uuid(self) -> uuid.UUID:
        """A random UUID (version 4), the same in every attempt."""
        return uuid.UUID(bytes=self._seed(), version=4)

    def _seed(self) -> bytes:
        """16 bytes that follow from the installation's secret, the run and the place."""
        parts = self._parts
        parts.check()
        text = f"{parts.salt}\0{parts.journal.origin or parts.record.id}\0{untried(self._place())}"
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    async def _noted(self, name: str, make: Callable[[], T], type_: type[T]) -> T:
        place, parts = self._place(), self._parts
        parts.check()
        found = parts.steps.recorded(place, name, "value")
        if found is not None:
            value: T = await parts.steps.value(found, type_)
            return value
        made = make()
        payload = Payload(json=msgspec.Raw(codec.encode(made)))
        await parts.steps.note(
            Step(
                at=place, name=name, attempt=parts.record.attempt, n=parts.writer.number(), kind="value", value=payload
            )
        )
        return made

    # -- what others see ----------------------------------------------------------------------------------------

    async def emit(self, type: str, data: Any = None) -> None:
        """Tells the run's watchers something of your own. Durable before the next step or the end of the run; once
        per place."""
        await self._tell("custom", type, data)

    async def progress(self, current: float, total: float | None = None, message: str | None = None) -> None:
        """Tells the watchers how far the run is."""
        data = {"current": current, "total": total, "message": message}
        await self._tell("custom", "progress", {key: value for key, value in data.items() if value is not None})

    async def stream(self, text: str) -> None:
        """Tells the watchers a piece of text, such as a model's tokens; pieces that come quickly travel together."""
        await self._tell("delta", "delta", text)

    async def message(self, role: str, content: Any) -> None:
        """Tells the watchers a whole message."""
        await self._tell("message", "message", {"role": role, "content": content})

    async def _tell(self, kind: str, type_: str, data: Any) -> None:
        place, parts = self._place(), self._parts
        parts.check()
        encoded = codec.encode(data)
        if place in parts.journal.emitted:
            return
        payload = await parts.blobs.payload(encoded)
        event = Event(at=place, attempt=parts.record.attempt, n=parts.writer.number(), type=type_, data=payload)
        parts.writer.put(kind, event)
        await parts.writer.room()

    async def artifact(self, name: str, content: Any, *, media_type: str | None = None) -> Artifact:
        """Publishes a named result: text, bytes, or a value (as JSON). Returns once durable. The same name again is a
        new version.

        `media_type` defaults to text/plain, application/octet-stream or application/json."""
        place, parts = self._place(), self._parts
        parts.check()
        if not name or len(name) > 255 or any(ord(char) < 32 for char in name):
            raise InvalidInput(f"artifact name {name[:80]!r} must be 1 to 255 characters without control characters")
        artifact = await made_artifact(
            parts.blobs,
            parts.bus.inline_limit,
            name,
            content,
            media_type,
            at=place,
            attempt=parts.record.attempt,
            n=parts.writer.number(),
        )
        if place not in parts.journal.emitted:
            await parts.writer.put("artifact", artifact)
        return artifact

    async def publish(self, topic: str, message: Any, key: str | None = None) -> int:
        """Publishes to whoever subscribes to `topic` (see `Actor` and `@on`); its sequence. Journaled: once per
        place, and at least once over a crash."""
        return await self.step(self._parts.publish, topic, codec.encode(message), key, name=f"publish:{topic}")


def _end_of(duration: timedelta | float) -> datetime:
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    try:
        end = units.now() + timedelta(seconds=max(seconds, 0.0))
    except (OverflowError, ValueError):  # beyond Python's calendar; not a number
        end = None
    if end is None or end.year > units.LAST_YEAR:
        raise InvalidInput(
            f"a sleep of {seconds:g} s is none that ends: sleep up to the year {units.LAST_YEAR} at most"
        )
    return end
