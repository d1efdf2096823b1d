"""`callboard replay`: the history of a run, read again from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .options import Json, Run

if TYPE_CHECKING:
    from .session import Session


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("replay", short_help="Print the history of a run.")(replay)


def replay(
    ctx: typer.Context,
    run: Run,
    tree: Annotated[bool, typer.Option("--tree", help="The whole tree that the run is the root of.")] = False,
    after: Annotated[int, typer.Option("--after", metavar="SEQUENCE", min=0, help="Only what follows it.")] = 0,
    json: Json = False,
) -> None:
    """Read the log of a run again and print its history: sequence, time, attempt, kind, content.

    Nothing is executed."""
    from ..topics.ids import require_run_id
    from .console import Output
    from .history import Reader, show
    from .session import run as run_session

    output = Output(json)

    async def work(session: Session) -> None:
        await session.log.require(require_run_id(run))
        pages = session.log.tree_history(run, after) if tree else session.log.history(run, after)
        reader = Reader()
        async for page in pages:
            for stored in page:
                for item in reader.items(stored):
                    show(output, item, with_run=tree)

    run_session(ctx, work)
