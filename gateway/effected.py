"""Effects as they go in and out over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from ..store.effects import Effect, EffectStatus
from ..topics.messages import RunRecord, Status
from . import translate
from .models import Asked, BlobRefOut, ErrorOut, Model


class CompensationOut(Model):
    """How an effect was undone."""

    hook: str | None
    key: str
    """The idempotency key that the hook was given."""
    status: str
    """`claimed` while it is called, `done`, or `failed`."""
    ended_at: datetime | None = None
    result: Any = None
    result_ref: BlobRefOut | None = None


class EffectOut(Model):
    """Something that a run did outside."""

    place: str
    """Where it stands in the code; names it in a reconciliation."""
    name: str
    status: EffectStatus
    key: str
    """The idempotency key that its function was given."""
    calls: int
    """How often it was claimed."""
    attempt: int
    """The attempt that claimed it last."""
    claimed_at: datetime | None
    settled_at: datetime | None = None
    settled_by: str | None = None
    """`call`, `hook` or `person`."""
    result: Any = None
    """What its function returned, such as the id that the outside gave."""
    result_ref: BlobRefOut | None = None
    error: ErrorOut | None = None
    """Why it failed, is unknown, or could not be undone."""
    compensation: CompensationOut | None = None


class EffectList(Model):
    """The effects of a run, in the order of their claims."""

    run: str
    status: Status
    effects: list[EffectOut]


class UnknownOut(Model):
    """An effect that a run waits to be told of."""

    place: str
    name: str
    key: str
    error: ErrorOut | None = None


class ReconcileRequest(Asked):
    """A person's word on an unknown effect."""

    happened: bool
    """True: `value` is its result. False: it is done again, with the same idempotency key."""
    value: Any = None
    """What its function would have returned."""
    reason: Annotated[str, Field(max_length=1000)] | None = None


class Reconciled(Model):
    """The run after that; what is left unknown."""

    run: str
    status: Status
    unknown: list[UnknownOut]


def effect(record: RunRecord, found: Effect) -> EffectOut:
    """An effect, given the run as it is."""
    return EffectOut(
        place=found.at,
        name=found.name,
        status=found.status(record),
        key=found.key,
        calls=found.calls,
        attempt=found.claim.attempt,
        claimed_at=found.claimed_at,
        settled_at=found.settled_at,
        settled_by=found.settlement.by if found.settlement else None,
        result=translate.value(found.value),
        result_ref=translate.ref(found.value),
        error=translate.error(found.error),
        compensation=_compensation(found),
    )


def _compensation(found: Effect) -> CompensationOut | None:
    entry = found.compensation
    if entry is None:
        return None
    return CompensationOut(
        hook=found.claim.compensate, key=entry.key or "", status=entry.status, ended_at=found.compensated_at,
        result=translate.value(entry.value), result_ref=translate.ref(entry.value),
    )  # fmt: skip


def reconciled(record: RunRecord) -> Reconciled:
    """A run after a person's word."""
    left = [
        UnknownOut(place=one.at, name=one.name, key=one.key, error=translate.error(one.error))
        for one in record.unknown or ()
    ]
    return Reconciled(run=record.id, status=record.status, unknown=left)
