"""`@hook`: functions that are called by their name in the log, without the code around them: compensations, and
reconciliations that also serve when a run is canceled.

    @hook
    async def refund(effect: Done) -> str:
        return await bank.refund(effect.result["id"], idempotency_key=effect.key)

A run that is canceled may have no process any more, and its code is not executed again to find out what to undo. What
the log holds is a hook's name and the arguments and result of the effect; whichever worker serves the agent calls the
hook. So it stands at the top level of a module that every worker of the agent imports, and is never a closure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar, overload

from ..topics.errors import CallboardError, InvalidInput
from .agent import DEFAULT_RETRY, Retry

HOOK_TIMEOUT = timedelta(minutes=5)
F = TypeVar("F", bound=Callable[..., Any])


class DidNotHappen(CallboardError):
    """Nothing happened outside. Raise it in the function of an effect when that is certain (the call was refused, or
    never left), or return it, or the class, from a `reconcile` hook."""

    code = "did_not_happen"
    retryable = True

    def __init__(self, message: str = "nothing happened", **facts: Any) -> None:
        super().__init__(message, **facts)


@dataclass(frozen=True)
class Happened:
    """Returned by a `reconcile` hook: the effect has happened; `result` is what its function would have returned."""

    result: Any = None


@dataclass(frozen=True)
class Unsure:
    """Returned by a `reconcile` hook: it cannot tell either. A person is asked."""

    why: str = "the hook cannot tell"


@dataclass(frozen=True, kw_only=True)
class Done:
    """An effect that happened and is to be undone, as the log has it. Values are plain JSON."""

    run: str
    name: str
    key: str
    """The compensation's own idempotency key: the same however often it is called."""
    effect_key: str
    """The idempotency key with which the effect was called."""
    result: Any = None
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Hook:
    """A registered function. `retries`: how a compensation that raises is repeated. `timeout`: how long one call of it
    may take."""

    name: str
    fn: Callable[..., Any]
    retries: Retry
    timeout: timedelta


_hooks: dict[str, Hook] = {}
_names: dict[Callable[..., Any], str] = {}


@overload
def hook(fn: F, /) -> F: ...
@overload
def hook(
    *, name: str | None = None, retries: Retry = DEFAULT_RETRY, timeout: timedelta = HOOK_TIMEOUT
) -> Callable[[F], F]: ...
def hook(
    fn: F | None = None, /, *, name: str | None = None, retries: Retry = DEFAULT_RETRY,
    timeout: timedelta = HOOK_TIMEOUT,
) -> F | Callable[[F], F]:  # fmt: skip
    """Registers a function under its name (or `name`) in this process, and gives it back unchanged.

    The name stands in the log: keep it while runs that name it are under way. A call that takes longer than `timeout`
    (5 minutes by default) has failed and is not repeated: it may go on, in its thread. Raises InvalidInput when another
    function has the name already."""
    if timeout <= timedelta(0):
        raise InvalidInput(f"the timeout of a hook is more than 0, not {timeout}")

    def register(fn: F) -> F:
        title = name or getattr(fn, "__name__", "")
        if not title or len(title) > 100:
            raise InvalidInput(f"hook {fn!r} needs a name of 1 to 100 characters: @hook(name=…)")
        before = _hooks.get(title)
        if before is not None and not _same(before.fn, fn):
            raise InvalidInput(
                f"two hooks are called {title!r}: {_where(before.fn)} and {_where(fn)}; give one another name with "
                "@hook(name=…)"
            )
        _hooks[title] = Hook(title, fn, retries, timeout)
        _names[fn] = title
        return fn

    return register if fn is None else register(fn)


def _same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether both come from one definition: a module may be imported again, also under another name."""
    codes = [getattr(fn, "__code__", None) for fn in (one, other)]
    places = [(code.co_filename, code.co_firstlineno) if code else None for code in codes]
    return _where(one) == _where(other) or (places[0] is not None and places[0] == places[1])


def _where(fn: Callable[..., Any]) -> str:
    return f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', fn)}"


def hook_named(name: str) -> Hook | None:
    """The hook of that name, if this process has it."""
    return _hooks.get(name)


def timeout_of(fn: Callable[..., Any]) -> timedelta:
    """How long one call of a function that serves as a hook may take."""
    found = hook_named(name_of(fn) or "")
    return HOOK_TIMEOUT if found is None else found.timeout


def name_of(fn: Callable[..., Any] | None) -> str | None:
    """The name under which a function is registered, if it is."""
    return None if fn is None else _names.get(fn)
