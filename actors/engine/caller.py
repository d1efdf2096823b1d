"""How a function of the author's is called: an async one on the loop, a sync one in a thread."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from ..agent import Terminal
from ..unstopped import Unstopped
from .errors import StepTimeout
from .tenure import Tenure
from .threads import StepThreads

_DOUBT = object()


def quitting(error: SystemExit | KeyboardInterrupt) -> str:
    """What code did that wanted to end the process. (Signals come another way: they raise nothing.)"""
    return f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else "raised KeyboardInterrupt"


class Caller:
    """`await caller(name, fn, args, kwargs, timeout)` gives what the function returns.

    With a tenure nothing is called once the run is somebody else's: AttemptEnded is raised. Otherwise raises what the
    function raises; Terminal for a `sys.exit` or KeyboardInterrupt, StepTimeout when it takes longer than
    `timeout`: a sync function goes on in its thread after that, abandoned. Without `threads` those of the loop are
    used."""

    def __init__(self, threads: StepThreads | None, tenure: Tenure | None = None, run: str = "") -> None:
        self._threads, self._tenure, self._run = threads, tenure, run
        self.abandoned: list[str] = []
        """The functions that went on in their threads when nobody waited for them any more."""
        self._sure: Callable[[], bool] = tenure.sure if tenure is not None else lambda: True

    async def __call__(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        timeout: timedelta | None = None,
    ) -> Any:
        """Calls it once."""
        try:
            if timeout is None:
                return await self._called(name, fn, args, kwargs)
            return await self._in_time(timeout, name, fn, args, kwargs)
        except (SystemExit, KeyboardInterrupt) as error:  # would end the event loop, and all runs of this process
            raise Terminal(f"step {name!r} {quitting(error)}", step=name) from error

    async def _in_time(
        self, timeout: timedelta, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        limit = asyncio.timeout(timeout.total_seconds())
        try:
            async with limit:
                return await self._called(name, fn, args, kwargs)
        except TimeoutError as error:
            if limit.expired():
                raise StepTimeout(f"step {name!r} took longer than {timeout}", step=name) from error
            raise

    async def _called(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sure = self._sure()
        if not sure:
            await self.confirm()
        if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__):
            return await fn(*args, **kwargs)
        call = Unstopped(functools.partial(contextvars.copy_context().run, fn, *args, **kwargs))
        result = await self._in_thread(name, functools.partial(self._if_sure, call)) if sure else _DOUBT
        if result is _DOUBT:
            await self.confirm()
            result = await self._in_thread(name, call)
        return await result if isinstance(result, Awaitable) else result

    async def _in_thread(self, name: str, call: Callable[[], Any]) -> Any:
        if self._threads is None:
            return await asyncio.get_running_loop().run_in_executor(None, call)
        task = self._threads.begin(call)
        try:
            return await asyncio.wrap_future(task.future)
        except asyncio.CancelledError:
            if self._threads.abandon(task, self._run, name) is not None:
                self.abandoned.append(name)
            raise

    async def confirm(self) -> None:
        """Makes sure that the attempt still holds its run, if that is in doubt. Raises AttemptEnded."""
        if self._tenure is not None:
            await self._tenure.confirm()

    def _if_sure(self, call: Callable[[], Any]) -> Any:
        """Calls it, unless it has waited for its thread for so long that the lease is in doubt."""
        return call() if self._sure() else _DOUBT
