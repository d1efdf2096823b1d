"""`ctx` in process: the part of `Context` that needs no worker, so that nodes and agents run unchanged in tests."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ...topics import codec, units
from ..agent import Agent, Retry
from ..answer import Answer
from .errors import GraphError
from .ground import Durability, Question, Shape
from .interrupting import taken
from .node import NO_RETRY, backoff
from .watching import Watch, event

if TYPE_CHECKING:
    from .memory import Memory, MemoryGround


class LocalHost:
    """What the contexts of one execution in process share."""

    def __init__(self, memory: Memory, watch: Watch | None) -> None:
        self.memory, self.watch = memory, watch
        self.logger = logging.LoggerAdapter(logging.getLogger("callboard.graph"), {})

    def answer(self, place: str, question: Question) -> Answer:
        """The answer given at this place. Raises Unanswered, JournalMismatch, InvalidInput."""
        return self.memory.answer(place, question)

    def recorded(self, place: str, name: str) -> Any:
        """What the operation at this place gave before; KeyError if it is new. Raises JournalMismatch."""
        found, value = self.memory.done[place]
        if found != name:
            raise mismatch(place, found, name)
        return value


def mismatch(place: str, recorded: str, asked: str) -> Exception:
    """The error for code that asks for something else than it did before."""
    from ..engine.errors import JournalMismatch  # the code engine brings the broker's client

    return JournalMismatch(place, recorded, asked)


class LocalContext:
    """The `ctx` of a node, or of an agent that a node calls. Operations are remembered by their order in it."""

    def __init__(self, host: LocalHost, place: str) -> None:
        self._host, self._prefix = host, place
        self._count = 0

    def again(self) -> None:
        """Counts operations from the first: the code begins again."""
        self._count = 0

    def _place(self) -> str:
        self._count += 1
        return f"{self._prefix}#{self._count - 1}"

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger, as `Context` has one."""
        return self._host.logger

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise GraphError(
            f"ctx.{name} needs a worker: in process ctx has step, call, interrupt, sleep, now, emit and their kin"
        )

    # -- what is done outside -----------------------------------------------------------------------------------

    def effect(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        compensate: Any = None,
        reconcile: Any = None,
        harmless: tuple[type[BaseException], ...] = (),
        returns: Any = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Does something outside, once, as a step: in process nothing is claimed, undone or reconciled."""
        place = self._place()
        if "idempotency_key" in inspect.signature(fn).parameters:
            kwargs["idempotency_key"] = key or place
        return self._step(place, name, fn, args, kwargs, NO_RETRY, None, returns)

    async def artifact(self, name: str, content: Any, *, media_type: str | None = None) -> None:
        """Keeps a named result with the execution: `execution.memory.artifacts`; once."""
        place = self._place()
        if self._known(place, f"artifact:{name}") is None:
            self._host.memory.done[place] = (f"artifact:{name}", b"")
            self._host.memory.artifacts[name] = content

    # -- steps and children -------------------------------------------------------------------------------------

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
        """Calls the function once and remembers its result: when the node starts again, it is not called again."""
        title = name or getattr(fn, "__name__", None) or type(fn).__name__
        return self._step(self._place(), title, fn, args, kwargs, retries, timeout, returns)

    async def _step(
        self,
        place: str,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        retries: Retry,
        timeout: timedelta | None,
        returns: Any,
    ) -> Any:
        from ..engine.caller import Caller  # as above
        from ..engine.errors import StepFailed
        from ..engine.steps import failure, result_type

        type_ = result_type(fn) if returns is None else returns
        data = self._known(place, name)
        if data is None:
            try:
                call = Caller(None)
                data = codec.encode(await _tried(lambda: call(name, fn, args, kwargs, timeout), retries))
            except Exception as error:
                raise StepFailed(name, failure(error), place) from error
            self._host.memory.done[place] = (name, data)
        return codec.decode(data, type_)

    def _known(self, place: str, name: str) -> Any:
        try:
            return self._host.recorded(place, name)
        except KeyError:
            return None

    def call(self, agent: Agent[Any], input: Any = None, *, returns: Any = None, **options: Any) -> Any:
        """Calls the agent's function with a context of its own; on a worker this is a child run."""
        return self._call(self._place(), agent, input, returns)

    async def _call(self, place: str, agent: Agent[Any], input: Any, returns: Any) -> Any:
        if not isinstance(agent, Agent):
            raise GraphError(
                f"in process an agent is called by itself, not by its name {agent!r}: ctx.call(the_agent, …)"
            )
        name, type_ = f"call:{agent.name}", agent.result_type if returns is None else returns
        data = self._known(place, name)
        if data is None:
            args: list[Any] = [LocalContext(self._host, f"{place}/")]
            if agent.takes_input:
                args.append(agent.read(codec.encode(input)))
            data = codec.encode(await agent.fn(*args))
            self._host.memory.done[place] = (name, data)
        return codec.decode(data, type_)

    @property
    def threads(self) -> Executor | None:
        """Where sync nodes of a graph agent run."""
        return None

    def ground(self, shape: Shape, durability: Durability) -> MemoryGround:
        """For a graph agent that is called here: its snapshots lie below the caller's."""
        from .memory import MemoryGround  # which makes contexts

        return MemoryGround(self._host, f"{self._prefix}{shape.name}")

    async def gather(self, *awaitables: Awaitable[Any], return_exceptions: bool = False) -> list[Any]:
        """The results of all, in order."""
        return list(await asyncio.gather(*awaitables, return_exceptions=return_exceptions))

    def interrupt(self, payload: Any = None, *, id: str | None = None, **options: Any) -> Coroutine[Any, Any, Any]:
        """Asks for an answer; see `interrupt`."""
        place = self._place()

        async def answered() -> Any:
            question = Question(step=0, task=place, id=id or "", payload=payload, options=options)
            return taken(question, self._host.answer(place, question))

        return answered()

    # -- time and chance ----------------------------------------------------------------------------------------

    async def sleep(self, duration: timedelta | float) -> None:
        """Sleeps, once."""
        place = self._place()
        if self._known(place, "sleep") is None:
            await asyncio.sleep(duration.total_seconds() if isinstance(duration, timedelta) else duration)
            self._host.memory.done[place] = ("sleep", b"")

    async def now(self) -> datetime:
        """The time at which this was first asked."""
        made: datetime = await self._noted("now", units.now, datetime)
        return made

    async def random(self) -> float:
        """A random number of 0 to 1, the same when the node starts again."""
        made: float = await self._noted("random", random.random, float)
        return made

    async def uuid(self) -> uuid.UUID:
        """A random UUID, the same when the node starts again."""
        made: uuid.UUID = await self._noted("uuid", uuid.uuid4, uuid.UUID)
        return made

    async def _noted(self, name: str, make: Callable[[], Any], type_: Any) -> Any:
        place = self._place()
        data = self._known(place, name)
        if data is None:
            data = codec.encode(make())
            self._host.memory.done[place] = (name, data)
        return codec.decode(data, type_)

    # -- what others see ----------------------------------------------------------------------------------------

    async def emit(self, type: str, data: Any = None) -> None:
        """Tells who watches the execution; once."""
        place = self._place()
        if self._known(place, f"emit:{type}") is None:
            encoded = codec.encode(data)
            self._host.memory.done[place] = (f"emit:{type}", b"")
            if self._host.watch is not None:
                self._host.watch(event("custom", data=codec.decode(encoded), type=type))

    async def progress(self, current: float, total: float | None = None, message: str | None = None) -> None:
        """Tells how far the run is."""
        data = {"current": current, "total": total, "message": message}
        await self.emit("progress", {key: value for key, value in data.items() if value is not None})

    async def stream(self, text: str) -> None:
        """Tells a piece of text."""
        await self.emit("delta", text)

    async def message(self, role: str, content: Any) -> None:
        """Tells a whole message."""
        await self.emit("message", {"role": role, "content": content})


async def _tried(call: Callable[[], Awaitable[Any]], retries: Retry) -> Any:
    tries = 0
    while True:
        tries += 1
        try:
            return await call()
        except Exception as error:
            if tries >= retries.max_attempts or not retries.covers(error):
                raise
            await asyncio.sleep(backoff(retries, tries))
