"""Steps: functions whose results are journaled, so that no later attempt executes them again."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import random
import time
import typing
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from datetime import timedelta
from typing import Any

from ...store.blobs import Blobs
from ...store.errors import info_of
from ...store.journal import Journal
from ...topics import codec
from ...topics.errors import CallboardError
from ...topics.messages import ErrorInfo, Payload, Step
from ..agent import Retry
from .errors import JournalMismatch, StepFailed, StepTimeout
from .hold import Hold
from .place import order
from .writer import Writer

_LONG_S = 1.0
"""A step that runs longer than this says that it has started, for those who watch."""
_SCALARS = (str, int, float, bool, type(None))
NO_RETRY = Retry(max_attempts=1)

_types: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def result_type(fn: Callable[..., Any]) -> Any:
    """The declared result of a step's function; Any when it declares none that can be resolved."""
    target = fn.func if isinstance(fn, functools.partial) else fn
    target = getattr(target, "__func__", target)
    try:
        return _types[target]
    except (KeyError, TypeError):
        pass
    try:
        found = typing.get_type_hints(target, include_extras=True).get("return", Any)
    except Exception:  # noqa: BLE001  # annotations that do not resolve can raise anything: the result is plain JSON
        found = Any
    with contextlib.suppress(TypeError):
        _types[target] = found
    return found


def failure(error: BaseException, traceback: str | None = None) -> ErrorInfo:
    """An exception of the author's code as data; what a failed step or child says is passed on."""
    if isinstance(error, StepFailed):
        return error.error
    info = info_of(error)
    if not isinstance(error, CallboardError):
        info = ErrorInfo(
            code="exception", message=info.message or type(error).__name__, type=info.type, traceback=traceback
        )
    return info


class Steps:
    """Executes and remembers the steps of one attempt."""

    def __init__(
        self, journal: Journal, writer: Writer, blobs: Blobs, hold: Hold, threads: Executor, attempt: int
    ) -> None:
        self._journal, self._writer, self._blobs, self._hold = journal, writer, blobs, hold
        self._threads, self._attempt = threads, attempt
        self._last: dict[str, int] = {}
        for place in journal.steps:
            scope, count = order(place)
            self._last[scope] = max(self._last.get(scope, -1), count)
        self.executed = 0
        self.remembered = sum(1 for step in journal.steps.values() if step.kind == "step")

    def recorded(self, place: str, name: str, kind: str = "step") -> Step | None:
        """The entry of an operation, if an earlier attempt has finished it. Raises JournalMismatch.

        A failure counts only if the code went on after it: otherwise it is what ended the attempt, and the step is
        due again."""
        found = self._journal.steps.get(place)
        if found is None:
            return None
        if found.name != name or found.kind != kind:
            raise JournalMismatch(place, f"{found.kind} {found.name!r}", f"{kind} {name!r}")
        scope, count = order(place)
        if found.status == "failed" and self._last[scope] <= count:
            return None
        return found

    async def value(self, entry: Step, type_: Any) -> Any:
        """The recorded result, as the declared type. Raises StepFailed for a recorded failure."""
        if entry.status == "failed":
            assert entry.error is not None
            raise StepFailed(entry.name, entry.error)
        return codec.decode(await self._blobs.value(entry.value or Payload()), type_)

    async def run(
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
        """Executes the step, unless it is recorded; returns what any later attempt will return."""
        found = self.recorded(place, name)
        if found is not None:
            return await self.value(found, type_)
        began = time.perf_counter()
        notice = asyncio.get_running_loop().call_later(_LONG_S, self._say_started, place, name)
        try:
            with self._hold.working():
                result = await self._execute(name, fn, args, kwargs, retries, timeout)
                data = codec.encode(result)
                value = await self._blobs.payload(data)
        except Exception as error:
            notice.cancel()
            await self._write(self._entry(place, name, began, error=failure(error), status="failed"))
            raise StepFailed(name, failure(error)) from error
        finally:
            notice.cancel()
        self.executed += 1
        await self._write(self._entry(place, name, began, value=value))
        return result if isinstance(result, _SCALARS) and type(result) in _SCALARS else codec.decode(data, type_)

    async def _execute(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        retries: Retry,
        timeout: timedelta | None,
    ) -> Any:
        tries = 0
        while True:
            tries += 1
            try:
                return await self._once(name, fn, args, kwargs, timeout)
            except Exception as error:
                if tries >= retries.max_attempts or not retries.covers(error):
                    raise
                full = min(
                    retries.maximum.total_seconds(), retries.initial.total_seconds() * retries.factor ** (tries - 1)
                )
                await asyncio.sleep(full * (1 - retries.jitter * random.random()))

    async def _once(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        timeout: timedelta | None,
    ) -> Any:
        limit = asyncio.timeout(timeout.total_seconds() if timeout else None)
        try:
            async with limit:
                return await self._called(fn, args, kwargs)
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

    def _entry(
        self,
        place: str,
        name: str,
        began: float,
        value: Payload | None = None,
        error: ErrorInfo | None = None,
        status: typing.Literal["done", "failed", "started"] = "done",
    ) -> Step:
        elapsed = round((time.perf_counter() - began) * 1000, 3)
        return Step(
            at=place,
            name=name,
            attempt=self._attempt,
            n=self._writer.number(),
            status=status,
            value=value,
            error=error,
            ms=elapsed,
        )

    def _say_started(self, place: str, name: str) -> None:
        self._writer.put(
            "step", Step(at=place, name=name, attempt=self._attempt, n=self._writer.number(), status="started")
        )

    async def _write(self, entry: Step) -> None:
        await self._writer.put("step", entry)

    async def note(self, step: Step) -> None:
        """Journals an operation other than a step, durably."""
        await self._write(step)
