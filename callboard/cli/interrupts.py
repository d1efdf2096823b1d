"""`callboard interrupts`: what runs ask, and whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json, Run

if TYPE_CHECKING:
    from ..store.interrupts import Open
    from ..topics.messages import Escalated, RunRecord
    from .session import Session

group = typer.Typer(help="What runs ask: list it, pass it on.", no_args_is_help=True, rich_markup_mode=None)
Id = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="The interrupt; need not be given if only one is open.")
]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who does this; kept with it.")]
Comment = Annotated[str | None, typer.Option("--comment", metavar="TEXT", help="Kept with it, for whoever reads it.")]
_COLUMNS = ("RUN", "ID", "KIND", "AGE", "AGENT", "TO", "EXPIRES", "ANSWERS", "PAYLOAD")


def register(app: typer.Typer) -> None:
    """Adds the group."""
    app.add_typer(group, name="interrupts")


@group.command("ls")
def ls(
    ctx: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Only of this run and those below it.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=10_000, help="At most so many.")] = 200,
    json: Json = False,
) -> None:
    """List the open interrupts of all runs that wait for an answer, or of one run and all below it.

    Answer them with `callboard resume`."""
    from .console import Output
    from .session import run as run_session

    output = Output(json)

    async def work(session: Session) -> None:
        from ..store.interrupts import open_below, open_everywhere
        from ..topics.ids import require_run_id

        if run is None:
            found = await open_everywhere(session.bus, limit)
        else:
            found = (await open_below(session.bus, require_run_id(run)))[:limit]
        if output.json:
            output.records([described(one) for one in found])
        else:
            output.table(_COLUMNS, [_row(one) for one in found], "nothing is asked")

    run_session(ctx, work)


def described(found: Open) -> dict[str, Any]:
    """An open interrupt as JSON."""
    import msgspec

    record = found.record
    return {
        "run": record.id,
        "agent": record.agent,
        **msgspec.to_builtins(found.interrupt, builtin_types=(msgspec.Raw,)),
    }


def _row(found: Open) -> tuple[str, ...]:
    from .wording import age, cut, payload, stamp

    record, one = found
    return (
        record.id, cut(one.id, 40), one.kind, age(one.created_at), record.agent, cut(one.to or "", 30),
        stamp(one.expires_at) if one.expires_at else "", ", ".join(one.actions), payload(one.payload, 60),
    )  # fmt: skip


@group.command("show")
def show(ctx: typer.Context, run: Run, id: Id = None, json: Json = False) -> None:
    """Show what a run, or one below it, asks: the whole payload, what an answer has to be, who was asked."""
    from .console import Output
    from .session import run as run_session

    output = Output(json)

    async def work(session: Session) -> None:
        from ..store.interrupts import open_below
        from ..topics.ids import require_run_id

        for one in await open_below(session.bus, require_run_id(run)):
            if id in (None, one.interrupt.id):
                value = (await session.blobs.value(one.interrupt.payload)).decode()
                if output.json:
                    output.record(described(one))
                else:
                    output.fields(_fields(one, value))
                    output.line()

    run_session(ctx, work)


def _fields(found: Open, value: str) -> Sequence[tuple[str, str]]:
    import msgspec

    from .wording import stamp

    record, one = found
    steps = [_step(step) for step in one.escalated or ()]
    return [
        ("run", record.id), ("id", one.id), ("agent", record.agent), ("kind", one.kind), ("place", one.at),
        ("asked", stamp(one.created_at)), ("payload", value), ("answers", ", ".join(one.actions)),
        ("schema", msgspec.json.encode(one.schema).decode() if one.schema else ""), ("to", one.to or ""),
        ("expires", stamp(one.expires_at)), *(("passed on", step) for step in steps),
        *(("then to", f"{step.to or f'agent {step.agent}'} at {stamp(step.at)}") for step in one.escalations or ()),
    ]  # fmt: skip


def _step(step: Escalated) -> str:
    from .wording import stamp

    why = step.error or step.comment
    by = f" by {step.by}" if step.by else ""
    return f"{stamp(step.at)} to {step.to or f'agent {step.agent}'}{by}" + (f": {why}" if why else "")


@group.command("escalate")
def escalate(
    ctx: typer.Context,
    run: Run,
    id: Id = None,
    to: Annotated[str | None, typer.Option("--to", metavar="NAME", help="The person who is asked now.")] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="AGENT", help="The agent that is asked now; its result is the answer."),
    ] = None,
    comment: Comment = None,
    by: By = None,
    json: Json = False,
) -> None:
    """Pass an open interrupt on: to another person, or to an agent, whose result is the answer."""
    from .console import Output
    from .session import run as run_session

    output = Output(json)

    async def work(session: Session) -> None:
        record = await session.submitter.escalate(run, id or "", to=to, agent=agent, by=by or "", reason=comment)
        tell(output, record)

    run_session(ctx, work)


def tell(output: Any, record: RunRecord) -> None:
    """The run after a word to it."""
    open_ = [one.id for one in record.interrupts or ()]
    if output.json:
        output.record({"run": record.id, "status": record.status, "open": open_})
    else:
        output.line(str(record.status))
        for one in open_:
            output.line(f"open: {one}")
