"""Threads: long-lived contexts with a history of messages that runs share."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request, Response

from ...store.projection import RunFilter
from ...store.threads import Threads
from ...topics.errors import NotFound
from ...topics.messages import ThreadMessage
from ...topics.reads import MAX_SEQUENCE
from ...topics.subjects import require_token
from .. import models as out
from .. import threaded, translate
from ..desk import At, Desk
from ..errors import ProjectionMissing
from ..strict import StrictRoute, raw_field
from .runs import Limit, MinSequence, check_metadata

router = APIRouter(tags=["threads"], route_class=StrictRoute)


def _thread(thread: str) -> str:
    return require_token("thread", thread)


ThreadPath = Annotated[str, Depends(_thread)]


@router.get("/threads", response_model=out.ThreadPage, summary="List threads")
async def list_threads(
    desk: At, response: Response, limit: Limit = 50, cursor: str | None = None, min_sequence: MinSequence = 0
) -> out.ThreadPage:
    """Newest first, from the read model."""
    page = await (await desk.shelf.projection(min_sequence)).threads(limit=limit, cursor=cursor)
    response.headers["callboard-applied-sequence"] = str(page.applied)
    return out.ThreadPage(threads=[translate.thread(one) for one in page.items], next=page.next, applied=page.applied)


@router.post("/threads", status_code=201, response_model=out.ThreadOut, summary="Create a thread")
async def create(asked: out.ThreadCreate, response: Response, desk: At) -> out.ThreadOut:
    """With an id: creating it again with the same metadata gives the same thread, with others it is a conflict."""
    check_metadata(desk, asked.metadata)
    record = await Threads(desk.link.bus).create(asked.id, asked.metadata)
    response.headers["location"] = f"/threads/{quote(record.id, safe='')}"
    return translate.thread(record)


@router.get("/threads/{thread}", response_model=out.ThreadOut, summary="One thread")
async def show(thread: ThreadPath, desk: At) -> out.ThreadOut:
    """From the log; a thread that was only written to is known by the read model."""
    try:
        return translate.thread(await Threads(desk.link.bus).get(thread))
    except NotFound:
        row = await _row(desk, thread)
        if row is None:
            raise
        return row


async def _row(desk: Desk, thread: str) -> out.ThreadOut | None:
    try:
        found = await (await desk.shelf.projection()).thread(thread)
    except ProjectionMissing:
        return None
    return None if found is None else translate.thread(found)


@router.get("/threads/{thread}/runs", response_model=out.RunPage, summary="The runs of a thread")
async def runs(
    thread: ThreadPath, desk: At, limit: Limit = 50, cursor: str | None = None, min_sequence: MinSequence = 0
) -> out.RunPage:
    """Newest first, from the read model."""
    projection = await desk.shelf.projection(min_sequence)
    page = await projection.runs(RunFilter(thread=thread), limit=limit, cursor=cursor)
    return out.RunPage(runs=[translate.row(one) for one in page.items], next=page.next, applied=page.applied)


@router.get("/threads/{thread}/artifacts", response_model=threaded.ThreadArtifactPage,
            summary="The artifacts of a thread")  # fmt: skip
async def artifacts(
    thread: ThreadPath,
    desk: At,
    name: Annotated[str | None, Query(description="Only versions of this name")] = None,
    after: Annotated[int, Query(ge=0, le=MAX_SEQUENCE, description="Continue after this stream sequence")] = 0,
    limit: Limit = 100,
    min_sequence: MinSequence = 0,
) -> threaded.ThreadArtifactPage:
    """Every version with the run that made it, in order, from the read model."""
    projection = await desk.shelf.projection(min_sequence)
    return threaded.page(await projection.thread_artifacts(thread, name=name, after=after, limit=limit), limit)


@router.get("/threads/{thread}/messages", response_model=out.MessagePage, summary="The messages of a thread")
async def messages(
    thread: ThreadPath, desk: At, after: Annotated[int, Query(ge=0, le=MAX_SEQUENCE)] = 0, limit: Limit = 100
) -> out.MessagePage:
    """In order, from the log."""
    found = await Threads(desk.link.bus).messages(thread, after, limit)
    more = found[-1].sequence if len(found) == limit else None
    return out.MessagePage(messages=[translate.message(one) for one in found], next=more)


@router.post(
    "/threads/{thread}/messages", status_code=201, response_model=out.MessagePosted, summary="Append a message"
)
async def append(thread: ThreadPath, asked: out.MessageCreate, request: Request, desk: At) -> out.MessagePosted:
    """Answers once the message is durable, with its place in the history. Content may be of any size."""
    content = await desk.blobs.payload(await raw_field(request, "content"))
    message = ThreadMessage(role=asked.role, content=content, run=asked.run)
    sequence = await Threads(desk.link.bus).append(thread, message)
    return out.MessagePosted(thread=thread, sequence=sequence)
