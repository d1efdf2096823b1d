"""`callboard agents`: which agents there are, and who serves them now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from .options import Json

if TYPE_CHECKING:
    from ..topics.bus import Bus
    from ..topics.messages import WorkerInfo
    from .session import Session


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("agents", short_help="List agents and who serves them.")(agents)


async def workers(bus: Bus) -> list[WorkerInfo]:
    """Every process that answers now, by id."""
    from ..topics.messages import WorkerInfo

    found = {}
    for message in await bus.gather(bus.subjects.worker):
        try:
            info = msgspec.json.decode(message.data, type=WorkerInfo)
        except msgspec.MsgspecError:
            continue
        found[info.id] = info
    return [found[name] for name in sorted(found)]


def agents(ctx: typer.Context, json: Json = False) -> None:
    """List the registered agents, their topics, and how many workers serve each at this moment."""
    from ..store.agents import AgentRegistry
    from .console import Output
    from .session import run as run_session
    from .wording import cut

    output = Output(json)

    async def work(session: Session) -> None:
        infos = await AgentRegistry(session.bus).all()
        present = await workers(session.bus)
        serving = {
            info.name: [one.id for one in present if info.name in one.agents and not one.draining] for info in infos
        }
        if output.json:
            output.records([msgspec.to_builtins(info) | {"workers": serving[info.name]} for info in infos])
            return
        rows = [
            (
                info.name,
                ", ".join(info.topics) or "-",
                info.version or "-",
                str(len(serving[info.name])),
                cut(info.description, 80),
            )
            for info in infos
        ]
        none = "no agent is registered: start a worker (callboard worker MODULE)"
        output.table(("AGENT", "TOPICS", "VERSION", "WORKERS", "DESCRIPTION"), rows, none)

    run_session(ctx, work)
