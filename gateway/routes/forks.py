"""Forks: runs that begin from a checkpoint of another run."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from opentelemetry.trace import SpanKind

from ...store.submit import require_taken
from ...topics import trace
from .. import forked, translate
from .. import models as out
from ..desk import At, RunPath
from ..strict import StrictRoute, raw_field
from .runs import check_metadata, same_key

router = APIRouter(tags=["runs"], route_class=StrictRoute)


@router.post("/runs/{run}/fork", status_code=202, response_model=out.RunCreated, summary="Fork a run",
             responses={200: {"model": out.RunCreated, "description": "The run existed already"}})  # fmt: skip
async def fork(
    run: RunPath,
    body: forked.ForkCreate,
    request: Request,
    response: Response,
    desk: At,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> out.RunCreated:
    """A new run begins from a checkpoint of this one, in its thread, another, or a new one; with an edit of the state,
    an input, or to do the same again. Answers once it is durable. This run stays as it is."""
    check_metadata(desk, body.metadata)
    key = same_key(body.idempotency_key, idempotency_key)
    given = body.model_fields_set
    value = await raw_field(request, "input") if "input" in given else None
    update = await raw_field(request, "update") if body.update is not None else None
    checkpoint = await desk.checkpoints.labels.number(run, str(body.checkpoint))
    inbound = trace.parse(request.headers.get(trace.HEADER))
    with trace.span("POST /runs/{run}/fork", inbound, SpanKind.SERVER, {"callboard.forked": run}) as span:
        parent = trace.traceparent() or (trace.text(inbound) if inbound else None)
        reply = await desk.submitter.submit(forked.asked(run, checkpoint, body, key, parent), value, update=update)
        require_taken(reply)
        span.set_attribute("callboard.run", reply.run or "")
    response.headers["location"] = f"/runs/{reply.run}"
    response.status_code = 200 if reply.duplicate else 202
    return translate.created(reply)
