"""Schedules: tasks that are given again and again, or once at a given time."""

from __future__ import annotations

import asyncio
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response

from ...store.schedules import Schedules
from ...topics.errors import NotFound
from ...topics.schedules import Schedule
from ...topics.subjects import require_token
from .. import scheduled as out
from ..desk import At, Desk
from ..strict import StrictRoute, raw_field

router = APIRouter(tags=["schedules"], route_class=StrictRoute)


def _name(name: str) -> str:
    return require_token("schedule", name)


Name = Annotated[str, Depends(_name)]


def _schedules(desk: Desk) -> Schedules:
    return Schedules(desk.link.bus, desk.blobs)


@router.get("/schedules", response_model=out.ScheduleList, summary="List schedules")
async def list_schedules(desk: At) -> out.ScheduleList:
    """By name, from the log, each with its next time and its last run."""
    schedules = _schedules(desk)
    found = await schedules.all()
    if not found:
        return out.ScheduleList(schedules=[])
    now = await schedules.now()
    outlooks = await asyncio.gather(*(schedules.outlook(one, now) for one in found))
    return out.ScheduleList(schedules=[out.shown(one, outlook) for one, outlook in zip(found, outlooks, strict=True)])


@router.post("/schedules", status_code=201, response_model=out.ScheduleOut, summary="Create a schedule")
async def create(asked: out.ScheduleCreate, request: Request, response: Response, desk: At) -> out.ScheduleOut:
    """409 when there is one of this name. It fires from now on."""
    schedule = await _put(desk, asked.name, asked, request, overwrite=False)
    response.headers["location"] = f"/schedules/{quote(schedule.name, safe='')}"
    return await _shown(desk, schedule)


@router.put("/schedules/{name}", response_model=out.ScheduleOut, summary="Create or replace a schedule",
            responses={201: {"model": out.ScheduleOut, "description": "There was none of this name"}})  # fmt: skip
async def put(name: Name, asked: out.SchedulePut, request: Request, response: Response, desk: At) -> out.ScheduleOut:
    """What one of this name would have fired is off; the new one fires from now on."""
    try:
        await _schedules(desk).require(name)
    except NotFound:
        response.status_code = 201
    return await _shown(desk, await _put(desk, name, asked, request, overwrite=True))


async def _put(desk: Desk, name: str, asked: out.SchedulePut, request: Request, *, overwrite: bool) -> Schedule:
    return await _schedules(desk).put(
        name, await raw_field(request, "input"),
        cron=asked.cron, zone=asked.zone, every_s=asked.every_s, at=asked.at, topic=asked.topic, agent=asked.agent,
        thread=asked.thread, policy=asked.policy, metadata=asked.metadata, missed=asked.missed, paused=asked.paused,
        overwrite=overwrite,
    )  # fmt: skip


@router.get("/schedules/{name}", response_model=out.ScheduleOut, summary="One schedule")
async def show(name: Name, desk: At) -> out.ScheduleOut:
    """From the log."""
    return await _shown(desk, await _schedules(desk).get(name))


async def _shown(desk: Desk, schedule: Schedule) -> out.ScheduleOut:
    return out.shown(schedule, await _schedules(desk).outlook(schedule))


@router.post("/schedules/{name}/pause", response_model=out.ScheduleOut, summary="Pause a schedule")
async def pause(name: Name, desk: At) -> out.ScheduleOut:
    """It fires no more until it is resumed. Idempotent."""
    return await _shown(desk, await _schedules(desk).pause(name))


@router.post("/schedules/{name}/resume", response_model=out.ScheduleOut, summary="Resume a schedule")
async def resume(name: Name, desk: At) -> out.ScheduleOut:
    """It fires from now on; what was due meanwhile is not made up. Idempotent."""
    return await _shown(desk, await _schedules(desk).resume(name))


@router.delete("/schedules/{name}", status_code=204, summary="Remove a schedule")
async def remove(name: Name, desk: At) -> Response:
    """Its runs stay."""
    await _schedules(desk).remove(name)
    return Response(status_code=204)
