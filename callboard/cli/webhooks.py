"""`callboard webhooks`: HTTP receivers that are told what happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json
from .roles import EndWithStdin

if TYPE_CHECKING:
    from ..runtime.host import Host
    from ..runtime.lease import LeaseKeeper
    from ..runtime.process import Shutdown
    from ..topics.bus import Bus
    from ..topics.messages import Webhook
    from .console import Output
    from .session import Session

group = typer.Typer(
    help="HTTP receivers that are told what happens: add, look, change, test, remove.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The webhook's name.")]
Events = Annotated[
    list[str] | None,
    typer.Option("--events", metavar="TYPES", help="Event types, by commas; run.* and * too. Else what waits."),
]
Secret = Annotated[
    str | None, typer.Option("--secret", metavar="WHSEC", help="Key of the signatures: whsec_ and base64.")
]
Description = Annotated[str | None, typer.Option("--description", metavar="TEXT", help="For people.")]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    app.add_typer(group, name="webhooks")


def _events(given: Sequence[str] | None) -> list[str] | None:
    return None if given is None else [word.strip() for text in given for word in text.split(",") if word.strip()]


@group.command("add")
def add(
    ctx: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where events are sent: https://… or http://…")],
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Its name; else one is made.")] = None,
    events: Events = None,
    secret: Secret = None,
    description: Description = None,
    json: Json = False,
) -> None:
    """Tell a receiver of what happens from now on. Prints the name, and the key of the signatures, which is not shown
    again."""
    from .console import Output
    from .session import run

    output = Output(json)

    async def work(session: Session) -> None:
        from ..store.webhooks import WAITING, Webhooks

        chosen = _events(events)
        webhook = await Webhooks(session.bus).add(
            url, name=name, events=WAITING if chosen is None else chosen, secret=secret, description=description or ""
        )
        if output.json:
            output.record(_as_json(webhook, 0) | {"secret": webhook.secret})
        else:
            output.fields([("name", webhook.name), ("secret", webhook.secret)])

    run(ctx, work)


def _as_json(webhook: Webhook, waiting: int) -> dict[str, Any]:
    from ..store.webhooks import masked

    return {
        "name": webhook.name, "url": webhook.url, "events": webhook.events, "secret": masked(webhook.secret),
        "paused": webhook.paused, "description": webhook.description, "created_at": webhook.created_at,
        "waiting": waiting,
    }  # fmt: skip


@group.command("ls")
def ls(ctx: typer.Context, json: Json = False) -> None:
    """List webhooks by name, with how many events are on their way to each."""
    from .console import Output
    from .session import run

    output = Output(json)

    async def work(session: Session) -> None:
        from ..store.webhooks import Webhooks

        webhooks = Webhooks(session.bus)
        found, waiting = await webhooks.all(), await webhooks.waiting()
        _show(output, [_as_json(one, waiting.get(one.name, 0)) for one in found])

    run(ctx, work)


def _show(output: Output, found: list[dict[str, Any]]) -> None:
    if output.json:
        output.records(found)
        return
    rows = [
        (
            one["name"],
            "paused" if one["paused"] else "active",
            str(one["waiting"]),
            one["secret"],
            ",".join(one["events"]),
            one["url"],
        )
        for one in found
    ]
    output.table(("NAME", "STATE", "WAITING", "SECRET", "EVENTS", "URL"), rows, "no webhooks")


@group.command("set")
def set_(
    ctx: typer.Context,
    name: Name,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="Another receiver.")] = None,
    events: Events = None,
    secret: Secret = None,
    description: Description = None,
    paused: Annotated[
        bool | None, typer.Option("--pause/--resume", help="Keep its events back, or send them again.")
    ] = None,
    json: Json = False,
) -> None:
    """Change what is given. Events that wait while it is paused are sent when it is resumed."""
    from .console import Output
    from .session import run

    output = Output(json)

    async def work(session: Session) -> None:
        from ..store.webhooks import Webhooks

        webhook = await Webhooks(session.bus).change(
            name, url=url, events=_events(events), secret=secret, description=description, paused=paused
        )
        _show(output, [_as_json(webhook, (await Webhooks(session.bus).waiting()).get(name, 0))])

    run(ctx, work)


@group.command("test")
def try_(ctx: typer.Context, name: Name, json: Json = False) -> None:
    """Send it an event of type webhook.test; prints the id under which that arrives."""
    from .console import Output
    from .session import run

    output = Output(json)

    async def work(session: Session) -> None:
        from ..store.webhooks import Webhooks

        id_ = await Webhooks(session.bus).test(name)
        if output.json:
            output.record({"name": name, "id": id_})
        else:
            output.line(id_)

    run(ctx, work)


@group.command("rm")
def rm(ctx: typer.Context, name: Name, json: Json = False) -> None:
    """Remove a webhook, with the events that are on their way to it."""
    from .console import Output
    from .session import run

    output = Output(json)

    async def work(session: Session) -> None:
        from ..store.webhooks import Webhooks

        await Webhooks(session.bus).remove(name)
        if output.json:
            output.record({"name": name})
        else:
            output.line(f"{name} removed")

    run(ctx, work)


@group.command("run")
def run_(ctx: typer.Context, end_with_stdin: EndWithStdin = False) -> None:
    """Deliver webhooks in a process of its own, as coordinators do unless told --no-webhooks."""
    from ..actors.webhooks import WebhookActor, WebhookSettings
    from .environment import load
    from .hosting import host, place, run_role
    from .session import globals_of

    where, settings = place(globals_of(ctx)), load(WebhookSettings)

    def populate(bus: Bus, found: Host, _: LeaseKeeper | None) -> str:
        found.add(lambda: WebhookActor(bus, settings))
        return "delivers webhooks "

    async def main(shutdown: Shutdown) -> int | None:
        return await host("webhooks", where, shutdown, populate)

    code = run_role("webhooks", globals_of(ctx), where, main, end_with_stdin=end_with_stdin)
    if code:
        raise typer.Exit(code)
