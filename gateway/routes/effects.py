"""What runs did outside, and what people say about it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from ...store.lineage import load_effects
from .. import effected as out
from ..desk import At, RunPath
from ..errors import InvalidRequest
from ..strict import StrictRoute, raw_field

router = APIRouter(tags=["runs"], route_class=StrictRoute)


@router.get("/runs/{run}/effects", response_model=out.EffectList, summary="What a run did outside")
async def effects(run: RunPath, desk: At) -> out.EffectList:
    """From the log, in the order of the claims: claimed, settled, failed, unknown, compensated; also of a run that was
    rolled back, and with those of the runs that it retries."""
    record = (await desk.link.log.require(run)).record
    found = await load_effects(desk.link.bus, record)
    return out.EffectList(run=run, status=record.status, effects=[out.effect(record, one) for one in found.all])


@router.post(
    "/runs/{run}/effects/{place}/reconcile", response_model=out.Reconciled, summary="Decide on an unknown effect"
)
async def reconcile(
    run: RunPath,
    place: Annotated[str, Path(max_length=255, description="The effect's place, or its name if that tells which")],
    body: out.ReconcileRequest,
    request: Request,
    desk: At,
) -> out.Reconciled:
    """Says whether it happened. The run, which is `input_required`, goes on when all its unknown effects are decided;
    the same word again changes nothing."""
    value = await raw_field(request, "value")
    if not body.happened and value != b"null":
        raise InvalidRequest("an effect that did not happen has no value", run=run, effect=place)
    payload = await desk.blobs.payload(value) if body.happened else None
    record = await desk.submitter.reconcile(run, place, happened=body.happened, value=payload, reason=body.reason)
    return out.reconciled(record)
