"""Child runs of one attempt: started together, waited for together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypedDict, TypeVar

import msgspec

from ...store.log import EventLog
from ...topics import codec, crash
from ...topics.bus import Bus
from ...topics.errors import CallboardError, InvalidInput, NoResponders, StaleFence, Unavailable, error_from_code
from ...topics.ids import root_of
from ...topics.messages import (
    POLICIES,
    TERMINAL,
    ChildrenReply,
    ChildrenRequest,
    ChildRequest,
    ChildState,
    Policy,
    RunRecord,
    Status,
    encode,
)
from ...topics.rpc import ask
from ...topics.subjects import require_token
from .hold import Group, Hold
from .place import apart

log = logging.getLogger(__name__)
T = TypeVar("T")

_MANY = 100
_ANSWER_S = 10.0
_LAST_ANSWER_S = 1.0
_PAUSE_S = 0.05
_PAUSE_MAX_S = 1.0
_LOOK_S = 1.0
"""A word of the coordinator may be lost: while children are waited for, they are looked at this often."""


class ChildOptions(TypedDict, total=False):
    """What a child can be given besides its input.

    `thread`: a thread of its own choice, where it takes its turn by `policy`, as a run started from outside does.
    Without it a child belongs to its parent's turn in their thread, and a detached one to no thread."""

    metadata: dict[str, Any] | None
    thread: str | None
    policy: Policy | None


_OPTIONS = sorted(ChildOptions.__annotations__)


def checked(options: ChildOptions, parent: RunRecord, detached: bool, metadata_limit: int) -> ChildOptions:
    """The options as they travel. Raises InvalidInput for what a child of this run cannot have, EncodeError for
    metadata that JSON cannot carry: before anybody knows of the child. `metadata_limit`: in bytes."""
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise InvalidInput(f"a child has no option {unknown[0]!r}: it has {', '.join(_OPTIONS)}")
    if not isinstance(detached, bool):
        raise InvalidInput(f"detached is True or False, not {detached!r:.80}")
    _require_place(options, parent, detached)
    metadata = options.get("metadata")
    if metadata is None:
        return options
    data = codec.encode(metadata)
    if not data.startswith(b"{"):
        raise InvalidInput(f"the metadata of a child is an object, not {type(metadata).__name__}")
    if len(data) > metadata_limit:
        raise InvalidInput(f"metadata is above {metadata_limit} bytes: put large values into the input")
    return {**options, "metadata": msgspec.json.decode(data)}


def _require_place(options: ChildOptions, parent: RunRecord, detached: bool) -> None:
    thread, policy = options.get("thread"), options.get("policy")
    if thread is not None:
        require_token("thread", thread)
    if policy is None:
        return
    if policy not in POLICIES:
        raise InvalidInput(f"{policy!r} is no policy: use one of {', '.join(POLICIES)}")
    if (thread or parent.thread) is None:
        raise InvalidInput(f"policy {policy!r} needs a thread: run {parent.id} has none, name one")
    if not detached and thread in (None, parent.thread) and policy not in ("enqueue", "fork"):
        raise InvalidInput(
            f"a child belongs to the turn of run {parent.id} in thread {parent.thread}: policy {policy!r} is for a "
            "detached child, or for another thread"
        )


class ChildCall(Coroutine[Any, Any, T], Generic[T]):
    """What `ctx.call` gives: await it, gather it, or make a task of it. Started when it is first awaited."""

    def __init__(self, begin: Callable[[Group], Coroutine[Any, Any, T]], run: str | None = None) -> None:
        self._begin = begin
        self.run = run
        """The child's run id."""
        self._inner: Coroutine[Any, Any, T] | None = None
        self.group = Group()

    def _coroutine(self) -> Coroutine[Any, Any, T]:
        if self._inner is None:
            self._inner = self._begin(self.group)
        return self._inner

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine().__await__()

    def send(self, value: Any) -> Any:
        """Part of the coroutine protocol, so that `create_task` takes it."""
        return self._coroutine().send(value)

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> Any:
        """Part of the coroutine protocol."""
        return self._coroutine().throw(typ) if val is None and tb is None else self._coroutine().throw(typ, val, tb)

    def close(self) -> None:
        """Part of the coroutine protocol."""
        if self._inner is not None:
            self._inner.close()


class Children:
    """Starts children and knows which have ended."""

    def __init__(
        self, bus: Bus, event_log: EventLog, record: RunRecord, hold: Hold, lost: Callable[[BaseException], None],
        refused: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self._refused = refused
        self._bus, self._log, self._record, self._hold, self._lost = bus, event_log, record, hold, lost
        self._ended: dict[str, ChildState] = {}
        self._waiting: dict[str, asyncio.Future[ChildState]] = {}
        self._to_start: list[tuple[ChildRequest, int, asyncio.Future[ChildState]]] = []
        self._starter: asyncio.Task[None] | None = None
        self._looker: asyncio.Task[None] | None = None
        self._told = asyncio.Event()
        self._named: set[str] = set()

    async def start(self, request: ChildRequest) -> ChildState:
        """Starts a child, or finds it; several that are asked for at once travel in one request. Durable when it
        returns.

        Raises StaleFence when the attempt does not own its run any more, InvalidInput for a bad agent name."""
        size = len(encode(request))
        future: asyncio.Future[ChildState] = asyncio.get_running_loop().create_future()
        self._to_start.append((request, size, future))
        if self._starter is None:
            self._starter = apart(self._start_all())
        with self._hold.working():  # suspended now, the run would wake before all of its children are started
            state = await future
        if state.ended:
            self._named.add(state.run)
        elif state.status in TERMINAL:
            self._ended[state.run] = state
        return state

    async def started(self) -> None:
        """Returns once no request is under way."""
        if self._starter is not None:
            await asyncio.wait((self._starter,))

    async def result(self, run: str, group: Group) -> ChildState:
        """Waits for the end of a child that was started; the attempt may be suspended meanwhile."""
        found = self._ended.get(run)
        if found is not None:
            return found
        future = self._waiting.get(run)
        if future is None:
            future = self._waiting[run] = asyncio.get_running_loop().create_future()
        if self._looker is None:
            self._looker = apart(self._look())
        if run in self._named:
            self._look_soon()
        own = root_of(run) == self._record.root  # a child that the retried run has left behind wakes nobody here
        with self._hold.for_child(group, run) if own else self._hold.working():
            return await asyncio.shield(future)

    def status(self, run: str) -> Status | None:
        """How a child has ended, as far as this attempt knows."""
        found = self._ended.get(run)
        return None if found is None else found.status

    def told(self, child: str | None) -> None:
        """The coordinator says that a child (None: one or another) has ended."""
        if child is None:
            self._named.update(self._waiting)
        elif child not in self._ended:
            self._named.add(child)
        self._look_soon()

    async def close(self) -> None:
        """Ends the tasks of this attempt.

        A request that is under way may have its answer: once the attempt's outcome is told, its children are there."""
        if self._starter is None and self._looker is None:
            return
        unasked, self._to_start = self._to_start, []
        for future in [*self._waiting.values(), *(future for _, _, future in unasked)]:
            future.cancel()
        if self._starter is not None:
            await asyncio.wait((self._starter,), timeout=_LAST_ANSWER_S)
        tasks = [task for task in (self._starter, self._looker) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- start --------------------------------------------------------------------------------------------------

    async def _start_all(self) -> None:
        try:
            await asyncio.sleep(0)  # those asked for in this turn of the loop travel together
            while self._to_start:
                await self._start_some(*self._take())
        finally:
            self._starter = None

    async def _start_some(self, requests: list[ChildRequest], futures: list[asyncio.Future[ChildState]]) -> None:
        try:
            states = await self._ask(requests)
            found = dict(zip(futures, states, strict=True))
        except Exception as error:  # noqa: BLE001  # whatever it is, those who wait are told
            for future in futures:
                if not future.done():
                    future.set_exception(error)
            if isinstance(error, StaleFence):
                self._refused("child")
                self._lost(error)
            return
        for future, state in found.items():
            if not future.done():
                future.set_result(state)

    def _take(self) -> tuple[list[ChildRequest], list[asyncio.Future[ChildState]]]:
        room = int(self._bus.max_payload * 0.8)
        count = 0
        for _, size, _ in self._to_start[:_MANY]:
            room -= size + 1
            if room < 0 and count:
                break
            count += 1
        batch, self._to_start = self._to_start[:count], self._to_start[count:]
        return [request for request, _, _ in batch], [future for _, _, future in batch]

    async def _ask(self, requests: list[ChildRequest]) -> list[ChildState]:
        record, pause, again = self._record, _PAUSE_S, False
        crash.point("worker.before-children")
        while True:
            body = ChildrenRequest(
                parent=record.id, attempt=record.attempt, epoch=record.epoch, children=requests, again=again
            )
            copies = partial(encode, msgspec.structs.replace(body, again=True))
            try:
                message = await ask(self._bus, "children", encode(body), _ANSWER_S, copies)
                reply = msgspec.json.decode(message.data, type=ChildrenReply)
            except (NoResponders, Unavailable) as error:
                log.debug("children of %s: %s", record.id, error)
            else:
                if reply.error is None:
                    crash.point("worker.after-children")
                    return reply.children
                if not reply.error.retryable:
                    raise error_from_code(reply.error.code, reply.error.message, reply.error.details)
                log.info("children of %s are asked for again: %s", record.id, reply.error.message)
            await asyncio.sleep(pause)
            pause, again = min(pause * 2, _PAUSE_MAX_S), True

    # -- wait ---------------------------------------------------------------------------------------------------

    def _look_soon(self) -> None:
        """An attempt that was let go of before the look would be woken at once, and be no further than this one."""
        if self._looker is not None:
            self._told.set()
            self._hold.news = True

    async def _look(self) -> None:
        """Reads the children of which it was said that they have ended, and now and then all that are waited for."""
        while True:
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._told.wait()
            except TimeoutError:
                pass
            told = self._told.is_set()
            self._told.clear()
            pending = [run for run in self._waiting if run in self._named or not told]
            if pending:
                await self._read(pending)
            self._hold.news = self._told.is_set()

    async def _read(self, pending: list[str]) -> None:
        try:
            records = await self._log.load_many(pending)
        except CallboardError as error:
            log.debug("children of %s: %s", self._record.id, error)
            return
        for run, record in records.items():
            if record.terminal:
                self._end(run, record)

    def _end(self, run: str, record: RunRecord) -> None:
        state = ChildState(run=run, status=record.status, agent=record.agent, result=record.result, error=record.error)
        self._ended[run] = state
        self._named.discard(run)
        future = self._waiting.pop(run, None)
        if future is not None and not future.done():
            future.set_result(state)
