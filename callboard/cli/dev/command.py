"""The command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ...runtime.process import Shutdown

_PORTS_TRIED = 20


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("dev", short_help="Everything in one command, for development.")(dev)


def dev(
    ctx: typer.Context,
    target: Annotated[str, typer.Argument(metavar="FILE_OR_MODULE", help="Where the agents are.")],
    port: Annotated[
        int | None,
        typer.Option(
            "--port", "-p", metavar="PORT", min=0, max=65535, help="The gateway's; else the first free one from 8700."
        ),
    ] = None,
    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Where the gateway listens.")] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", metavar="N", min=1, help="Runs at the same time.")
    ] = None,
    state: Annotated[Path, typer.Option("--state", metavar="FOLDER", help="Where state is kept.")] = Path(".callboard"),
    reload: Annotated[
        bool, typer.Option("--reload/--no-reload", help="Start the worker anew when its files change.")
    ] = True,
) -> None:
    """Run everything for development: nats-server, coordinator, projector, gateway, and a worker that is reloaded.

    With NATS_URL that server is used, and none is started."""
    from ...runtime.process import run_process
    from ..environment import load
    from ..exits import exit_code
    from ..loading import check_exists
    from ..logs import set_up
    from ..session import globals_of

    chosen = globals_of(ctx)
    set_up(chosen.verbose)
    check_exists(target)
    from ...gateway.config import GatewaySettings
    from ...topics.config import BrokerSettings
    from .stage import Plan, Stage

    settings = load(GatewaySettings, host=host, port=port)
    broker = load(BrokerSettings, nats_url=chosen.nats_url, namespace=chosen.namespace)
    fixed = port is not None or "port" in settings.model_fields_set
    plan = Plan(
        target=target,
        nats_url=broker.nats_url if chosen.nats_url or os.environ.get("NATS_URL") else None,
        namespace=broker.namespace,
        host=settings.host,
        port=settings.port if fixed else free_port(settings.host, settings.port),
        concurrency=concurrency,
        state=_made(state),
        reload=reload,
        verbose=chosen.verbose,
    )

    async def main(shutdown: Shutdown) -> int | None:
        from ...topics.errors import CallboardError
        from ..app import report

        try:
            return await Stage(plan, shutdown).run()
        except CallboardError as error:
            report(error)
            return exit_code(error)

    code = run_process(main, 20.0)
    if code:
        raise typer.Exit(code)


def _made(state: Path) -> Path:
    from ...topics.errors import InvalidInput

    try:
        state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"the state folder {state} cannot be made: {error.strerror or error}") from error
    return state


def free_port(host: str, first: int) -> int:
    """The first of twenty ports that can be listened on; else 0, which takes any."""
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in range(first, first + _PORTS_TRIED):
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    return 0
