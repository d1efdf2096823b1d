"""The event stream of a run or of a whole tree."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from ...topics.errors import NotFound
from ..desk import At, RunPath
from ..errors import InvalidRequest
from ..sse.block import KINDS, Kinds
from ..sse.position import START, WHOLE, Position, parse
from ..sse.stream import EventStream
from ..strict import StrictRoute

router = APIRouter(tags=["runs"], route_class=StrictRoute)

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
    204: {"description": "All events were seen and the run has ended: do not connect again"},
}


@router.get("/runs/{run}/events", summary="Watch a run", response_class=Response, responses=_STREAM)
async def events(
    run: RunPath,
    desk: At,
    after: Annotated[str | None, Query(description="Continue after the event with this id")] = None,
    kinds: Annotated[str | None, Query(description=f"Only these, separated by commas: {', '.join(KINDS)}")] = None,
    tree: Annotated[bool, Query(description="The whole tree that the run belongs to")] = False,
    follow: Annotated[bool, Query(description="false: end at the newest event instead of waiting for more")] = True,
    last_event_id: Annotated[str | None, Header(description="Sent by browsers when they connect again")] = None,
) -> Response:
    """The log, then the live events, joined without gap or double. Ends with `event: end` once the run (the tree) has
    ended. The id of each event is where a client continues; a comment comes after every 15 s of silence."""
    position = _position(last_event_id, after)
    chosen = _kinds(kinds)
    if await desk.link.log.load_current(run) is None:
        raise NotFound(f"there is no run {run}", run=run)
    hub = await desk.hubs.acquire(run, tree=tree)
    end = hub.ending.at
    if last_event_id and end is not None and position >= (end, WHOLE):
        desk.hubs.release(hub)
        return Response(status_code=204)
    return EventStream(
        desk.hubs, hub, position, kinds=chosen, follow=follow, ping_s=desk.settings.ping_s,
        sent=desk.metrics.sse_events.inc,
    )  # fmt: skip


def _position(header: str | None, parameter: str | None) -> Position:
    """The header wins: a browser that connects again repeats the URL it began with."""
    text = header or parameter
    return START if not text else parse(text)


def _kinds(text: str | None) -> Kinds | None:
    if text is None:
        return None
    chosen = frozenset(part.strip() for part in text.split(",") if part.strip())
    unknown = sorted(chosen - frozenset(KINDS))
    if unknown or not chosen:
        raise InvalidRequest(f"kinds {text[:80]!r}: use some of {', '.join(KINDS)}")
    return chosen
