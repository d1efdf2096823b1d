"""Agents that are registered, and the workers that live."""

from __future__ import annotations

import logging

import msgspec
from fastapi import APIRouter

from ...store.agents import AgentRegistry
from ...store.projection import ProjectionError
from ...store.served import served
from ...topics.messages import WorkerInfo
from .. import served as out
from ..desk import At, Desk
from ..strict import StrictRoute

log = logging.getLogger(__name__)

router = APIRouter(tags=["agents"], route_class=StrictRoute)

_ANSWER_S = 0.3
_decode = msgspec.json.Decoder(WorkerInfo).decode


@router.get("/agents", response_model=out.AgentList, summary="Agents and live workers")
async def agents(desk: At, workers: bool = True) -> out.AgentList:
    """Each with its versions. `workers=false` saves the 0.3 s in which the workers are asked. The numbers of pinned
    runs come from the read model, and are 0 while there is none."""
    found = await AgentRegistry(desk.link.bus).registrations()
    live = await _live(desk) if workers else []
    pinned = await _pinned(desk)
    return out.AgentList(
        agents=[
            out.agent(info, live, served(name, found, live, pinned.get(name, {})))
            for name, info in found.current.items()
        ],
        workers=[out.worker(one) for one in live],
    )


@router.post("/agents/{agent}/promote", response_model=out.AgentPromoted, summary="Have new runs follow a version")
async def promote(agent: str, desk: At, request: out.AgentPromote) -> out.AgentPromoted:
    """A version that is registered: for going back to an older one, whose workers do not do so by themselves."""
    info = await AgentRegistry(desk.link.bus).promote(agent, request.version)
    return out.AgentPromoted(agent=info.name, version=info.version)


async def _pinned(desk: Desk) -> dict[str, dict[str, int]]:
    try:
        return await (await desk.shelf.projection()).pinned()
    except ProjectionError as error:
        log.info("pinned runs are not counted: %s", error)
        return {}


async def _live(desk: Desk) -> list[WorkerInfo]:
    bus = desk.link.bus
    found: dict[str, WorkerInfo] = {}
    for message in await bus.gather(bus.subjects.worker, wait_s=_ANSWER_S):
        try:
            info = _decode(message.data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("an answer on %s is not a worker's: %s", bus.subjects.worker, error)
            continue
        found[info.id] = info
    return sorted(found.values(), key=lambda info: info.id)
