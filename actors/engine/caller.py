"""How a function of the author's is called: an async one on the loop, a sync one in a thread."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from datetime import timedelta
from typing import Any

from ..agent import Terminal
from .errors import StepTimeout


def quitting(error: SystemExit | KeyboardInterrupt) -> str:
    """What code did that wanted to end the process. (Signals come another way: they raise nothing.)"""
    return f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else "raised KeyboardInterrupt"


class Caller:
    """`await caller(name, fn, args, kwargs, timeout)` gives what the function returns.

    Raises what it raises; Terminal for a `sys.exit` or KeyboardInterrupt, StepTimeout when it takes longer than
    `timeout`: a sync function goes on in its thread after that."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads

    async def __call__(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        timeout: timedelta | None = None,
    ) -> Any:
        """Calls it once."""
        limit = asyncio.timeout(timeout.total_seconds() if timeout else None)
        try:
            async with limit:
                return await self._called(fn, args, kwargs)
        except (SystemExit, KeyboardInterrupt) as error:  # would end the event loop, and all runs of this process
            raise Terminal(f"step {name!r} {quitting(error)}", step=name) from error
        except TimeoutError as error:
            if limit.expired():
                raise StepTimeout(f"step {name!r} took longer than {timeout}", step=name) from error
            raise

    async def _called(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__):
            return await fn(*args, **kwargs)
        context = contextvars.copy_context()
        call = functools.partial(context.run, fn, *args, **kwargs)
        result = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        return await result if isinstance(result, Awaitable) else result
