"""Checkpoints of runs and what they hold: look, compare, label, prune, weigh."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import JSONResponse

from ...store.checkpoints import Marks, Saved
from ...store.projection import RunFilter
from ...store.size import Scale
from ...store.threads import Threads
from ...topics.errors import NotFound
from .. import stated as out
from ..desk import At, Desk, RunPath
from ..strict import StrictRoute
from .threads import ThreadPath

router = APIRouter(tags=["state"], route_class=StrictRoute)

Word = Annotated[str, Path(min_length=1, max_length=128, description="A checkpoint's id, or a label")]
Namespace = Annotated[str, Query(max_length=500, description="A subgraph's path; empty for the run's own state")]
_THREAD_RUNS = 500


@router.get("/runs/{run}/checkpoints", response_model=out.CheckpointPage, summary="The checkpoints of a run")
async def checkpoints(
    run: RunPath,
    desk: At,
    namespace: Namespace = "",
    before: Annotated[
        str | None, Query(pattern="^[0-9]{1,19}$", description="Only those before this checkpoint's id")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500, description="Rows of a page")] = 50,
) -> out.CheckpointPage:
    """The newest first, from the log. What a page costs does not depend on how many there are."""
    await desk.link.log.require(run)
    store = desk.checkpoints
    found = await store.history(run, before=before, limit=limit, namespace=namespace)
    marks = await store.labels.of(run)
    shown = [out.checkpoint(saved, marks) for saved in found]
    return out.CheckpointPage(checkpoints=shown, next=found[-1].id if len(found) == limit else None)


@router.get("/runs/{run}/state", response_model=out.StateOut, summary="The state of a run", response_class=JSONResponse)
async def state(
    run: RunPath,
    desk: At,
    checkpoint: Annotated[
        str | None, Query(min_length=1, max_length=128, description="A checkpoint's id, or a label")
    ] = None,
    namespace: Namespace = "",
) -> Response:
    """As of its newest checkpoint, or of the one that is named. Encrypted values are given only by a gateway that has
    the key."""
    await desk.link.log.require(run)
    return await _state(desk, run, checkpoint, namespace)


async def _state(desk: Desk, run: str, checkpoint: str | None, namespace: str = "") -> Response:
    store = desk.checkpoints
    if checkpoint is not None:
        saved: Saved | None = await store.reader.at(run, await store.labels.find(run, checkpoint))
    else:
        saved = await store.newest(run, namespace)
    if saved is None:
        where = f" in {namespace!r}" if namespace else ""
        raise NotFound(f"run {run} has no checkpoint{where}", run=run)
    found = await store.reader.state(saved)
    return Response(out.state(found, await store.labels.of(run)), media_type="application/json")


@router.patch("/runs/{run}/state", response_model=out.CheckpointOut, summary="Edit the state of a run")
async def update(run: RunPath, body: out.EditAsked, desk: At) -> out.CheckpointOut:
    """As if a node had done it, held against the schema that the agent has registered; answers with the new
    checkpoint. Only while nobody carries the run out: while it is queued, waits, or asks for something. What is at work
    or has ended is forked instead."""
    store = desk.checkpoints
    saved = await store.update_state(
        run, body.values, append=body.append, remove=body.remove, as_node=body.as_node or None
    )
    return out.checkpoint(saved, await store.labels.of(run))


@router.get("/threads/{thread}/state", response_model=out.StateOut, summary="The state of a thread",
            response_class=JSONResponse)  # fmt: skip
async def thread_state(thread: ThreadPath, desk: At) -> Response:
    """From which the next run of the same agent begins there: what the last run with checkpoints has left, or the
    newest fork."""
    tip = (await Threads(desk.link.bus).head(thread)).order.tip
    if tip is None:
        raise NotFound(f"thread {thread} has no state: no run with checkpoints has ended in it", thread=thread)
    return await _state(desk, tip.run, str(tip.checkpoint))


@router.get("/runs/{run}/checkpoints/{checkpoint}/diff/{other}", response_model=out.DiffOut,
            summary="What differs between two checkpoints", response_class=JSONResponse)  # fmt: skip
async def diff(
    run: RunPath,
    checkpoint: Word,
    other: Word,
    desk: At,
    other_run: Annotated[str | None, Query(max_length=64, description="The run of the second; else the same")] = None,
) -> Response:
    """What has to be done to the first to get the second, channel by channel."""
    old, marks = await _named(desk, run, checkpoint)
    new, other_marks = await _named(desk, other_run or run, other)
    found = await desk.checkpoints.difference(old, new)
    body = out.diff(out.checkpoint(old, marks), out.checkpoint(new, other_marks), found)
    return Response(body, media_type="application/json")


async def _named(desk: Desk, run: str, word: str) -> tuple[Saved, Marks]:
    await desk.link.log.require(run)
    store = desk.checkpoints
    return await store.reader.at(run, await store.labels.find(run, word)), await store.labels.of(run)


@router.get("/runs/{run}/labels", response_model=out.LabelsOut, summary="The labels of a run's checkpoints")
async def labels(run: RunPath, desk: At) -> out.LabelsOut:
    """Those that people have given, and what forks hold. A label that the code gave stands with its checkpoint."""
    await desk.link.log.require(run)
    return out.labels(run, await desk.checkpoints.labels.of(run))


@router.post(
    "/runs/{run}/checkpoints/{checkpoint}/label", response_model=out.CheckpointOut, summary="Label a checkpoint"
)
async def label(run: RunPath, checkpoint: Word, body: out.LabelAsked, desk: At) -> out.CheckpointOut:
    """From then on it is not pruned. A label that another checkpoint of the run has moves here."""
    await desk.link.log.require(run)
    labels = desk.checkpoints.labels
    saved = await labels.put(run, body.name, await labels.find(run, checkpoint))
    return out.checkpoint(saved, await labels.of(run))


@router.delete("/runs/{run}/labels/{label}", status_code=204, summary="Take a label away")
async def unlabel(run: RunPath, label: Annotated[str, Path(min_length=1, max_length=128)], desk: At) -> Response:
    """Of a checkpoint that a pruning has passed, nothing but its label kept it."""
    await desk.link.log.require(run)
    await desk.checkpoints.labels.drop(run, label)
    return Response(status_code=204)


@router.post("/runs/{run}/prune", response_model=out.PrunedOut, summary="Remove old checkpoints")
async def prune(run: RunPath, body: out.PruneAsked, desk: At) -> out.PrunedOut:
    """What labels, forks and the run itself still need stays."""
    await desk.link.log.require(run)
    return out.pruned(await desk.checkpoints.prune(run, body.choice, dry_run=body.dry_run))


@router.get("/runs/{run}/size", response_model=out.SizeOut, summary="How much room a run takes")
async def size(run: RunPath, desk: At) -> out.SizeOut:
    """From its whole log: what this costs grows with it."""
    await desk.link.log.require(run)
    return out.size(await Scale(desk.link.bus).run(run))


@router.get("/threads/{thread}/size", response_model=out.SizeOut, summary="How much room a thread takes")
async def thread_size(thread: ThreadPath, desk: At) -> out.SizeOut:
    """With all its runs, which the read model lists; a content that several of them refer to counts once."""
    runs = [run async for run in _runs_of(desk, thread)]
    return out.size(await Scale(desk.link.bus).thread(thread, runs))


async def _runs_of(desk: Desk, thread: str) -> AsyncIterator[str]:
    projection, cursor = await desk.shelf.projection(), None
    while True:
        page = await projection.runs(RunFilter(thread=thread), limit=_THREAD_RUNS, cursor=cursor)
        for row in page.items:
            yield row.id
        if (cursor := page.next) is None:
            return
