"""Agents that are registered, and the workers that live."""

from __future__ import annotations

import logging

import msgspec
from fastapi import APIRouter

from ...store.agents import AgentRegistry
from ...topics.messages import WorkerInfo
from .. import models as out
from .. import translate
from ..desk import At, Desk

log = logging.getLogger(__name__)

router = APIRouter(tags=["agents"])

_ANSWER_S = 0.3
_decode = msgspec.json.Decoder(WorkerInfo).decode


@router.get("/agents", response_model=out.AgentList, summary="Agents and live workers")
async def agents(desk: At, workers: bool = True) -> out.AgentList:
    """`workers=false` saves the 0.3 s in which the workers are asked."""
    infos = await AgentRegistry(desk.link.bus).all()
    live = await _live(desk) if workers else []
    return out.AgentList(
        agents=[translate.agent(info, live) for info in infos], workers=[translate.worker(one) for one in live]
    )


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
