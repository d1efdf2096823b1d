"""Steps: functions whose results are journaled, so that no later attempt executes them again."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
import typing
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from ...store.blobs import Blobs
from ...store.errors import info_of, naming, trace_of
from ...store.journal import Journal
from ...topics import codec, crash
from ...topics.errors import CallboardError
from ...topics.messages import ErrorInfo, Payload, RunRecord, Step, encode
from ..agent import Retry
from .caller import Caller
from .errors import AttemptEnded, JournalMismatch, StepFailed
from .hold import Hold
from .place import Places, untried
from .writer import Writer

_LONG_S = 1.0
"""A step that runs longer than this says that it has started, for those who watch."""
_SCALARS = frozenset({str, int, float, bool, type(None)})
_MESSAGE_CHARS = 2000
_DETAILS_BYTES = 4000
_TRACE_CHARS = 4000
_PLACES = 100
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


def failure(error: BaseException, trace: str | None = None) -> ErrorInfo:
    """An exception of the author's code as data; what a failed step or child says is passed on. Bounded in size."""
    if isinstance(error, StepFailed):
        return error.error
    info = info_of(error)
    if not isinstance(error, CallboardError):
        info = ErrorInfo(
            code="exception", message=info.message or type(error).__name__, type=info.type, traceback=trace
        )
    details = info.details if len(encode(info.details)) <= _DETAILS_BYTES else None
    return msgspec.structs.replace(info, message=info.message[:_MESSAGE_CHARS], details=details)


class Due(NamedTuple):
    """The failed steps that ended the last failed attempt: they are executed again, while a failure that the code has
    gone on from is as much a result as any. Stands in the `details` of the run's error."""

    attempt: int = 0
    places: tuple[str, ...] = ()

    @classmethod
    def of(cls, record: RunRecord) -> Due:
        """As the run's record says."""
        details = (record.error.details if record.error else None) or {}
        attempt, places = details.get("attempt"), details.get("failed_steps")
        return cls(attempt, tuple(places)) if isinstance(attempt, int) and isinstance(places, list) else cls()

    def again(self, entry: Step) -> bool:
        """Whether this failure is one of them; what was asked for inside of such a step is due with it."""
        at = untried(entry.at)
        return entry.attempt <= self.attempt and any(
            at == place or at.startswith(f"{place}s:") for place in map(untried, self.places)
        )


def fatal_places(error: BaseException | None) -> list[str]:
    """The steps whose failure this error is, or was raised from."""
    found: list[str] = []
    seen, left = set[int](), [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:  # causes may go round in a circle
            continue
        seen.add(id(one))
        if isinstance(one, StepFailed):
            found += [one.place] if one.place else []
        elif isinstance(one, BaseExceptionGroup):
            left += reversed(one.exceptions)
        else:
            left.append(one.__cause__ or (None if one.__suppress_context__ else one.__context__))
    return found


def ended_by(error: BaseException, attempt: int, covers: Callable[[BaseException], bool]) -> ErrorInfo:
    """What the attempt says that ended with this error. `covers`: whether it is worth another one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    text = trace_of(error, _TRACE_CHARS)
    info = failure(error, text)
    cause = error
    for _ in range(_PLACES):
        if not isinstance(cause, StepFailed) or cause.__cause__ is None:
            break
        cause = cause.__cause__
    details, places = dict(info.details or {}), fatal_places(error)
    if places:
        details |= {"attempt": attempt, "failed_steps": places[:_PLACES]}
    return msgspec.structs.replace(
        info, retryable=covers(cause), traceback=info.traceback or text, details=details or None
    )


class StepCall(msgspec.Struct, frozen=True, kw_only=True):
    """What `ctx.step` was asked to do, and where in the code."""

    place: str
    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    retries: Retry
    timeout: timedelta | None
    returns: Any
    """The type in which the result comes back."""


class Steps:
    """Executes and remembers the steps of one attempt."""

    def __init__(
        self,
        journal: Journal,
        writer: Writer,
        blobs: Blobs,
        hold: Hold,
        call: Caller,
        record: RunRecord,
        places: Places,
        covers: Callable[[BaseException], bool],
    ) -> None:
        self._journal, self._writer, self._blobs, self._hold = journal, writer, blobs, hold
        self._call, self._attempt, self._places, self._covers = call, record.attempt, places, covers
        self._due, self._run = Due.of(record), record.id
        self.executed = 0
        self.remembered = sum(1 for step in journal.steps.values() if step.kind == "step")

    def recorded(self, place: str, name: str, kind: str = "step") -> Step | None:
        """The entry of an operation, if an earlier attempt has finished it. Raises JournalMismatch.

        A failure is finished as well, unless it is what an attempt ended with: then the step is due again."""
        found = self._journal.steps.get(place)
        if found is None:
            return None
        if found.name != name or found.kind != kind:
            raise JournalMismatch(place, f"{found.kind} {found.name!r}", f"{kind} {name!r}")
        return None if found.status == "failed" and self._due.again(found) else found

    async def value(self, entry: Step, type_: Any) -> Any:
        """The recorded result, as the declared type. Raises StepFailed for a recorded failure."""
        if entry.status == "failed":
            assert entry.error is not None
            raise StepFailed(entry.name, entry.error, entry.at)
        with naming(f"the result of step {entry.name!r} ({entry.at})", self._run):
            data = await self._blobs.value(entry.value or Payload())
        return codec.decode(data, type_)

    async def run(self, call: StepCall) -> Any:
        """Executes the step, unless it is recorded; returns what any later attempt will return."""
        found = self.recorded(call.place, call.name)
        if found is not None:
            return await self.value(found, call.returns)
        began = time.perf_counter()
        notice = asyncio.get_running_loop().call_later(_LONG_S, self._say_started, call)
        try:
            with self._hold.working():
                result = await self._execute(call)
                data = codec.encode(result)
                value = await self._blobs.sealed(data)
        except AttemptEnded:  # nothing is written any more
            raise
        except Exception as error:
            notice.cancel()
            info = msgspec.structs.replace(failure(error), retryable=self._covers(error))
            await self._write(self._entry(call, began, error=info, status="failed"))
            raise StepFailed(call.name, info, call.place) from error
        finally:
            notice.cancel()
        self.executed += 1
        crash.point("worker.before-step-write")
        await self._write(self._entry(call, began, value=value))
        crash.point("worker.after-step-write")
        same = type(result) in _SCALARS and (call.returns is type(result) or call.returns is Any)
        return result if same else codec.decode(data, call.returns)

    async def _execute(self, call: StepCall) -> Any:
        retries, tries = call.retries, 0
        while True:
            tries += 1
            try:
                with self._places.inside(call.place):
                    return await self._call(call.name, call.fn, call.args, call.kwargs, call.timeout)
            except Exception as error:
                if tries >= retries.max_attempts or not retries.covers(error):
                    raise
                await asyncio.sleep(retries.pause_s(tries))

    def _entry(
        self,
        call: StepCall,
        began: float,
        value: Payload | None = None,
        error: ErrorInfo | None = None,
        status: typing.Literal["done", "failed"] = "done",
    ) -> Step:
        elapsed = round((time.perf_counter() - began) * 1000, 3)
        return Step(
            at=call.place,
            name=call.name,
            attempt=self._attempt,
            n=self._writer.number(),
            status=status,
            value=value,
            error=error,
            ms=elapsed,
        )

    def _say_started(self, call: StepCall) -> None:
        entry = Step(at=call.place, name=call.name, attempt=self._attempt, n=self._writer.number(), status="started")
        self._writer.put("step", entry)

    async def _write(self, entry: Step) -> None:
        await self._writer.put("step", entry)

    async def note(self, step: Step) -> None:
        """Journals an operation other than a step, durably."""
        await self._write(step)
