"""The long-running commands: coordinator, worker, gateway, projector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..actors.actor import Actor
    from ..gateway import GatewaySettings
    from ..runtime.host import Host
    from ..runtime.lease import LeaseKeeper
    from ..runtime.process import Shutdown
    from ..topics.bus import Bus
    from .hosting import Place
    from .loading import Found

EndWithStdin = Annotated[
    bool,
    typer.Option("--end-with-stdin", help="Stop when standard input closes: for whoever starts this as a child."),
]
ProjectionFile = Annotated[
    Path | None,
    typer.Option("--projection", metavar="FILE", help="The SQLite file. [env: CALLBOARD_PROJECTION]"),
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("coordinator", short_help="Own the state of runs.")(coordinator)
    app.command("worker", short_help="Carry out runs, host actors.")(worker)
    app.command("gateway", short_help="Serve HTTP.")(gateway)
    app.command("projector", short_help="Keep the read model.")(projector)


def _leave(code: int) -> None:
    if code:
        raise typer.Exit(code)


# -- coordinator ------------------------------------------------------------------------------------------------


def coordinator(
    ctx: typer.Context,
    webhooks: Annotated[
        bool, typer.Option("--webhooks/--no-webhooks", help="Deliver webhooks too; else: callboard webhooks run.")
    ] = True,
    end_with_stdin: EndWithStdin = False,
) -> None:
    """Own the state of runs, and deliver webhooks. Any number may run; each takes its share."""
    from ..actors.coordinator import Coordinator
    from ..actors.webhooks import WebhookActor, WebhookSettings
    from .environment import load
    from .hosting import host, place, run_role
    from .session import globals_of

    where, settings = place(globals_of(ctx)), load(WebhookSettings)

    def populate(bus: Bus, found: Host, _: LeaseKeeper | None) -> str:
        grace_s, unserved_s = found.settings.cancel_grace_s, found.settings.unserved_after_s
        found.add(lambda: Coordinator(bus, cancel_grace_s=grace_s, unserved_after_s=unserved_s))
        if webhooks:
            found.add(lambda: WebhookActor(bus, settings))
        return ""

    async def main(shutdown: Shutdown) -> int | None:
        return await host("coordinator", where, shutdown, populate)

    _leave(run_role("coordinator", globals_of(ctx), where, main, end_with_stdin=end_with_stdin))


# -- worker -----------------------------------------------------------------------------------------------------


def worker(
    ctx: typer.Context,
    modules: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE[:AGENT]...", help="A module or a file, and which agent or actor of it; all of it without."
        ),
    ],
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency", "-c", metavar="N", min=1, help="Runs at the same time. [env: CALLBOARD_CONCURRENCY]"
        ),
    ] = None,
    end_with_stdin: EndWithStdin = False,
) -> None:
    """Carry out the runs of agents, and host the actors, that the modules declare."""
    from .hosting import host, place, run_role
    from .loading import find
    from .logs import set_up
    from .session import globals_of

    set_up(globals_of(ctx).verbose)
    where = place(globals_of(ctx), concurrency=concurrency)
    found = find(modules)

    def populate(bus: Bus, one: Host, keeper: LeaseKeeper | None) -> str:
        assert keeper is not None
        return _populate(bus, one, keeper, found, where)

    async def main(shutdown: Shutdown) -> int | None:
        return await host("worker", where, shutdown, populate, leases=True)

    _leave(run_role("worker", globals_of(ctx), where, main, end_with_stdin=end_with_stdin))


def _populate(bus: Bus, host: Host, keeper: LeaseKeeper, found: Found, where: Place) -> str:
    """Adds what was found; gives what the process is said to do."""
    said = []
    if found.agents:
        host.add(_agent_worker(bus, host.id, keeper, found, where))
        said.append(f"serves agents {', '.join(agent.name for agent in found.agents)} ")
    for actor in found.actors:
        host.add(actor)
    if found.actors:
        said.append(f"hosts actors {', '.join(actor.__name__ for actor in found.actors)} ")
    return "and ".join(said)


def _agent_worker(bus: Bus, worker: str, keeper: LeaseKeeper, found: Found, where: Place) -> Callable[[], Actor]:
    from ..actors.worker import AgentWorker

    runtime = where.runtime

    def make() -> Actor:
        return AgentWorker(
            bus, found.agents, keeper, worker=worker, concurrency=runtime.concurrency, lease_s=runtime.lease_s
        )

    return make


# -- gateway ----------------------------------------------------------------------------------------------------


def gateway(
    ctx: typer.Context,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Address to listen on. [env: CALLBOARD_HOST]")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", "-p", metavar="PORT", min=0, max=65535, help="0 takes a free one. [env: CALLBOARD_PORT]"
        ),
    ] = None,
    projection: ProjectionFile = None,
    with_projector: Annotated[
        bool,
        typer.Option(
            "--projector/--no-projector", help="Keep the read model here, or leave it to `callboard projector`."
        ),
    ] = True,
    end_with_stdin: EndWithStdin = False,
) -> None:
    """Serve HTTP: the API, event streams, and the documentation of both at /docs."""
    from ..gateway import GatewaySettings
    from .environment import load
    from .hosting import place, run_role
    from .session import globals_of

    chosen = globals_of(ctx)
    where = place(chosen)
    settings = load(GatewaySettings, host=host, port=port, projection=projection)
    if "shutdown_grace_s" not in settings.model_fields_set:
        settings = settings.model_copy(update={"shutdown_grace_s": max(0.1, where.runtime.grace_s)})

    async def main(shutdown: Shutdown) -> int | None:
        return await _serve(settings, where, shutdown, with_projector=with_projector)

    _leave(run_role("gateway", chosen, where, main, end_with_stdin=end_with_stdin))


async def _serve(settings: GatewaySettings, where: Place, shutdown: Shutdown, *, with_projector: bool) -> int | None:
    from ..gateway import serve
    from .hosting import serving
    from .wording import masked

    def ready(url: str) -> None:
        serving(f"gateway at {url} on NATS {masked(where.broker.nats_url)}")

    stop = asyncio.Event()
    served = asyncio.create_task(serve(settings, where.broker, stop=stop, ready=ready), name="serve")
    beside = asyncio.create_task(_project(settings.projection, where, shutdown)) if with_projector else None
    told = asyncio.create_task(shutdown.wait(), name="told")
    try:
        await asyncio.wait((served, told), return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await served
    finally:
        told.cancel()
        if beside is not None:
            await _ended(beside, drained=shutdown.requested)
    return None


async def _ended(task: asyncio.Task[Any], *, drained: bool) -> None:
    """Waits for a task that has been told to end; one that has not, or is still connecting, is cancelled."""
    if drained:
        await asyncio.wait((task,), timeout=2.0)
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()


async def _project(path: Path, where: Place, shutdown: Shutdown, *, rebuild: bool = False) -> int | None:
    """Keeps the read model until told to stop."""
    from ..actors.projector import Projector
    from .hosting import host

    first = [rebuild]

    def populate(bus: Bus, found: Host, _: LeaseKeeper | None) -> str:
        def make() -> Actor:
            again, first[0] = first[0], False
            return Projector(bus, path, rebuild=again)

        found.add(make)
        return f"keeps {path} "

    return await host("projector", where, shutdown, populate)


# -- projector --------------------------------------------------------------------------------------------------


def projector(
    ctx: typer.Context,
    projection: ProjectionFile = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Empty it first and read the whole log again.")] = False,
    once: Annotated[bool, typer.Option("--once", help="End when all that is in the log now is applied.")] = False,
    end_with_stdin: EndWithStdin = False,
) -> None:
    """Keep the read model, a SQLite file that lists and filters need, and have runs looked at that stand still.

    With --once it prints the sequence that was reached and a digest of the content, which two files built from one log
    have in common."""
    from ..gateway import GatewaySettings
    from .environment import load
    from .hosting import place, run_role
    from .session import globals_of

    chosen = globals_of(ctx)
    where = place(chosen)
    path = load(GatewaySettings, projection=projection).projection

    async def main(shutdown: Shutdown) -> int | None:
        if once:
            await _project_once(path, where, rebuild=rebuild)
            return None
        return await _project(path, where, shutdown, rebuild=rebuild)

    _leave(run_role("projector", chosen, where, main, end_with_stdin=end_with_stdin))


async def _project_once(path: Path, where: Place, *, rebuild: bool) -> None:
    from ..store.projection import Projection, ProjectionFeed
    from .hosting import announce, connect

    bus = await connect(where.broker, "projector")
    try:
        projection = await Projection.open(path)
        try:
            if rebuild:
                await projection.reset()
            feed = ProjectionFeed(bus, projection)
            running = asyncio.create_task(feed.run(), name="feed")
            await _caught_up(bus, feed)
            await feed.stop()
            await running
            announce(f"{path} is at sequence {projection.applied}, digest {await projection.content_digest()}")
        finally:
            await projection.close()
    finally:
        await bus.close()


async def _caught_up(bus: Bus, feed: Any) -> None:
    info = await bus.api(f"STREAM.INFO.{bus.subjects.events}")
    goal = int((info or {}).get("state", {}).get("last_seq", 0))
    while True:
        await feed.lag()
        if feed.projection.applied >= goal and not feed.problem:
            return
        await asyncio.sleep(0.05)
