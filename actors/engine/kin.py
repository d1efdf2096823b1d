"""`ctx.call`, `ctx.start` and `ctx.gather`: child runs, and their outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar, Unpack, overload

from ...store.errors import naming
from ...topics import codec, trace
from ...topics.ids import child_run_id
from ...topics.messages import ChildRequest, ChildState, Payload, Status, Step
from ..agent import Agent
from .children import ChildCall, ChildOptions, require_valid
from .errors import ChildFailed
from .hold import Group
from .stepping import Stepping

T = TypeVar("T")


class Child:
    """A child run that was started. Await `result()` for its outcome, in this attempt or a later one."""

    def __init__(self, kin: Kin, run: str, agent: str, type_: Any) -> None:
        self._kin, self._type = kin, type_
        self.id = run
        """The child's run id."""
        self.agent = agent

    def result(self) -> ChildCall[Any]:
        """The child's result, typed as for `ctx.call`. Raises ChildFailed."""
        return ChildCall(lambda group: self._kin.child_result(self.id, group, self._type))


class Kin(Stepping):
    """The part of a context by which an agent has other agents work for it."""

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
        await parts.tenure.confirm()
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
        with naming("the result", state.run):
            data = await self._parts.blobs.value(state.result or Payload())
        return codec.decode(data, type_)

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
