"""`callboard schedules`: tasks that are given again and again, or once at a given time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .options import Json, Metadata, PolicyOption, ThreadOption, Value

if TYPE_CHECKING:
    from ..store.schedules import Outlook, Schedules
    from ..topics.schedules import Schedule
    from .session import Session

group = typer.Typer(
    help="Tasks given again and again, or at a given time: add, look, pause, remove.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
Missed = Literal["once", "skip"]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    app.add_typer(group, name="schedules")


def _schedules(session: Session) -> Schedules:
    from ..store.schedules import Schedules

    return Schedules(session.bus, session.blobs)


@group.command("add")
def add(
    ctx: typer.Context,
    name: Name,
    value: Value = "null",
    cron: Annotated[
        str | None,
        typer.Option("--cron", metavar="EXPR", help="second minute hour day month weekday, or @daily and the like."),
    ] = None,
    zone: Annotated[str, typer.Option("--zone", metavar="ZONE", help="Time zone of --cron.")] = "UTC",
    every: Annotated[str | None, typer.Option("--every", metavar="TIME", help="An interval, as 30s, 5m or 2h.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="WHEN", help="Once: an ISO time (UTC without a zone), or 30s, 5m, 2h.")
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Give the task to a topic.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="AGENT", help="Give the task to an agent.")] = None,
    thread: ThreadOption = None,
    policy: PolicyOption = None,
    metadata: Metadata = None,
    missed: Annotated[
        Missed, typer.Option("--missed", help="What passed while nothing could fire: one run for all, or none.")
    ] = "once",
    paused: Annotated[bool, typer.Option("--paused", help="Define it, but do not let it fire yet.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the one that has this name.")] = False,
    json: Json = False,
) -> None:
    """Define a schedule: one of --cron, --every, --at, and one of --topic, --agent. Prints when it fires first."""
    from datetime import datetime, timedelta

    from . import values
    from .console import Output
    from .session import run

    data, labels, turn = values.json_input(value), values.metadata(metadata), values.policy(policy)
    every_s = None if every is None else values.span(every)
    when = None if at is None else values.moment(at)
    output = Output(json)

    async def work(session: Session) -> None:
        schedules = _schedules(session)
        moment = when if when is None or isinstance(when, datetime) else await schedules.now() + timedelta(seconds=when)
        schedule = await schedules.put(
            name, data, cron=cron, zone=zone, every_s=every_s, at=moment, topic=topic, agent=agent, thread=thread,
            policy=turn, metadata=labels, missed=missed, paused=paused, overwrite=replace,
        )  # fmt: skip
        await _tell(output, schedules, schedule)

    run(ctx, work)


async def _tell(output: Any, schedules: Schedules, schedule: Schedule) -> None:
    """One line on what the schedule will do."""
    from .wording import stamp

    outlook = await schedules.outlook(schedule)
    if output.json:
        output.record(_as_json(schedule, outlook))
    elif schedule.paused:
        output.line(f"{schedule.name} is paused")
    else:
        output.line(
            f"{schedule.name} fires next at {stamp(outlook.next)}" if outlook.next else f"{schedule.name} is over"
        )


def _as_json(schedule: Schedule, outlook: Outlook) -> dict[str, Any]:
    import msgspec

    fields = msgspec.structs.asdict(schedule)
    fields.pop("token")
    last = outlook.last
    gave = None if last is None else {"run": last.id, "status": last.status, "scheduled_for": _due(last.metadata)}
    return {**fields, "next": outlook.next, "last": gave}


def _due(metadata: dict[str, Any] | None) -> Any:
    return (metadata or {}).get("scheduled_for")


@group.command("ls")
def ls(ctx: typer.Context, json: Json = False) -> None:
    """List schedules by name: when they fire, for whom, the next time, the last run."""
    import asyncio

    from .console import Output
    from .session import run
    from .wording import stamp

    output = Output(json)

    async def work(session: Session) -> None:
        schedules = _schedules(session)
        found, now = await schedules.all(), await schedules.now()
        outlooks = await asyncio.gather(*(schedules.outlook(one, now) for one in found))
        pairs = list(zip(found, outlooks, strict=True))
        if output.json:
            output.records([_as_json(one, outlook) for one, outlook in pairs])
            return
        rows = [
            (
                one.name,
                one.spec,
                _target(one),
                "paused" if one.paused else stamp(outlook.next),
                "-" if outlook.last is None else f"{outlook.last.id} {outlook.last.status}",
            )
            for one, outlook in pairs
        ]
        output.table(("NAME", "WHEN", "FOR", "NEXT", "LAST"), rows, "no schedules")

    run(ctx, work)


def _target(schedule: Schedule) -> str:
    return f"agent {schedule.agent}" if schedule.agent else f"topic {schedule.topic}"


@group.command("show")
def show(ctx: typer.Context, name: Name, json: Json = False) -> None:
    """Show one schedule."""
    from .console import Output
    from .session import run
    from .wording import payload, stamp

    output = Output(json)

    async def work(session: Session) -> None:
        schedules = _schedules(session)
        one = await schedules.get(name)
        outlook = await schedules.outlook(one)
        if output.json:
            output.record(_as_json(one, outlook))
            return
        last = outlook.last
        output.fields(
            [
                ("name", one.name),
                ("when", one.spec),
                ("for", _target(one)),
                ("state", "paused" if one.paused else "active"),
                ("missed", "one run makes up for all" if one.missed == "once" else "skipped"),
                ("created", stamp(one.created_at)),
                ("counts from", stamp(one.since)),
                ("next", stamp(outlook.next)),
                ("last", "-" if last is None else f"{last.id} {last.status}, for {_due(last.metadata)}"),
                *((("thread", f"{one.thread} ({one.policy or 'enqueue'})"),) if one.thread else ()),
                *((f"metadata {key}", str(text)) for key, text in (one.metadata or {}).items()),
                ("input", payload(one.input)),
            ]
        )

    run(ctx, work)


@group.command("pause")
def pause(ctx: typer.Context, name: Name, json: Json = False) -> None:
    """Keep a schedule from firing until it is resumed."""
    from .console import Output
    from .session import run

    output = Output(json)

    async def work(session: Session) -> None:
        schedules = _schedules(session)
        await _tell(output, schedules, await schedules.pause(name))

    run(ctx, work)


@group.command("resume")
def resume(ctx: typer.Context, name: Name, json: Json = False) -> None:
    """Let a paused schedule fire again, from now on; what was due meanwhile is not made up."""
    from .console import Output
    from .session import run

    output = Output(json)

    async def work(session: Session) -> None:
        schedules = _schedules(session)
        await _tell(output, schedules, await schedules.resume(name))

    run(ctx, work)


@group.command("rm")
def rm(ctx: typer.Context, name: Name, json: Json = False) -> None:
    """Remove a schedule; the runs that it gave stay."""
    from .console import Output
    from .session import run

    output = Output(json)

    async def work(session: Session) -> None:
        await _schedules(session).remove(name)
        if output.json:
            output.record({"name": name})
        else:
            output.line(f"{name} removed")

    run(ctx, work)
