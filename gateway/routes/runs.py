"""Runs: create, list, look at, wait for, cancel; their tree, their journal, their input and result."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Body, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from opentelemetry.trace import SpanKind
from pydantic import AwareDatetime

from ...store.errors import naming
from ...store.journal import Seen, entries
from ...store.projection import RunFilter
from ...store.submit import require_taken
from ...topics import crash, reads, trace
from ...topics.errors import Conflict, InvalidMessage, NotFound
from ...topics.messages import Payload, RunRecord, Status, Step, TaskRequest, encode
from .. import models as out
from .. import translate
from ..desk import At, Desk, RunPath
from ..errors import BadRequest, BodyTooLarge, InvalidRequest
from ..strict import StrictRoute, raw_field

router = APIRouter(tags=["runs"], route_class=StrictRoute)

_METADATA = '`key:value`, may be repeated; all must match. A key with a colon stands in quotes: `"a:b":value`'
_JSON = json.JSONDecoder()
Limit = Annotated[int, Query(ge=1, le=500, description="Rows of a page")]
MinSequence = Annotated[
    int,
    Query(ge=0, le=reads.MAX_SEQUENCE, description="Wait (at most 5 s) until the read model has applied this sequence"),
]


@router.post("/runs", status_code=202, response_model=out.RunCreated, summary="Create a run",
             responses={200: {"model": out.RunCreated, "description": "The run existed already"}})  # fmt: skip
async def create(
    task: out.RunCreate,
    request: Request,
    response: Response,
    desk: At,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> out.RunCreated:
    """Answers once the run is durable. The same idempotency key and request give the same run (`duplicate` is true)."""
    key = same_key(task.idempotency_key, idempotency_key)
    value = await raw_field(request, "input")
    check_metadata(desk, task.metadata)
    inbound = trace.parse(request.headers.get(trace.HEADER))
    with trace.span("POST /runs", inbound, SpanKind.SERVER, _spoken_of(task)) as span:
        asked = TaskRequest(
            agent=task.agent, topic=task.topic, run=task.run, key=key, thread=task.thread, policy=task.policy,
            metadata=task.metadata,
            run_at=task.run_at, deadline_s=task.deadline_s, wait_timeout_s=task.wait_timeout_s, priority=task.priority,
            trace=trace.traceparent() or (trace.text(inbound) if inbound else None),
        )  # fmt: skip
        try:
            reply = await desk.submitter.submit(asked, value)
            require_taken(reply)
        except Conflict:
            desk.metrics.submitted.labels("refused").inc()
            raise
        span.set_attribute("callboard.run", reply.run or "")
        span.set_attribute("callboard.duplicate", reply.duplicate)
    desk.metrics.submitted.labels("duplicate" if reply.duplicate else "created").inc()
    crash.point("gateway.before-answer")
    if reply.run is None or reply.status is None:
        raise InvalidMessage("the coordinator's answer names no run")
    response.headers["location"] = f"/runs/{reply.run}"
    response.status_code = 200 if reply.duplicate else 202
    return translate.created(reply)


def _spoken_of(task: out.RunCreate) -> dict[str, str]:
    """What the span of a request says."""
    wanted = {"callboard.agent": task.agent, "callboard.topic": task.topic, "callboard.thread": task.thread}
    http = {"http.request.method": "POST", "http.route": "/runs"}
    return http | {name: value for name, value in wanted.items() if value}


def same_key(in_body: str | None, in_header: str | None) -> str | None:
    """The idempotency key of a request, which may stand in two places. Raises BadRequest when they differ."""
    if in_body is not None and in_header is not None and in_body != in_header:
        raise BadRequest("idempotency_key in the body and the header Idempotency-Key differ: give one of them")
    return in_body if in_body is not None else in_header


def check_metadata(desk: Desk, metadata: dict[str, Any] | None) -> None:
    """Raises BodyTooLarge for metadata that a record cannot hold."""
    size = len(encode(metadata)) if metadata else 0
    limit = desk.link.bus.inline_limit
    if size > limit:
        raise BodyTooLarge(
            f"metadata has {size} bytes, at most {limit} are allowed: put large values into input", limit=limit
        )


@router.get("/runs", response_model=out.RunPage, summary="List runs")
async def list_runs(
    desk: At,
    response: Response,
    status: Annotated[list[Status] | None, Query(description="May be repeated")] = None,
    agent: str | None = None,
    topic: str | None = None,
    thread: str | None = None,
    parent: str | None = None,
    root: str | None = None,
    forked_from: Annotated[str | None, Query(description="Only forks of this run")] = None,
    metadata: Annotated[list[str] | None, Query(description=_METADATA)] = None,
    created_after: AwareDatetime | None = None,
    created_before: AwareDatetime | None = None,
    limit: Limit = 50,
    cursor: str | None = None,
    min_sequence: MinSequence = 0,
) -> out.RunPage:
    """Newest first, from the read model: `applied` says how much of the log the list reflects."""
    filters = RunFilter(
        status=tuple(status or ()), agent=agent, topic=topic, thread=thread, parent=parent, root=root,
        forked_from=forked_from,
        metadata=_pairs(metadata), created_after=created_after, created_before=created_before,
    )  # fmt: skip
    projection = await desk.shelf.projection(min_sequence)
    page = await projection.runs(filters, limit=limit, cursor=cursor)
    response.headers["callboard-applied-sequence"] = str(page.applied)
    return out.RunPage(runs=[translate.row(found) for found in page.items], next=page.next, applied=page.applied)


def _pairs(texts: list[str] | None) -> dict[str, str] | None:
    pairs: dict[str, str] = {}
    for text in texts or []:
        pair = _pair(text)
        if pair is None:
            raise InvalidRequest(
                f'metadata filter {text[:80]!r} must be key:value, or "key":value where the key has a colon'
            )
        if pairs.setdefault(*pair) != pair[1]:
            raise InvalidRequest(f"no run matches two values of {pair[0][:80]!r}: filter by one of them")
    return pairs or None


def _pair(text: str) -> tuple[str, str] | None:
    """The key is what stands before the first colon; or a JSON string, which may have colons of its own."""
    if not text.startswith('"'):
        key, colon, value = text.partition(":")
        return (key, value) if key and colon else None
    try:
        key, end = _JSON.raw_decode(text)
    except ValueError:
        return None
    return (key, text[end + 1 :]) if text[end : end + 1] == ":" else None


@router.get("/runs/{run}", response_model=out.Run, summary="One run")
async def show(run: RunPath, desk: At) -> out.Run:
    """From the log: as it is now."""
    found = await desk.link.log.require(run)
    return translate.run(found.record, found.sequence)


@router.get("/runs/{run}/tree", response_model=out.RunTree, summary="A run and its descendants")
async def tree(run: RunPath, desk: At) -> out.RunTree:
    """From the log, oldest first; each run names its parent."""
    records = _below(run, await desk.link.log.tree(run))
    if not records:
        raise NotFound(f"there is no run {run}", run=run)
    counts: dict[Status, int] = {}
    for record in records:
        counts[record.status] = counts.get(record.status, 0) + 1
    return out.RunTree(
        run=run, root=records[0].root, runs=[translate.summary(record) for record in records], counts=counts
    )


def _below(run: str, records: list[RunRecord]) -> list[RunRecord]:
    children: dict[str | None, list[str]] = {}
    for record in records:
        children.setdefault(record.parent, []).append(record.id)
    wanted, todo = {run}, [run]
    while todo:
        found = [child for child in children.get(todo.pop(), ()) if child not in wanted]
        wanted.update(found)
        todo += found
    return [record for record in records if record.id in wanted]


@router.get("/runs/{run}/wait", response_model=out.Run, summary="Wait for the end of a run",
            responses={202: {"model": out.Run, "description": "The run has not ended in this time"}})  # fmt: skip
async def wait(
    run: RunPath,
    desk: At,
    response: Response,
    timeout: Annotated[float, Query(ge=0, le=3600, description="Seconds, at most the gateway's limit")] = 30.0,
) -> out.Run:
    """200 with the run once it has ended; 202 with the run as it is when the time is up."""
    found = await desk.link.log.require(run)
    record, sequence = found.record, found.sequence
    limit = min(timeout, desk.settings.wait_limit_s)
    if not record.terminal and limit > 0:
        record = await desk.hubs.unless_closing(desk.submitter.wait(run, limit)) or record
        return _waited(record, None, response)
    return _waited(record, sequence, response)


def _waited(record: RunRecord, sequence: int | None, response: Response) -> out.Run:
    response.status_code = 200 if record.terminal else 202
    return translate.run(record, sequence)


@router.post("/runs/{run}/cancel", status_code=202, response_model=out.RunCanceled, summary="Cancel a run or a tree",
             responses={200: {"model": out.RunCanceled, "description": "The run has ended"}})  # fmt: skip
async def cancel(
    run: RunPath, desk: At, response: Response, request: Annotated[out.CancelRequest | None, Body()] = None
) -> out.RunCanceled:
    """Asks the run, and all that it has started, to stop at the next safe boundary; the answer shows the run after the
    request was taken, and names what it was meant for and is still alive. A run ends when all below it has ended."""
    asked = request or out.CancelRequest()
    record, alive = await desk.submitter.cancel(run, scope=asked.scope, action=asked.action, reason=asked.reason)
    ended = record.terminal or asked.scope == "children"
    response.status_code = 200 if ended and not alive else 202
    return translate.canceled(record, alive)


@router.get("/runs/{run}/steps", response_model=out.StepPage, summary="The journal of a run")
async def steps(
    run: RunPath,
    desk: At,
    after: Annotated[int, Query(ge=0, le=reads.MAX_SEQUENCE, description="Continue after this stream sequence")] = 0,
    limit: Limit = 500,
) -> out.StepPage:
    """Finished steps, children started, timers, in the order of the log. A page may exceed the limit by the entries of
    one message."""
    await desk.link.log.require(run)
    bus, found, seen = desk.link.bus, list[out.StepOut](), Seen()
    subject = bus.subjects.event(run, "step")
    while True:
        page, pending = await reads.page_after(bus, bus.subjects.events, subject, after, limit)
        for stored in page:
            after = stored.sequence
            found += _steps_in(stored, seen)
            if len(found) >= limit:
                return out.StepPage(steps=found, next=after)
        if not page or not pending:
            return out.StepPage(steps=found, next=None)


def _steps_in(stored: reads.Stored, seen: Seen) -> list[out.StepOut]:
    try:
        found = entries(stored)
    except InvalidMessage:
        return []  # not an entry: shown in the event stream, never as a step
    return [translate.step(stored, entry) for entry in found if isinstance(entry, Step) and seen.fresh(entry)]


@router.get("/runs/{run}/input", summary="The input of a run", response_class=JSONResponse)
async def input_of(run: RunPath, desk: At) -> Response:
    """The value as it was sent, of any size."""
    record = (await desk.link.log.require(run)).record
    return await _value(desk, record.input, "the input", run)


@router.get("/runs/{run}/result", summary="The result of a run", response_class=JSONResponse)
async def result_of(run: RunPath, desk: At) -> Response:
    """The value as the agent returned it, of any size; 404 while there is none."""
    record = (await desk.link.log.require(run)).record
    if record.result is None:
        raise NotFound(f"run {run} has no result: it is {record.status}", run=run, run_status=record.status)
    return await _value(desk, record.result, "the result", run)


async def _value(desk: Desk, payload: Payload, what: str, run: str) -> Response:
    with naming(what, run):
        data = await desk.blobs.value(payload)
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except msgspec.MsgspecError as error:
        raise InvalidMessage(f"the stored value is not JSON: {error}") from error
    return Response(data, media_type="application/json")
