"""`Node`: a function of a graph with what was said about it, and how it is called."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import random
import typing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypedDict

from ...topics import codec
from ..agent import Retry
from ..unstopped import Unstopped
from .cache import Cache
from .command import Command
from .errors import InvalidNode, NodeTimeout
from .fitting import Fit, fitter

NO_RETRY = Retry(max_attempts=1)


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node as it was declared; see `Graph.node` for the meaning of each field."""

    name: str
    fn: Callable[..., Any]
    takes_context: bool
    is_async: bool
    takes_state: bool = False
    """The first parameter is annotated with the state: a `Send` to this node replaces channels of the state."""
    input_type: Any = Any
    """Else the type of a `Send`'s input."""
    retries: Retry = NO_RETRY
    timeout: timedelta | None = None
    cache: Cache | None = None
    deferred: bool = False
    before: bool = False
    after: bool = False
    on: tuple[str, ...] = ()
    goes: tuple[str, ...] = ()
    was: tuple[str, ...] = ()
    inline: bool = False
    kind: Literal["function", "agent", "graph"] = "function"
    part: Any = None
    """The agent or the subgraph behind it."""
    mapping: Any = None
    """What goes into it and comes out."""

    @functools.cached_property
    def fit_input(self) -> Fit:
        """Makes the input of a `Send` fit."""
        return fitter(self.input_type)

    async def call(self, fn: Callable[..., Any], args: Callable[[], tuple[Any, ...]], threads: Executor | None) -> Any:
        """What the function returns; each try is given fresh arguments."""
        tries = 0
        while True:
            tries += 1
            try:
                return await self._limited(fn, args(), threads)
            except Exception as error:
                if tries >= self.retries.max_attempts or not self.retries.covers(error):
                    raise
                await asyncio.sleep(backoff(self.retries, tries))

    async def _limited(self, fn: Callable[..., Any], args: tuple[Any, ...], threads: Executor | None) -> Any:
        if self.timeout is None:
            return await self._called(fn, args, threads)
        limit = asyncio.timeout(self.timeout.total_seconds())
        try:
            async with limit:
                return await self._called(fn, args, threads)
        except TimeoutError as error:
            if limit.expired():
                raise NodeTimeout(f"node {self.name!r} took longer than {self.timeout}", node=self.name) from error
            raise

    async def _called(self, fn: Callable[..., Any], args: tuple[Any, ...], threads: Executor | None) -> Any:
        if self.is_async:
            return await fn(*args)
        if self.inline:
            result = fn(*args)
        else:
            call = Unstopped(functools.partial(contextvars.copy_context().run, fn, *args))
            result = await asyncio.get_running_loop().run_in_executor(threads, call)
        return await result if inspect.isawaitable(result) else result


class NodeOptions(TypedDict, total=False):
    """What may be said about a node."""

    retries: Retry
    """Of one execution; each try has a fresh copy of the state. Default: one try."""
    timeout: timedelta | None
    """Of one try. A sync function goes on in its thread after that."""
    cache: Cache | Callable[[Any], str] | None
    """Results by a key of the state."""
    deferred: bool
    """Waits until nothing else is planned."""
    interrupt_before: bool
    interrupt_after: bool
    """The run stops there until somebody answers."""
    on: Sequence[str]
    """Channels: the node runs after a superstep that wrote to one of them."""
    goes: Sequence[str] | None
    """Where its `Command`s may lead."""
    was: Sequence[str]
    """Former names, for runs that were interrupted under them: what such a run has asked, noted and remembered goes on
    to count."""
    inline: bool
    """A sync function that is quick: called in the loop, not in a thread."""
    takes: str | Mapping[str, str] | Callable[[Any], Any] | None
    gives: str | Mapping[str, str] | Callable[[Any], Any] | None
    """Of an agent or a subgraph, what goes in and what comes out; see `AgentMapping` and `GraphMapping`."""


def backoff(retries: Retry, tries: int) -> float:
    """Seconds before the next try, after so many."""
    full = min(retries.maximum.total_seconds(), retries.initial.total_seconds() * retries.factor ** (tries - 1))
    return full * (1 - retries.jitter * random.random())


def made_node(name: str, fn: Callable[..., Any], state: Any, goes: Sequence[str] | None, **options: Any) -> Node:
    """The node of a function `(state)` or `(state, ctx)`. Raises InvalidNode."""
    target = fn.func if isinstance(fn, functools.partial) else fn
    call = target if inspect.isroutine(target) else type(target).__call__
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError) as error:
        raise InvalidNode(f"node {name!r}: {fn!r} is no function that can be called", node=name) from error
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = [one for one in parameters if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]  # fmt: skip # noqa: E501
    if not positional or len(needed) > 2:
        raise InvalidNode(
            f"node {name!r}: {getattr(fn, '__name__', fn)} is called with the state, or with the state and ctx",
            node=name,
        )
    hints = _hints(call)
    return Node(
        name=name,
        fn=fn,
        takes_context=len(positional) > 1 and (len(needed) > 1 or positional[1].name == "ctx"),
        is_async=inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(call),
        takes_state=hints.get(positional[0].name) is state,
        input_type=_input_type(name, hints.get(positional[0].name), state),
        goes=tuple(goes) if goes is not None else _declared_goes(hints.get("return")),
        **options,
    )


def _hints(fn: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn)
    except Exception:  # noqa: BLE001  # names of functions around, or for type checkers alone
        return {name: hint for name, hint in getattr(fn, "__annotations__", {}).items() if not isinstance(hint, str)}


def _input_type(name: str, hint: Any, state: Any) -> Any:
    if hint is None or hint is state:
        return Any
    try:
        codec.check_type(hint)
    except codec.TypeNotCarried as error:
        raise InvalidNode(f"node {name!r}: its input cannot be carried: {error.message}", node=name) from error
    return hint


def _declared_goes(hint: Any) -> tuple[str, ...]:
    """`Command[Literal["a", "b"]]` says where a node may go."""
    for one in (hint, *typing.get_args(hint)):
        if typing.get_origin(one) is Command:
            (literal,) = typing.get_args(one)
            if typing.get_origin(literal) is Literal:
                return tuple(str(name) for name in typing.get_args(literal))
    return ()
