"""`callboard attention`: what waits for a person, and what can be done about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Json, Run

if TYPE_CHECKING:
    from ..store.attention import Item
    from ..store.submit import Submitter
    from .console import Output
    from .session import Session

group = typer.Typer(
    help="What waits for a person: list it, and deal with it.", invoke_without_command=True, rich_markup_mode=None
)
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=10_000, help="At most so many.")]
Letter = Annotated[str, typer.Argument(metavar="ID", help="The id as the list shows it, such as dead:17.")]
Anything = Annotated[str, typer.Argument(metavar="ID", help="A run's id, or that of a dead letter, such as dead:17.")]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    from .answers import resume
    from .effects import reconcile
    from .interrupts import escalate

    for name, command in (("resume", resume), ("escalate", escalate), ("reconcile", reconcile)):
        group.command(name)(command)
    app.add_typer(group, name="attention")


@group.callback()
def attention(ctx: typer.Context, limit: Limit = 200, json: Json = False) -> None:
    """List all that waits for a person, the newest first, with what can be done; a command below does it.

    Runs that failed for good, timed out, need an answer or were not heard of again; work that no worker takes; messages
    that could not be used."""
    if ctx.invoked_subcommand is not None:
        return
    from .console import Output
    from .session import run

    output = Output(json)

    async def work(session: Session) -> None:
        from ..store.attention import Attention

        items = await Attention(session.bus).items(limit)
        if output.json:
            output.records(items)
        else:
            _table(output, items)

    run(ctx, work)


def _table(output: Output, items: list[Item]) -> None:
    from .wording import age, cut

    rows = [
        (
            item.id,
            item.kind,
            age(item.since),
            item.agent or (f"@{item.topic}" if item.topic else item.subject or ""),
            ", ".join(item.actions).replace("start_worker", "start a worker"),
            cut(f"{item.code}: {item.reason}" if item.code else item.reason or "", 80),
        )
        for item in items
    ]
    output.table(("ID", "KIND", "AGE", "WHOSE", "DO", "WHY"), rows, "nothing waits for a person")


@group.command("retry")
def retry(ctx: typer.Context, run: Run, json: Json = False) -> None:
    """Retry a run that ended without a result, from where it failed. Prints the id of the run that goes on from it."""
    retry_run(ctx, run, json=json)


def retry_run(ctx: typer.Context, run: str, version: str = "", *, json: bool) -> None:
    """What `attention retry` and `runs retry` do."""
    from .console import Output, note
    from .session import run as run_session

    output = Output(json)

    async def work(session: Session) -> None:
        record = await session.submitter.retry(run, version)
        if record.retry_of != run:
            note(f"no coordinator answers: the command is stored, and run {run} is retried when one comes up")
            return
        if output.json:
            output.record({"run": record.id, "retry_of": run, "status": record.status})
        else:
            output.line(record.id)

    run_session(ctx, work)


@group.command("cancel")
def cancel(
    ctx: typer.Context,
    run: Run,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept with the run.")] = None,
    json: Json = False,
) -> None:
    """Cancel a run that needs an answer, with all that it has started."""

    async def act(submitter: Submitter) -> str:
        return str((await submitter.cancel(run, reason=reason))[0].status)

    _tell(ctx, run, act, json=json)


def _tell(ctx: typer.Context, run: str, act: Callable[[Submitter], Awaitable[str]], *, json: bool) -> None:
    from .console import Output
    from .session import run as run_session

    output = Output(json)

    async def work(session: Session) -> None:
        status = await act(session.submitter)
        if output.json:
            output.record({"run": run, "status": status})
        else:
            output.line(status)

    run_session(ctx, work)


@group.command("fail")
def fail(
    ctx: typer.Context,
    run: Run,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept with the run.")] = None,
    json: Json = False,
) -> None:
    """End a run as failed that needs an answer, or waits. Its parent is told; nobody is asked about it again."""

    async def act(submitter: Submitter) -> str:
        return str((await submitter.command(run, "fail", reason)).status)

    _tell(ctx, run, act, json=json)


@group.command("replay")
def replay(ctx: typer.Context, id: Letter, json: Json = False) -> None:
    """Publish a dead letter again, as it was, and drop it."""
    from .console import Output
    from .session import run

    output = Output(json)

    async def work(session: Session) -> None:
        from ..store.attention import letter_id
        from ..store.deadletters import DeadLetters

        number = letter_id(id)
        sequence = await DeadLetters(session.bus, session.blobs).replay(number)
        if output.json:
            output.record({"id": number, "sequence": sequence})
        else:
            output.line(f"{id} replayed")

    run(ctx, work)


@group.command("drop")
def drop(ctx: typer.Context, id: Anything, json: Json = False) -> None:
    """Take something from the list: a run that has ended stays as it is, a dead letter is deleted."""
    from .console import Output
    from .session import run

    output = Output(json)

    async def work(session: Session) -> None:
        from ..store.attention import DEAD, Attention, letter_id
        from ..store.deadletters import DeadLetters

        if id.startswith(DEAD):
            await DeadLetters(session.bus, session.blobs).drop(letter_id(id))
        else:
            await Attention(session.bus).drop(id)
        if output.json:
            output.record({"id": id})
        else:
            output.line(f"{id} dropped")

    run(ctx, work)
