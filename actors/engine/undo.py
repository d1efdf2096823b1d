"""Undoing: the compensations of a run that was canceled or rolled back, the newest effect first.

They are called by the names in the log, with what the log holds: the run's code is not executed. Each is claimed before
and settled after, so that one that has ended is not called again; one that was under way when its process died is,
with the same key. Written under the fence of the cancel_requested state, which a second cancel moves: then the record
is read anew, and the work goes on if the run is still this worker's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from ...store.blobs import Blobs
from ...store.effects import Effect, call_of
from ...store.errors import naming
from ...store.journal import Journal
from ...store.lineage import load_lineage
from ...store.log import EventLog, Loaded
from ...topics import codec, crash
from ...topics.errors import CallboardError, StaleFence, StorageFull, Unavailable, WriteInFlight
from ...topics.messages import ErrorInfo, RunRecord, Status, Step, encode
from ..hook import DidNotHappen, Done, Happened, Hook, hook_named
from .caller import Caller
from .effects import ask_hook, call_hook
from .errors import StepTimeout
from .steps import failure

log = logging.getLogger(__name__)

_PAUSE_S = 0.05
_PAUSE_MAX_S = 1.0
_TRIES = 3


class Undo:
    """Undoes the effects of one run, in the attempt that holds it as `loaded` says. `numbered`: how many entries the
    attempt has written; `late`: of its effects what it could not write any more."""

    def __init__(
        self, event_log: EventLog, blobs: Blobs, call: Caller, loaded: Loaded, numbered: int = 0,
        late: Sequence[Step] = (),
    ) -> None:  # fmt: skip
        self._log, self._blobs, self._call = event_log, blobs, call
        self._record, self._fence = loaded
        self._n, self._late = numbered, late

    async def execute(self) -> ErrorInfo | None:
        """Undoes what can be undone; says what is left. Raises StaleFence when the run is somebody else's now."""
        journal = await load_lineage(self._log, self._record, until=self._fence)
        await self._write_late(journal)
        for effect in journal.effects.all:
            if effect.open and effect.claim.reconcile is not None:
                await self._reconcile(effect)
        for effect in reversed(journal.effects.all):
            if effect.happened and effect.claim.compensate is not None and effect.undoing in (None, "claimed"):
                await self._compensate(effect, effect.claim.compensate)
        return _left(journal.effects.all)

    async def _write_late(self, journal: Journal) -> None:
        """What the attempt knew of its effects when its fence had moved."""
        for entry in self._late:
            effect = journal.effects.get(entry.at)
            if effect is not None and effect.open and effect.claim.attempt == entry.attempt:
                await self._write(effect, entry)

    # -- unknown ------------------------------------------------------------------------------------------------

    async def _reconcile(self, effect: Effect) -> None:
        found = hook_named(effect.claim.reconcile or "")
        if found is None:
            return
        try:
            verdict = await ask_hook(self._call, effect.name, found.fn, effect.key)
        except Exception as error:  # noqa: BLE001  # it has not answered: the effect stays unknown, and is listed
            log.warning("run %s: reconcile hook of effect %r: %s", self._record.id, effect.name, error)
            return
        if isinstance(verdict, Happened):
            value = await self._blobs.payload(codec.encode(verdict.result))
            await self._write(effect, self._entry(effect, "effect", "done", key=effect.key, value=value, by="hook"))
        elif isinstance(verdict, DidNotHappen):
            error_ = ErrorInfo(code=DidNotHappen.code, message="nothing happened")
            await self._write(effect, self._entry(effect, "effect", "failed", key=effect.key, error=error_, by="hook"))

    # -- compensate ---------------------------------------------------------------------------------------------

    async def _compensate(self, effect: Effect, name: str) -> None:
        found, key = hook_named(name), f"{effect.key}:undo"
        if found is None:
            error = ErrorInfo(code="hook_missing", message=f"this worker has no hook called {name!r}")
            await self._write(effect, self._entry(effect, "compensation", "failed", key=key, error=error))
            return
        await self._write(effect, self._entry(effect, "compensation", "claimed", key=key))
        crash.point("worker.before-compensation")
        try:
            done = await self._done(effect, key)
            value = await self._blobs.payload(codec.encode(await self._called_again(found, done)))
        except StaleFence:
            raise
        except Exception as error:  # noqa: BLE001  # the author's code; its failure is listed, the others are undone
            log.warning("run %s: compensation %r of effect %r: %s", self._record.id, name, effect.name, error)
            entry = self._entry(effect, "compensation", "failed", key=key, error=failure(error))
        else:
            entry = self._entry(effect, "compensation", "done", key=key, value=value)
        crash.point("worker.before-compensation-settle")
        await self._write(effect, entry)

    async def _done(self, effect: Effect, key: str) -> Done:
        carried = effect.claim.call
        with naming(f"effect {effect.name!r}", self._record.id):
            args, kwargs = call_of(carried, await self._blobs.value(carried) if carried else b"")
            result = msgspec.json.decode(await self._blobs.value(effect.value)) if effect.value else None
        return Done(
            run=self._record.id, name=effect.name, key=key, effect_key=effect.key, result=result, args=args,
            kwargs=kwargs,
        )  # fmt: skip

    async def _called_again(self, found: Hook, done: Done) -> Any:
        """The hook's result, after its retries."""
        retries, tries = found.retries, 0
        while True:
            tries += 1
            try:
                return await call_hook(self._call, found.name, found.fn, done, found.timeout)
            except StepTimeout:  # it may go on, in its thread
                raise
            except Exception as error:
                if tries >= retries.max_attempts or not retries.covers(error):
                    raise
                await asyncio.sleep(retries.pause_s(tries))

    # -- entries ------------------------------------------------------------------------------------------------

    def _entry(self, effect: Effect, kind: Any, status: Any, **fields: Any) -> Step:
        self._n += 1
        return Step(
            at=effect.at, name=effect.name, attempt=self._record.attempt, n=self._n, kind=kind, status=status, **fields
        )  # fmt: skip

    async def _write(self, effect: Effect, entry: Step) -> None:
        pause = _PAUSE_S
        while True:
            try:
                await self._log.append(self._record.id, "effect", encode(entry), self._fence)
            except StaleFence:
                await self._again()
            except (Unavailable, WriteInFlight, StorageFull) as error:
                log.debug("run %s: write repeated: %s", self._record.id, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _PAUSE_MAX_S)
            else:
                effect.take(entry)
                return

    async def _again(self) -> None:
        """The state has moved: a second cancel, or another worker."""
        loaded = await current(self._log, self._record)
        if loaded is None or loaded.sequence == self._fence:
            raise StaleFence(f"run {self._record.id} is somebody else's now", run=self._record.id)
        self._record, self._fence = loaded


async def current(event_log: EventLog, held: RunRecord) -> Loaded | None:
    """The run as it is now, if it is being canceled and its attempt is still the one that `held` knows.

    Raises Unavailable when the broker does not answer."""
    pause = _PAUSE_S
    for left in reversed(range(_TRIES)):
        try:
            loaded = await event_log.load_current(held.id)
        except CallboardError:
            if not left:
                raise
            await asyncio.sleep(pause)
            pause *= 4
            continue
        record = loaded.record if loaded else None
        mine = record and (record.attempt, record.worker) == (held.attempt, held.worker)
        return loaded if mine and record and record.status is Status.CANCEL_REQUESTED else None
    raise AssertionError


def _left(effects: Sequence[Effect]) -> ErrorInfo | None:
    failed = sum(one.undoing == "failed" for one in effects)
    unknown = sum(one.open for one in effects)
    parts = [f"{failed} compensation{'s' if failed != 1 else ''} failed"] if failed else []
    parts += [f"{unknown} effect{'s are' if unknown != 1 else ' is'} unknown"] if unknown else []
    return ErrorInfo(code="not_undone", message=" and ".join(parts)) if parts else None
