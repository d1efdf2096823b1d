"""`Context`: what an agent's code may ask of the runtime."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeVar, Unpack, overload

import msgspec

from ...topics import codec, trace, units
from ...topics.errors import InvalidInput
from ...topics.ids import child_run_id
from ...topics.messages import (
    Artifact,
    ChildRequest,
    ChildState,
    Event,
    Payload,
    RunRecord,
    Status,
    Step,
)
from ..agent import Agent, Retry
from .artifact import made_artifact
from .children import ChildCall, ChildOptions, require_valid
from .errors import ChildFailed
from .hold import Group
from .outside import Outside
from .steps import NO_RETRY, result_type
from .thread import ThreadHandle
from .tracing import step_span

T = TypeVar("T")
_SHORT_S = 2.0
"""A sleep up to this long keeps its process."""


class Child:
    """A child run that was started. Await `result()` for its outcome, in this attempt or a later one."""

    def __init__(self, context: Context, run: str, agent: str, type_: Any) -> None:
        self._context, self._type = context, type_
        self.id = run
        """The child's run id."""
        self.agent = agent

    def result(self) -> ChildCall[Any]:
        """The child's result, typed as for `ctx.call`. Raises ChildFailed."""
        return ChildCall(lambda group: self._context.child_result(self.id, group, self._type))


class Context(Outside):
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
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that adds `run_id`, `attempt` and `agent` to its records."""
        return self._parts.logger

    # -- steps --------------------------------------------------------------------------------------------------

    @overload
    def step(
        self,
        fn: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        name: str | None = ...,
        retries: Retry = ...,
        timeout: timedelta | None = ...,
        returns: Any = ...,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def step(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        name: str | None = ...,
        retries: Retry = ...,
        timeout: timedelta | None = ...,
        returns: Any = ...,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, T]: ...
    def step(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        name: str | None = None,
        retries: Retry = NO_RETRY,
        timeout: timedelta | None = None,
        returns: Any = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Calls `fn(*args, **kwargs)` once and journals its result; a sync function runs in a thread.

        `name` defaults to the function's. `returns` (default: the annotation) is the type in which the result
        comes back; it is the same value in every attempt. The step is durable when this returns; a crash between
        the function's end and its journal entry executes it again (at least once). Raises StepFailed with the
        function's error, after `retries`; StepTimeout as its cause; EncodeError as its cause when the result
        cannot be carried."""
        place = self._place()
        title = name or getattr(fn, "__name__", None) or type(fn).__name__
        type_ = result_type(fn) if returns is None else returns
        return self._step(place, title, fn, args, kwargs, retries, timeout, type_)

    async def _step(
        self,
        place: str,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        retries: Retry,
        timeout: timedelta | None,
        type_: Any,
    ) -> Any:
        self._parts.check()
        if not trace.enabled() or self._parts.steps.recorded(place, name) is not None:
            return await self._parts.steps.run(place, name, fn, args, kwargs, retries, timeout, type_)
        with step_span(self._parts.record, name, place):
            return await self._parts.steps.run(place, name, fn, args, kwargs, retries, timeout, type_)

    # -- children -----------------------------------------------------------------------------------------------

    @overload
    def call(self, agent: Agent[T], input: Any = ..., **options: Unpack[ChildOptions]) -> ChildCall[T]: ...
    @overload
    def call(
        self, agent: str, input: Any = ..., *, returns: type[T], **options: Unpack[ChildOptions]
    ) -> ChildCall[T]: ...
    @overload
    def call(self, agent: str, input: Any = ..., **options: Unpack[ChildOptions]) -> ChildCall[Any]: ...
    def call(
        self, agent: str | Agent[Any], input: Any = None, *, returns: Any = None, **options: Unpack[ChildOptions]
    ) -> ChildCall[Any]:
        """A child run of another agent; awaiting gives its result. See `ChildOptions` for metadata, thread, policy.

        The result is typed by `returns`, else by the agent if this process knows it, else plain JSON. While it is
        waited for, the run may be suspended and hold no worker. Raises ChildFailed: a child's failure is data for
        its parent."""
        name, type_ = self._parts.agent(agent, returns)
        place, data = self._place(), codec.encode(input)

        async def started(group: Group) -> Any:
            state = await self._start(place, name, data, options, detached=False)
            if state.status.value == "completed" or state.error is not None:
                return await self._outcome(state, type_)
            return await self.child_result(state.run, group, type_)

        return ChildCall(started)

    async def start(
        self,
        agent: str | Agent[Any],
        input: Any = None,
        *,
        detached: bool = False,
        returns: Any = None,
        **options: Unpack[ChildOptions],
    ) -> Child:
        """Starts a child run and returns once it is durable. A detached child is not stopped with its parent."""
        name, type_ = self._parts.agent(agent, returns)
        place = self._place()
        state = await self._start(place, name, codec.encode(input), options, detached=detached)
        return Child(self, state.run, name, type_)

    async def _start(self, place: str, agent: str, data: bytes, options: ChildOptions, *, detached: bool) -> ChildState:
        parts = self._parts
        parts.check()
        require_valid(options, parts.record, detached)
        run, title = child_run_id(parts.record.id, place), f"call:{agent}"
        known = parts.steps.recorded(place, title, "child")
        before = known.child if known is not None and known.child != run else None
        if known is None:
            self._note_child(place, title, run)
        value = await parts.blobs.payload(data)
        request = ChildRequest(
            run=run, agent=agent, input=value, detached=detached, trace=trace.traceparent(), retry_of=before, **options
        )
        state = await parts.children.start(request)
        if before is not None and state.run == run:  # not the result of the run that is retried, but a retry of it
            self._note_child(place, title, run)
        return state

    def _note_child(self, place: str, title: str, run: str) -> None:
        parts = self._parts
        entry = Step(
            at=place, name=title, attempt=parts.record.attempt, n=parts.writer.number(), kind="child", child=run
        )
        parts.writer.put("step", entry)

    async def child_result(self, run: str, group: Group, type_: Any) -> Any:
        """The result of a started child; what `Child.result` and `call` stand on."""
        self._parts.check()
        return await self._outcome(await self._parts.children.result(run, group), type_)

    async def _outcome(self, state: ChildState, type_: Any) -> Any:
        if state.status is not Status.COMPLETED:
            raise ChildFailed(state.run, state.agent, state.status, state.error)
        return codec.decode(await self._parts.blobs.value(state.result or Payload()), type_)

    async def gather(self, *awaitables: Awaitable[Any], return_exceptions: bool = False) -> list[Any]:
        """The results of all, in order, like `asyncio.gather`; child calls among them are waited for together, so
        that a suspended run wakes once when they have all ended. With `return_exceptions` a failure stands in the
        list."""
        group = Group()
        for one in awaitables:
            if isinstance(one, ChildCall):
                one.group = group
        tasks = [asyncio.ensure_future(one) for one in awaitables]
        try:
            return list(await asyncio.gather(*tasks, return_exceptions=return_exceptions))
        finally:
            for task in tasks:
                task.cancel()

    # -- time and chance ----------------------------------------------------------------------------------------

    async def sleep(self, duration: timedelta | float) -> None:
        """Sleeps (a timedelta, or seconds). A longer sleep is a durable timer and holds no worker; it may end a
        moment late."""
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
        place, parts = self._place(), self._parts
        parts.check()
        found = parts.steps.recorded(place, "sleep", "sleep")
        until = found.until if found and found.until else units.now() + timedelta(seconds=max(0.0, seconds))
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
        text = f"{parts.salt}\0{parts.journal.origin or parts.record.id}\0{self._place()}"
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
