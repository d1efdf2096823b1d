"""`ctx.effect`: what a run does outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, overload

from ...topics import trace
from ..hook import Done
from .effects import Call, compensation_name, require_label
from .parts import Parts
from .steps import result_type
from .tracing import step_span

T = TypeVar("T")


class Outside:
    """The part of a context by which an agent acts on what is no part of Callboard."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._place = parts.places.next

    @overload
    def effect(
        self,
        name: str,
        fn: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        key: str | None = ...,
        compensate: Callable[[Done], Any] | None = ...,
        reconcile: Callable[[str], Any] | None = ...,
        harmless: tuple[type[BaseException], ...] = ...,
        returns: Any = ...,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def effect(
        self,
        name: str,
        fn: Callable[..., T],
        /,
        *args: Any,
        key: str | None = ...,
        compensate: Callable[[Done], Any] | None = ...,
        reconcile: Callable[[str], Any] | None = ...,
        harmless: tuple[type[BaseException], ...] = ...,
        returns: Any = ...,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, T]: ...
    def effect(
        self, name: str, fn: Callable[..., Any], /, *args: Any, key: str | None = None,
        compensate: Callable[[Done], Any] | None = None, reconcile: Callable[[str], Any] | None = None,
        harmless: tuple[type[BaseException], ...] = (), returns: Any = None, **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:  # fmt: skip
        """Does something outside: claimed in the log before the call, settled after it, and never called again while it
        is not known whether it happened.

        `fn` is given `idempotency_key=` if it has such a parameter: `key`, or one that follows from the run and the
        place. If it raises DidNotHappen, Terminal or one of `harmless`, nothing happened: StepFailed is raised, and a
        retry of the run calls it again. After anything else, and after a crash, the effect is unknown: `reconcile(key)`
        returns Happened(result), DidNotHappen() or Unsure(); without it, or when it is unsure, the run waits as
        `input_required` until a person has decided. `compensate`, a `@hook`, undoes it when the run is canceled or
        rolled back."""
        place = self._place()
        call = Call(
            name=require_label("name", name),
            fn=fn,
            args=args,
            kwargs=kwargs,
            key=f"{self._parts.record.id}/{place}" if key is None else require_label("key", key),
            own_key=key is not None,
            compensate=compensation_name(compensate, name),
            reconcile=reconcile,
            harmless=harmless,
            type_=result_type(fn) if returns is None else returns,
        )
        return self._effect(place, call)

    async def _effect(self, place: str, call: Call) -> Any:
        self._parts.check()
        if not trace.enabled() or self._parts.steps.recorded(place, call.name, "effect") is not None:
            return await self._parts.effects.run(place, call)
        with step_span(self._parts.record, call.name, place):
            return await self._parts.effects.run(place, call)
