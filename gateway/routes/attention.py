"""What waits for a person, and what is done about it."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Response

from ...store.attention import Attention
from ...store.deadletters import DeadLetters
from .. import translate
from .. import waiting as out
from ..desk import At, Desk, RunPath
from ..strict import StrictRoute

router = APIRouter(tags=["attention"], route_class=StrictRoute)


def _attention(desk: Desk) -> Attention:
    return Attention(desk.link.bus, DeadLetters(desk.link.bus, desk.blobs))


@router.get("/attention", response_model=out.AttentionList, summary="What waits for a person")
async def waiting(desk: At, limit: Annotated[int, Query(ge=1, le=10_000)] = 200) -> out.AttentionList:
    """Runs that failed for good, timed out, need an answer or were not heard of again; work that no worker takes;
    messages that could not be used. Newest first."""
    return out.AttentionList(items=[out.shown(item) for item in await _attention(desk).items(limit)])


@router.delete("/attention/{run}", status_code=204, summary="Take a run from the list")
async def drop(run: RunPath, desk: At) -> Response:
    """The run, which has ended, stays as it is."""
    await _attention(desk).drop(run)
    return Response(status_code=204)


@router.post("/runs/{run}/retry", status_code=202, response_model=out.RunRetried, summary="Retry a run",
             responses={201: {"model": out.RunRetried, "description": "The retry is durable"}})  # fmt: skip
async def retry(
    run: RunPath,
    desk: At,
    response: Response,
    version: Annotated[str, Query(max_length=64, description="Have workers of this version of its agent go on")] = "",
) -> out.RunRetried:
    """A new run goes on from one that ended without a result: finished steps are not executed again. Idempotent: a run
    is retried by one other."""
    record = await desk.submitter.retry(run, version)
    if record.retry_of == run:
        response.status_code = 201
        response.headers["location"] = f"/runs/{quote(record.id)}"
    fields = translate.run(record).model_dump()
    return out.RunRetried(**fields, retry_of=record.retry_of if record.retry_of == run else None)
