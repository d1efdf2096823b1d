"""What runs ask, how they are answered, and what is said to them."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request
from msgspec import UNSET, Raw, UnsetType

from ...store.interrupts import open_below
from ...store.log import decode_record
from ...store.projection import RunFilter
from ...topics.ids import new_token
from ...topics.messages import ASKING, Answer, Payload
from .. import asked as out
from ..desk import At, Desk, RunPath
from ..strict import StrictRoute, raw_field
from .runs import Limit, MinSequence

router = APIRouter(tags=["interrupts"], route_class=StrictRoute)


class _Value(msgspec.Struct):
    """The values of an answer as they were sent: numbers keep their digits."""

    value: Raw | UnsetType = UNSET
    update: Raw | UnsetType = UNSET
    answers: list[_Value] | None = None


_decode = msgspec.json.Decoder(_Value).decode


@router.get("/runs/{run}/interrupts", response_model=out.InterruptList, summary="What a run and those below it ask")
async def of_run(run: RunPath, desk: At) -> out.InterruptList:
    """From the log: the open interrupts of the run, and of all that it has started."""
    found = await open_below(desk.link.bus, run)
    return out.InterruptList(run=run, interrupts=[out.interrupt(one.record, one.interrupt) for one in found])


@router.get("/interrupts", response_model=out.InterruptPage, summary="What all runs ask")
async def everywhere(
    desk: At,
    limit: Limit = 50,
    agent: str | None = None,
    cursor: str | None = None,
    min_sequence: MinSequence = 0,
) -> out.InterruptPage:
    """From the read model: the runs that wait for an answer, `limit` of them on a page, each with all that it asks."""
    projection = await desk.shelf.projection(min_sequence)
    statuses = tuple(sorted(status.value for status in ASKING))
    filters = RunFilter(status=statuses, agent=agent)
    page = await projection.runs(filters, limit=limit, cursor=cursor, records=True)
    found = []
    for row in page.items:
        record = decode_record(row.record or b"")
        found += [out.interrupt(record, one) for one in record.interrupts or ()]
    return out.InterruptPage(interrupts=found, next=page.next, applied=page.applied)


@router.post("/runs/{run}/resume", status_code=202, response_model=out.RunResumed, summary="Answer what a run asks")
async def resume(run: RunPath, body: out.ResumeRequest, request: Request, desk: At) -> out.RunResumed:
    """Answers open interrupts of the run, or of runs below it: all of them, or none. The values are held against what
    was asked for before anything is accepted. The same answers again change nothing."""
    sent = _decode(await request.body())
    several = body.answers is not None
    given = body.answers if body.answers is not None else [body]
    raw = (sent.answers or []) if several else [sent]
    answers = [await _answer(desk, one, values) for one, values in zip(given, raw, strict=True)]
    record = await desk.submitter.resume(run, answers)
    left = [] if record.terminal else await open_below(desk.link.bus, run)
    return out.resumed(record, [out.interrupt(one.record, one.interrupt) for one in left])


async def _answer(desk: Desk, one: out.AnswerIn, sent: _Value) -> Answer:
    value = None if isinstance(sent.value, UnsetType) else await desk.blobs.payload(bytes(sent.value))
    update: Payload | None = None
    if one.update is not None and not isinstance(sent.update, UnsetType):
        update = await desk.blobs.payload(bytes(sent.update))
    return Answer(id=one.id or "", action=one.action, value=value, update=update, by=one.by, comment=one.comment)


@router.post("/runs/{run}/escalate", status_code=202, response_model=out.InterruptList, summary="Pass a question on")
async def escalate(run: RunPath, body: out.EscalateRequest, desk: At) -> out.InterruptList:
    """An open interrupt of the run, or of one below it, goes to another person, or to an agent: that one gets the
    payload as its input, and its result is the answer."""
    record = await desk.submitter.escalate(
        run, body.interrupt or "", to=body.to, agent=body.agent, by=body.by or "", reason=body.comment
    )
    return out.InterruptList(run=record.id, interrupts=[out.interrupt(record, one) for one in record.interrupts or ()])


@router.post("/runs/{run}/say", status_code=202, response_model=out.Said, summary="Say something to a run")
async def say(run: RunPath, body: out.SayRequest, request: Request, desk: At) -> out.Said:
    """A message to a run that has not ended, which goes on meanwhile: durable when this answers, heard once, at the
    next place where its code listens."""
    content = await desk.blobs.payload(await raw_field(request, "content"))
    key = body.key or new_token()
    record = await desk.submitter.say(run, content, by=body.by or "", key=key)
    return out.Said(run=run, status=record.status, key=key)
