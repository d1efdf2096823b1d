"""Messages that were set aside: look at them, replay them, drop them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from ...store.deadletters import DeadLetters
from ...topics.reads import MAX_SEQUENCE
from .. import models as out
from .. import translate
from ..desk import At, Desk
from ..strict import StrictRoute
from .runs import Limit

router = APIRouter(tags=["dead letters"], route_class=StrictRoute)

Id = Annotated[int, Path(ge=1, le=MAX_SEQUENCE)]


def _letters(desk: Desk) -> DeadLetters:
    return DeadLetters(desk.link.bus, desk.blobs)


@router.get("/deadletters", response_model=out.DeadLetterPage, summary="List dead letters")
async def list_letters(
    desk: At, limit: Limit = 50, before: Annotated[int | None, Query(ge=1, le=MAX_SEQUENCE)] = None
) -> out.DeadLetterPage:
    """Newest first."""
    found = await _letters(desk).page(limit=limit, before=before)
    more = found[-1].id if len(found) == limit else None
    return out.DeadLetterPage(letters=[translate.letter(one) for one in found], next=more)


@router.get("/deadletters/{id}", response_model=out.DeadLetterOut, summary="One dead letter")
async def show(id: Id, desk: At) -> out.DeadLetterOut:  # the name in the path
    """With the body, the headers and the reason."""
    return translate.letter(await _letters(desk).get(id))


@router.post("/deadletters/{id}/replay", response_model=out.Replayed, summary="Replay a dead letter")
async def replay(id: Id, desk: At) -> out.Replayed:
    """Publishes the message again, as it was, and drops the letter."""
    return out.Replayed(id=id, sequence=await _letters(desk).replay(id))


@router.delete("/deadletters/{id}", status_code=204, summary="Drop a dead letter")
async def drop(id: Id, desk: At) -> Response:
    """Deletes it."""
    await _letters(desk).drop(id)
    return Response(status_code=204)
