"""What operators and their machines ask: alive, ready, figures."""

from __future__ import annotations

from importlib.metadata import version

import msgspec
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from ...store.projection import ProjectionError
from ...topics.errors import BrokerError
from ...topics.messages import WorkerInfo
from .. import models as out
from ..desk import At, Desk
from ..errors import ProjectionMissing
from ..strict import StrictRoute

router = APIRouter(tags=["operations"], route_class=StrictRoute)

_ANSWER_S = 0.2


@router.get("/healthz", response_model=out.Health, summary="Whether the process answers")
async def healthz() -> out.Health:
    """200 also while NATS is away."""
    return out.Health(version=version("callboard"))


@router.get("/readyz", response_model=out.Readiness, summary="Whether requests can be served",
            responses={503: {"model": out.Readiness, "description": "Not now; `reason` says why"}})  # fmt: skip
async def readyz(desk: At, response: Response) -> out.Readiness:
    """503 while NATS is away or the gateway shuts down. A missing read model is shown; only lists need it."""
    reason = "the gateway shuts down" if desk.hubs.closing.done() else desk.link.trouble
    if reason is not None:
        response.status_code = 503
    return out.Readiness(
        ready=reason is None, reason=reason, nats="connected" if desk.link.up else "away",
        projection=await desk.shelf.state(),
    )  # fmt: skip


@router.get("/metrics", summary="Figures in the Prometheus text format", response_class=Response,
            responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})  # fmt: skip
async def metrics(desk: At) -> Response:
    """Counted here, and what the read model and the broker say at this moment."""
    figures = desk.metrics
    figures.sse_clients.set(desk.hubs.clients)
    figures.sse_cache.set(desk.hubs.cached_bytes)
    figures.nats_up.set(desk.link.up)
    await _projection(desk)
    await _workers(desk)
    return Response(figures.text(), headers={"content-type": CONTENT_TYPE_LATEST})


async def _projection(desk: Desk) -> None:
    try:
        projection = await desk.shelf.projection()
        await projection.position()
        counts = await projection.counts()
    except (ProjectionMissing, ProjectionError):
        return
    desk.metrics.applied.set(projection.applied)
    desk.metrics.runs.clear()
    for status, number in counts.by_status.items():
        desk.metrics.runs.labels(status.value).set(number)
    if desk.link.up:
        await _lag(desk, projection.applied)


async def _workers(desk: Desk) -> None:
    """What the living processes say of themselves."""
    try:
        answers = await desk.link.bus.gather(desk.link.bus.subjects.worker, wait_s=_ANSWER_S)
    except BrokerError:
        return
    desk.metrics.refused.clear()
    desk.metrics.abandoned.clear()
    for answer in answers:
        try:
            info = msgspec.json.decode(answer.data, type=WorkerInfo)
        except msgspec.MsgspecError:
            continue
        if info.agents:
            desk.metrics.abandoned.labels(info.id).set(len(info.abandoned))
        for kind, number in info.refused.items():
            desk.metrics.refused.labels(info.id, kind).set(number)


async def _lag(desk: Desk, applied: int) -> None:
    bus = desk.link.bus
    try:
        info = await bus.api(f"STREAM.INFO.{bus.subjects.events}", timeout_s=1.0)
    except BrokerError:
        return
    if info is not None:
        desk.metrics.lag.set(max(0, int(info["state"]["last_seq"]) - applied))
