"""Effects: calls to the outside that are claimed in the log before they are made and settled after it.

    claimed ─ returned ─────────────────────────────→ done
            ├ raised what says that nothing happened → failed
            └ raised anything else, or process lost ─→ unknown ─ reconcile hook, or a person → done | failed (and again)

An effect that is unknown is not called again until somebody has said that it did not happen. docs/effects.md says when
an exception tells that nothing happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

import msgspec

from ...store.blobs import Blobs
from ...store.effects import Effect
from ...store.errors import naming, text_of
from ...store.journal import Journal
from ...topics import codec, crash
from ...topics.errors import InvalidInput
from ...topics.messages import ErrorInfo, Payload, Ruling, RunRecord, Step
from ..agent import Terminal
from ..hook import DidNotHappen, Happened, Unsure, name_of, timeout_of
from .caller import Caller
from .errors import JournalMismatch, StepFailed, StepTimeout
from .hold import Hold
from .place import Places
from .steps import Steps, failure
from .writer import Writer

log = logging.getLogger(__name__)

_LAST_MOMENTS_S = 4.0
"""How long the function of an effect may go on after its attempt was ended, so that it is known how it went."""
_WHY_CHARS = 300
_ASK_PAUSES_S = (0.5, 2.0)
"""A reconcile hook that raises is asked again after these pauses; then a person is."""

_LABEL_CHARS = 255

By = Literal["call", "hook", "person"]
Verdict = Happened | DidNotHappen | Unsure


@dataclass(frozen=True, kw_only=True)
class Call:
    """What `ctx.effect` was asked to do."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str
    own_key: bool
    """Whether the author has given it."""
    compensate: str | None
    reconcile: Callable[[str], Any] | None
    harmless: tuple[type[BaseException], ...]
    type_: Any

    @property
    def carried(self) -> bool:
        """Whether a hook may have to know what the function was called with."""
        return self.compensate is not None

    def keyed(self) -> dict[str, Any]:
        """The keyword arguments, with the idempotency key if the function takes it."""
        with contextlib.suppress(TypeError, ValueError):
            if "idempotency_key" in inspect.signature(self.fn).parameters:
                return {"idempotency_key": self.key} | self.kwargs
        return self.kwargs


def compensation_name(fn: Callable[..., Any] | None, effect: str) -> str | None:
    """The name by which a compensation stands in the log. Raises InvalidInput for a function that is no hook."""
    name = name_of(fn)
    if fn is not None and name is None:
        raise InvalidInput(
            f"compensate of effect {effect!r} must be a hook: put @hook on {getattr(fn, '__qualname__', fn)} at the "
            "top level of its module, so that any worker can call it when the run's code is gone"
        )
    return name


def require_label(what: str, text: str) -> str:
    """The name or the key of an effect. Raises InvalidInput."""
    if not text or len(text) > _LABEL_CHARS or any(ord(char) < 32 for char in text):
        raise InvalidInput(f"effect {what} {text[:80]!r} must be 1 to {_LABEL_CHARS} characters, no control characters")
    return text


def _to_be_made_again(settlement: Step, claim: Step) -> bool:
    """Whether an attempt after the one that made the call has found out that nothing happened, and died before it made
    the call again."""
    return settlement.status == "failed" and settlement.attempt > claim.attempt


class EffectCalls:
    """Makes and remembers the effects of one attempt."""

    def __init__(
        self,
        steps: Steps,
        call: Caller,
        journal: Journal,
        writer: Writer,
        blobs: Blobs,
        hold: Hold,
        record: RunRecord,
        places: Places,
        covers: Callable[[BaseException], bool],
    ) -> None:
        self._steps, self._journal, self._writer, self._blobs, self._hold = steps, journal, writer, blobs, hold
        self._call, self._record, self._places, self._covers = call, record, places, covers
        self.touched = bool(journal.effects) or journal.behind
        """Whether the run has effects, or may have."""
        self.late: list[Step] = []
        """Entries that could not be written any more because the attempt was over."""

    async def run(self, place: str, call: Call) -> Any:
        """The effect's result, made now or known from before. Raises StepFailed when nothing happened."""
        found = self._steps.recorded(place, call.name, "effect")
        effect = self._journal.effects.get(place)
        if effect is None or effect.undoing == "done":  # undone: the run was canceled then, and retried since
            return await self._make(place, call)
        if call.own_key and effect.key != call.key:
            raise JournalMismatch(place, f"effect {call.name!r} with key {effect.key!r}", f"key {call.key!r}")
        call = replace(call, key=effect.key)
        if found is None:
            return await self._make(place, call)
        if effect.undoing == "claimed":
            return await self._told(effect, call, Unsure("it may have been undone"))
        if effect.settlement is not None:
            if _to_be_made_again(effect.settlement, effect.claim):
                return await self._make(place, call)
            return await self._result(effect.settlement, call)
        return await self._resolve(effect, call)

    async def _result(self, entry: Step, call: Call) -> Any:
        if entry.error is not None:
            raise StepFailed(entry.name, entry.error, entry.at)
        with naming(f"the result of effect {entry.name!r} ({entry.at})", self._record.id):
            data = await self._blobs.value(entry.value or Payload())
        return codec.decode(data, call.type_)

    # -- call ---------------------------------------------------------------------------------------------------

    async def _make(self, place: str, call: Call) -> Any:
        carried = None
        if call.carried:
            carried = await self._blobs.payload(codec.encode({"args": list(call.args), "kwargs": call.kwargs}))
        claim = self._entry(
            place, call, "claimed", call=carried, compensate=call.compensate, reconcile=name_of(call.reconcile)
        )
        self.touched = True
        await self._claim(claim, call)
        crash.point("worker.after-effect-claim")
        with self._places.inside(place):
            flight = asyncio.create_task(self._fly(place, call))
        try:
            await asyncio.wait((flight,))
        except asyncio.CancelledError:
            await _last_moments(flight)
            raise
        entry, error = await self._landed(flight, place, call)
        if entry.status == "unknown":
            return await self._resolve(Effect(place, call.name, call.key, claim, doubt=entry), call, error)
        if entry.error is not None:
            raise StepFailed(call.name, entry.error, place) from error
        return await self._result(entry, call)

    async def _claim(self, claim: Step, call: Call) -> None:
        future = self._writer.put("effect", claim)
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:  # perhaps it is stored, and certainly nothing was called
            error = ErrorInfo(code="attempt_ended", message="the attempt was ended before the call")
            self._queue(self._entry(claim.at, call, "failed", error=error))
            raise
        await self._call.confirm()

    async def _fly(self, place: str, call: Call) -> tuple[Step, BaseException | None]:
        """Calls the function and settles the effect, whatever becomes of the attempt meanwhile."""
        began = time.perf_counter()
        error: BaseException | None = None
        with self._hold.working():
            result = None
            try:
                result = await self._call(call.name, call.fn, call.args, call.keyed())
            except asyncio.CancelledError:
                raise
            except BaseException as raised:  # noqa: BLE001  # told to the code that asked for the effect
                error = raised
            crash.point("worker.before-effect-settle")
            ms = round((time.perf_counter() - began) * 1000, 3)
            if error is not None:
                info = msgspec.structs.replace(failure(error), retryable=self._covers(error))
                nothing = self._says_nothing_happened(error, call)
                entry = self._entry(place, call, "failed" if nothing else "unknown", error=info, ms=ms, by="call")
            else:
                value, problem = await self._carried(result)
                entry = self._entry(place, call, "done", value=value, error=problem, ms=ms, by="call")
            await self._put(entry)
        crash.point("worker.after-effect-settle")
        return entry, error

    async def _carried(self, result: Any) -> tuple[Payload | None, ErrorInfo | None]:
        """The result as it travels; that it cannot does not mean that nothing happened."""
        try:
            return await self._blobs.payload(codec.encode(result)), None
        except codec.EncodeError as cannot:
            return None, failure(cannot)

    async def _landed(
        self, flight: asyncio.Task[tuple[Step, BaseException | None]], place: str, call: Call
    ) -> tuple[Step, BaseException | None]:
        if not flight.cancelled():
            return flight.result()
        error = ErrorInfo(code="canceled_itself", message="the function canceled its own task")
        entry = self._entry(place, call, "unknown", error=error)
        await self._put(entry)
        return entry, None

    def _says_nothing_happened(self, error: BaseException, call: Call) -> bool:
        """Only an exception by which the author says so. (A Terminal of ours stands for `sys.exit`.)"""
        return isinstance(error, (DidNotHappen, Terminal, *call.harmless)) and not isinstance(
            error.__cause__, (SystemExit, KeyboardInterrupt)
        )

    # -- unknown ------------------------------------------------------------------------------------------------

    async def _resolve(self, effect: Effect, call: Call, raised: BaseException | None = None) -> Any:
        """Finds out whether an effect happened: by what a person has said, by the hook, or by asking a person."""
        ruling, unfit = await self._ruling(effect.claim, call)
        if ruling is not None:
            return await self._decided(effect, call, ruling.happened, ruling.value, "person", raised)
        verdict = Unsure(unfit) if unfit else await self._asked(effect, call)
        if isinstance(verdict, Happened):
            value = await self._blobs.payload(codec.encode(verdict.result))
            return await self._decided(effect, call, True, value, "hook", raised)
        if isinstance(verdict, DidNotHappen):
            return await self._decided(effect, call, False, None, "hook", raised)
        return await self._told(effect, call, verdict)

    async def _told(self, effect: Effect, call: Call, verdict: Unsure) -> Any:
        """What a person has said; without it the code waits until the attempt is let go of."""
        ruling, unfit = await self._ruling(effect.claim, call)
        if ruling is not None:
            return await self._decided(effect, call, ruling.happened, ruling.value, "person", None)
        log.warning(
            "run %s: it is not known whether effect %r (%s) happened: %s",
            self._record.id, call.name, effect.at, verdict.why,
        )  # fmt: skip
        why = unfit or (text_of(verdict.why)[:_WHY_CHARS] if call.reconcile is not None else "")
        with self._hold.for_person(msgspec.structs.replace(effect.question, why=why)):
            return await asyncio.get_running_loop().create_future()

    async def _ruling(self, claim: Step, call: Call) -> tuple[Ruling | None, str]:
        """What a person has said last; or why that is no answer: as the effect's result it could never be read."""
        named = claim.at, claim.attempt, claim.n
        given = [one for one in self._record.rulings or () if (one.at, one.attempt, one.n) == named]
        last = given[-1] if given else None
        if last is None or not last.happened:
            return last, ""
        try:
            codec.decode(await self._blobs.value(last.value or Payload()), call.type_)
        except codec.DecodeError as error:
            return None, f"what was given as its result is none: {error.message}"[:_WHY_CHARS]
        return last, ""

    async def _asked(self, effect: Effect, call: Call) -> Verdict:
        if call.reconcile is None:
            return Unsure("it has no reconcile hook")
        for pause in (*_ASK_PAUSES_S, None):
            try:
                with self._hold.working():
                    return await ask_hook(self._call, call.name, call.reconcile, effect.key)
            except Exception as error:  # noqa: BLE001  # the author's code: whatever it raises, it has not answered
                log.info("run %s: reconcile hook of effect %r: %s", self._record.id, call.name, error)
                if pause is None or isinstance(error, StepTimeout):  # it may go on, in its thread
                    return Unsure(f"its reconcile hook raised {failure(error).message}")
            await asyncio.sleep(pause)
        raise AssertionError

    async def _decided(
        self, effect: Effect, call: Call, happened: bool, value: Payload | None, by: By, raised: BaseException | None
    ) -> Any:
        if happened:
            entry = self._entry(effect.at, call, "done", value=value, by=by)
            await self._put(entry)
            return await self._result(entry, call)
        info = effect.doubt.error if effect.doubt else None
        info = info or ErrorInfo(code=DidNotHappen.code, message="its process was lost, and nothing happened")
        await self._put(self._entry(effect.at, call, "failed", error=info, by=by))
        if raised is not None:  # this attempt has called it: whether it is called again is for the retry policy to say
            raise StepFailed(call.name, info, effect.at) from raised
        return await self._make(effect.at, call)

    # -- entries ------------------------------------------------------------------------------------------------

    def _entry(
        self, place: str, asked: Call, status: Literal["claimed", "done", "failed", "unknown"], **fields: Any
    ) -> Step:
        return Step(
            at=place, name=asked.name, attempt=self._record.attempt, n=self._writer.number(), kind="effect",
            status=status, key=asked.key, **fields,
        )  # fmt: skip

    async def _put(self, entry: Step) -> None:
        """Writes an entry, also when who waits for it is cancelled. Raises StaleFence, BrokerError."""
        await asyncio.shield(self._queue(entry))

    def _queue(self, entry: Step) -> asyncio.Future[int]:
        """Has an entry written if the attempt still may; it is kept for those who undo the effects otherwise."""

        def written(done: asyncio.Future[int]) -> None:
            if done.cancelled() or done.exception() is not None:
                self.late.append(entry)

        future = self._writer.put("effect", entry)
        future.add_done_callback(written)
        return future


async def call_hook(call: Caller, name: str, fn: Callable[[Any], Any], given: Any, timeout: timedelta) -> Any:
    """What a hook returns. Raises what it raises; RuntimeError for what is no Exception, or for its own cancellation:
    either would end the attempt that undoes the effects, and those that follow."""
    try:
        return await call(name, fn, (given,), {}, timeout)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():  # the attempt is ended
            raise
        raise RuntimeError("the hook canceled itself") from error
    except Exception:
        raise
    except BaseException as error:
        raise RuntimeError(f"the hook raised {type(error).__name__}: {text_of(error)}") from error


async def ask_hook(call: Caller, name: str, fn: Callable[[str], Any], key: str) -> Verdict:
    """The verdict of a reconcile hook. Raises what it raises, StepTimeout, and TypeError for anything else than a
    verdict."""
    verdict = await call_hook(call, name, fn, key, timeout_of(fn))
    if verdict is DidNotHappen or verdict is Unsure:
        verdict = verdict()
    if isinstance(verdict, Happened | DidNotHappen | Unsure):
        return verdict
    raise TypeError(
        f"the reconcile hook of effect {name!r} returned {type(verdict).__name__}: return Happened(result), "
        "DidNotHappen() or Unsure()"
    )


async def _last_moments(flight: asyncio.Task[Any]) -> None:
    """The attempt was ended during the call: it gets a moment to say how it went; after that it is unknown."""
    flight.add_done_callback(_retrieved)
    try:
        await asyncio.wait((flight,), timeout=_LAST_MOMENTS_S)
    finally:
        flight.cancel()


def _retrieved(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
