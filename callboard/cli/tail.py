"""`callboard tail`: what happens, as it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from .options import Json

if TYPE_CHECKING:
    from .history import Item
    from .session import Session


class _Put(Protocol):
    def __call__(self, item: Item, *, with_run: bool) -> None: ...


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("tail", short_help="Show events as they happen.")(tail)


def tail(
    ctx: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="One run: its history, then live.")] = None,
    tree: Annotated[bool, typer.Option("--tree", help="The whole tree that the run is the root of.")] = False,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", metavar="KIND", help="Only this kind; repeatable.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on after the end of the run.")] = False,
    json: Json = False,
) -> None:
    """Show events as they happen: of one run with its history, or of all runs from now on.

    With RUN it ends when the run has ended; without, or with -f, Ctrl-C ends it."""
    from .console import Output
    from .history import show
    from .session import run as run_session

    output = Output(json)
    wanted = frozenset(kind or ())

    def put(item: Item, *, with_run: bool) -> None:
        if not wanted or item.kind in wanted:
            show(output, item, with_run=with_run)

    async def work(session: Session) -> None:
        if run is None:
            await _all(session, put)
        else:
            await _one(session, run, put, tree=tree, follow=follow)

    run_session(ctx, work)


async def _all(session: Session, put: _Put) -> None:
    from .follow import follow_all
    from .history import Reader

    reader = Reader()
    async for page in follow_all(session.bus):
        for stored in page:
            for item in reader.items(stored):
                put(item, with_run=True)


async def _one(session: Session, run: str, put: _Put, *, tree: bool, follow: bool) -> None:
    from ..topics.ids import require_run_id
    from ..topics.messages import RunRecord
    from .follow import follow_log
    from .history import Reader

    await session.log.require(require_run_id(run))
    subjects = session.bus.subjects
    reader = Reader()
    async for page in follow_log(session.bus, subjects.tree(run) if tree else subjects.log(run)):
        for stored in page:
            for item in reader.items(stored):
                put(item, with_run=tree)
                ended = isinstance(item.data, RunRecord) and item.data.terminal and item.run == run
                if ended and not follow:
                    return
