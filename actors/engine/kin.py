"""`ctx.call`, `ctx.start` and `ctx.gather`: child runs, and their outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Literal, TypeVar, Unpack, overload

import msgspec

from ...store.errors import naming
from ...store.log import EventLog
from ...store.submit import Submitter
from ...topics import codec, trace
from ...topics.errors import IllegalTransition, InvalidInput, NotFound
from ...topics.ids import child_run_id, require_run_id
from ...topics.messages import ChildRequest, ChildState, Payload, Status, Step
from ..agent import Agent
from .children import ChildCall, ChildOptions, checked
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
        return ChildCall(lambda group: self._kin.child_result(self.id, group, self._type), self.id)

    async def cancel(
        self,
        *,
        scope: Literal["run", "tree", "children"] = "tree",
        action: Literal["cancel", "interrupt", "rollback"] = "cancel",
        reason: str | None = None,
    ) -> Status:
        """Cancels it; see `ctx.cancel`."""
        return await self._kin.cancel(self, scope=scope, action=action, reason=reason)


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
            call.run = state.run
            return await self.child_result(state.run, group, type_)

        call: ChildCall[Any] = ChildCall(started, child_run_id(self._parts.record.id, place))
        return call

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
        options = checked(options, parts.record, detached, parts.bus.inline_limit)
        run, title = child_run_id(parts.record.id, place), f"call:{agent}"
        known = parts.steps.recorded(place, title, "child")
        before = known.child if known is not None and known.child != run else None
        value = await parts.blobs.payload(data)
        request = ChildRequest(
            run=run, agent=agent, input=value, detached=detached, trace=trace.traceparent(), retry_of=before, **options
        )
        if known is None:
            self._note_child(place, title, run)
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

    # -- end ----------------------------------------------------------------------------------------------------

    async def cancel(
        self,
        run: str | Child,
        *,
        scope: Literal["run", "tree", "children"] = "tree",
        action: Literal["cancel", "interrupt", "rollback"] = "cancel",
        reason: str | None = None,
    ) -> Status:
        """Cancels a run: a child, any other, or this one, which then ends here. Gives the status after it: what had
        ended before stays as it was.

        Journaled: a later attempt does not do it again. Raises InvalidRunId, and StepFailed (`not_found`,
        `unavailable`)."""
        target = require_run_id(run.id if isinstance(run, Child) else run)
        own = self._parts.record
        why = reason or ("canceled by itself" if target == own.id else f"canceled by run {own.id}")
        if target != own.id or scope == "children":
            order = self.step(self._cancel, target, scope, action, why, name=f"cancel:{target}", returns=Status)
            status: Status = await order
            return status
        self._parts.check()
        await self._cancel(target, scope, action, why)
        self._parts.stop()
        never: Status = await asyncio.get_running_loop().create_future()
        return never

    async def _cancel(self, run: str, scope: Any, action: Any, reason: str) -> Status:
        parts = self._parts
        try:
            record, _ = await Submitter(parts.bus, parts.blobs).cancel(run, scope=scope, action=action, reason=reason)
        except IllegalTransition:  # nothing lives that it could end
            record = (await EventLog(parts.bus).require(run)).record
        return record.status

    # -- together -----------------------------------------------------------------------------------------------

    async def gather(
        self, *awaitables: Awaitable[Any], return_exceptions: bool = False, fail_fast: bool = False
    ) -> list[Any]:
        """The results of all, in order, like `asyncio.gather`; child calls among them are waited for together, so
        that a suspended run wakes once when they have all ended. With `return_exceptions` a failure stands in the
        list.

        A child that fails does not take the others with it: their runs go on. With `fail_fast` it does: the first
        failure cancels the runs of all other child calls among them that have not ended, with what is below those,
        and is raised, the same one in every attempt. Not both: InvalidInput."""
        if fail_fast and return_exceptions:
            raise InvalidInput("gather: return_exceptions and fail_fast exclude each other")
        calls = [one if isinstance(one, ChildCall) else None for one in awaitables]
        if fail_fast:
            return await self._all_or_none(self._place(), [asyncio.ensure_future(one) for one in awaitables], calls)
        group = Group()
        for call in calls:
            if call is not None:
                call.group = group
        tasks = [asyncio.ensure_future(one) for one in awaitables]
        try:
            return list(await asyncio.gather(*tasks, return_exceptions=return_exceptions))
        finally:
            for task in tasks:
                task.cancel()

    async def _all_or_none(
        self, place: str, tasks: list[asyncio.Future[Any]], calls: list[ChildCall[Any] | None]
    ) -> list[Any]:
        parts = self._parts
        parts.check()
        try:
            found = parts.steps.recorded(place, "gather", "value")
            if found is not None:
                await asyncio.wait((tasks[await parts.steps.value(found, int)],))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            failed = [number for number, task in enumerate(tasks) if task.done() and _failure_of(task) is not None]
            if not failed:
                return [task.result() for task in tasks]
            first = await parts.steps.value(found, int) if found is not None else failed[0]
            first = first if first in failed else failed[0]
            if found is None:
                await self._note_value(place, "gather", first)
            await self._end_siblings(
                [call for call, task in zip(calls, tasks, strict=True) if call is not None and not task.done()]
            )
            return [tasks[first].result()]
        finally:
            for task in tasks:
                task.cancel()

    async def _end_siblings(self, calls: list[ChildCall[Any]]) -> None:
        await self._parts.children.started()  # one that is about to be would be missed
        reason = f"another child of run {self._parts.record.id} has failed"
        orders = [self._cancel(call.run, "tree", "cancel", reason) for call in calls if call.run is not None]
        for problem in await asyncio.gather(*orders, return_exceptions=True):
            if isinstance(problem, BaseException) and not isinstance(problem, NotFound):
                raise problem

    async def _note_value(self, place: str, name: str, value: Any) -> None:
        parts = self._parts
        entry = Step(
            at=place, name=name, attempt=parts.record.attempt, n=parts.writer.number(), kind="value",
            value=Payload(json=msgspec.Raw(codec.encode(value))),
        )  # fmt: skip
        await parts.steps.note(entry)


def _failure_of(task: asyncio.Future[Any]) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()
