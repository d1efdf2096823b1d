"""`ctx.step`: functions of the author's, called once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, Literal, TypeVar, overload

from ...topics import trace
from ...topics.errors import InvalidInput
from ..agent import Retry
from .dialogue import Dialogue
from .isolation import Isolated
from .steps import NO_RETRY, StepCall, result_type
from .tracing import step_span

T = TypeVar("T")


class Stepping(Dialogue):
    """The part of a context by which an agent calls functions whose results are journaled."""

    @overload
    def step(
        self,
        fn: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        name: str | None = ...,
        retries: Retry = ...,
        timeout: timedelta | None = ...,
        isolate: Literal["process"] | None = ...,
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
        isolate: Literal["process"] | None = ...,
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
        isolate: Literal["process"] | None = None,
        returns: Any = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Calls `fn(*args, **kwargs)` once and journals its result; a sync function runs in a thread.

        With `isolate="process"` it runs in a process of its own, which is killed with all that it has started when the
        run is canceled, the step's time is over, or this worker dies. It must be found under its own name in a module
        (InvalidInput otherwise); arguments come as its parameters are annotated; what it prints goes to the run's
        logger. Raises StepProcessFailed as the cause when the process dies.

        `name` defaults to the function's. `returns` (default: the annotation) is the type in which the result
        comes back; it is the same value in every attempt. The step is durable when this returns; a crash between
        the function's end and its journal entry executes it again (at least once). Raises StepFailed with the
        function's error, after `retries`; StepTimeout as its cause; EncodeError as its cause when the result
        cannot be carried."""
        if isolate not in (None, "process"):
            raise InvalidInput(f"isolate is 'process' or None, not {isolate!r:.80}")
        if timeout is not None and timeout <= timedelta(0):
            raise InvalidInput(f"the timeout of a step is more than 0, not {timeout}")
        call = StepCall(
            place=self._place(),
            name=name or getattr(fn, "__name__", None) or type(fn).__name__,
            fn=fn if isolate is None else Isolated(fn, self._parts.isolation),
            args=args,
            kwargs=kwargs,
            retries=retries,
            timeout=timeout,
            returns=result_type(fn) if returns is None else returns,
        )
        return self._step(call)

    async def _step(self, call: StepCall) -> Any:
        steps = self._parts.steps
        self._parts.check()
        if not trace.enabled() or steps.recorded(call.place, call.name) is not None:
            return await steps.run(call)
        with step_span(self._parts.record, call.name, call.place):
            return await steps.run(call)
