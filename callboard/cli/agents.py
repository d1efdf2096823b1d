"""`callboard agents`: which agents there are, in which versions, and who serves them now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from .options import Json

if TYPE_CHECKING:
    from ..store.agents import Registrations
    from ..store.served import ServedVersion
    from ..topics.bus import Bus
    from ..topics.messages import AgentInfo, WorkerInfo
    from .session import Session

Name = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's name.")]
group = typer.Typer(help="List agents and who serves them.", rich_markup_mode=None)


def register(app: typer.Typer) -> None:
    """Adds the group."""
    app.add_typer(group, name="agents", short_help="List agents, their versions, and who serves them.")


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


@group.callback(invoke_without_command=True)
def agents(ctx: typer.Context, json: Json = False) -> None:
    """List the registered agents with their topics: each version, how many workers serve it at this moment, and how
    many runs that have not ended are pinned to it.

    New runs follow the version in the agent's first line. Where versions pin their runs, the log is read for them."""
    from ..store.agents import AgentRegistry
    from ..store.served import served
    from .console import Output
    from .session import run as run_session

    if ctx.invoked_subcommand is not None:
        return
    output = Output(json)

    async def work(session: Session) -> None:
        found = await AgentRegistry(session.bus).registrations()
        pinned = await _pinned(session.bus, found)
        present = await workers(session.bus)
        versions = {name: served(name, found, present, pinned.get(name, {})) for name in found.current}
        if output.json:
            output.records([_shown(info, versions[name]) for name, info in found.current.items()])
            return
        rows = [row for name, info in found.current.items() for row in _rows(info, versions[name])]
        none = "no agent is registered: start a worker (callboard worker MODULE)"
        output.table(("AGENT", "TOPICS", "VERSION", "WORKERS", "PINNED", "DESCRIPTION"), rows, none)

    run_session(ctx, work)


async def _pinned(bus: Bus, found: Registrations) -> dict[str, dict[str, int]]:
    """By agent and version. Without a version that pins its runs there are none, and nothing is read."""
    from .listing import newest_runs

    if not any(info.pin for infos in found.versions.values() for info in infos):
        return {}
    counts: dict[str, dict[str, int]] = {}
    for one in await newest_runs(bus, lambda record: record.pin and not record.terminal, 10**9):
        of_agent = counts.setdefault(one.record.agent, {})
        of_agent[one.record.version] = of_agent.get(one.record.version, 0) + 1
    return counts


def _shown(info: AgentInfo, versions: list[ServedVersion]) -> dict[str, object]:
    serving = sorted(worker for one in versions for worker in one.workers)
    return {**msgspec.to_builtins(info), "workers": serving, "versions": msgspec.to_builtins(versions)}


def _rows(info: AgentInfo, versions: list[ServedVersion]) -> list[tuple[str, ...]]:
    from .wording import cut

    return [
        (
            info.name if one.current else "",
            (", ".join(info.topics) or "-") if one.current else "",
            one.version or "-",
            str(len(one.workers)),
            str(one.pinned) if one.pin or one.pinned else "-",
            cut(info.description, 80) if one.current else "",
        )
        for one in versions
    ]


@group.command("promote")
def promote(
    ctx: typer.Context,
    agent: Name,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="A version of it that is registered.")],
) -> None:
    """Have new runs follow another version of an agent: its topics, limits, retries, and whether they are pinned.

    For going back to an older version: a worker of it that starts does not do so by itself."""
    from ..store.agents import AgentRegistry
    from .console import note
    from .session import run as run_session

    async def work(session: Session) -> None:
        info = await AgentRegistry(session.bus).promote(agent, version)
        note(f"new runs of agent {info.name} follow version {info.version or '(none)'}")

    run_session(ctx, work)


@group.command("forget")
def forget(
    ctx: typer.Context,
    agent: Name,
    version: Annotated[
        str | None, typer.Argument(metavar="VERSION", help="A version that new runs do not follow; default: all of it.")
    ] = None,
) -> None:
    """Take a version of an agent, or the agent, from the list. Runs stay; a worker that starts registers it again."""
    from ..store.agents import AgentRegistry
    from .console import note
    from .session import run as run_session

    async def work(session: Session) -> None:
        await AgentRegistry(session.bus).forget(agent, version)
        note(f"agent {agent}{'' if version is None else f' version {version}'} is registered no more")

    run_session(ctx, work)
