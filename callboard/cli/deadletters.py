"""`callboard deadletters`: messages that could not be used, and what to do with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json

if TYPE_CHECKING:
    from ..store.deadletters import DeadLetters, Letter
    from .session import Session

group = typer.Typer(
    help="Messages that were set aside: look, send again, or drop.", no_args_is_help=True, rich_markup_mode=None
)
Ids = Annotated[list[int] | None, typer.Argument(metavar="ID...", help="Ids as `ls` shows them.")]
Id = Annotated[int, typer.Argument(metavar="ID", help="The id as `ls` shows it.")]
Every = Annotated[bool, typer.Option("--all", help="Every letter there is now.")]


def register(app: typer.Typer) -> None:
    """Adds the group."""
    app.add_typer(group, name="deadletters")


def _letters(session: Session) -> DeadLetters:
    from ..store.deadletters import DeadLetters

    return DeadLetters(session.bus, session.blobs)


@group.command("ls")
def ls(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=10_000, help="At most so many.")] = 50,
    before: Annotated[int | None, typer.Option("--before", metavar="ID", min=1, help="Only older ones.")] = None,
    json: Json = False,
) -> None:
    """List dead letters, the newest first, with the reason."""
    from .console import Output
    from .session import run
    from .wording import age, cut, size

    output = Output(json)

    async def work(session: Session) -> None:
        found = await _letters(session).page(limit=limit, before=before)
        if output.json:
            output.records([_as_json(one, body=False) for one in found])
            return
        rows = [
            (
                str(one.id),
                one.kind,
                age(one.letter.at),
                one.letter.subject,
                size(_size(one.letter)),
                cut(f"{one.letter.reason.code}: {one.letter.reason.message}", 80),
            )
            for one in found
        ]
        output.table(("ID", "KIND", "AGE", "SUBJECT", "SIZE", "REASON"), rows, "no dead letters")

    run(ctx, work)


def _size(letter: Any) -> int:
    return int(letter.ref.size) if letter.ref else len(letter.data)


def _as_json(one: Letter, *, body: bool) -> dict[str, Any]:
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(one.letter)
    if not body:
        fields.pop("data", None)
    return {"id": one.id, "kind": one.kind, "size": _size(one.letter)} | fields


@group.command("show")
def show(ctx: typer.Context, id: Id, json: Json = False) -> None:
    """Show one dead letter whole: where it was sent, why it was set aside, headers, body."""
    from .console import Output
    from .session import run
    from .wording import stamp

    output = Output(json)

    async def work(session: Session) -> None:
        one = await _letters(session).get(id)
        letter = one.letter
        if output.json:
            output.record(_as_json(one, body=True))
            return
        data = letter.data if letter.ref is None else await session.blobs.get(letter.ref)
        output.fields(
            [
                ("id", str(one.id)),
                ("kind", one.kind),
                ("set aside", stamp(letter.at)),
                ("subject", letter.subject),
                ("reason", f"{letter.reason.code}: {letter.reason.message}"),
                *((f"header {name}", text) for name, text in (letter.headers or {}).items()),
                ("body", data.decode(errors="backslashreplace")),
            ]
        )

    run(ctx, work)


@group.command("replay")
def replay(ctx: typer.Context, ids: Ids = None, every: Every = False, json: Json = False) -> None:
    """Publish dead letters again, as they were, and drop them. What is still wrong with one sets it aside again."""
    from .console import Output
    from .session import run

    output = Output(json)

    async def work(session: Session) -> None:
        letters = _letters(session)
        for id_ in await _chosen(letters, ids, every=every):
            sequence = await letters.replay(id_)
            if output.json:
                output.record({"id": id_, "sequence": sequence})
            else:
                output.line(f"{id_} replayed")

    run(ctx, work)


@group.command("drop")
def drop(ctx: typer.Context, ids: Ids = None, every: Every = False, json: Json = False) -> None:
    """Delete dead letters."""
    from .console import Output
    from .session import run

    output = Output(json)

    async def work(session: Session) -> None:
        letters = _letters(session)
        for id_ in await _chosen(letters, ids, every=every):
            await letters.drop(id_)
            if output.json:
                output.record({"id": id_})
            else:
                output.line(f"{id_} dropped")

    run(ctx, work)


async def _chosen(letters: DeadLetters, ids: list[int] | None, *, every: bool) -> list[int]:
    """The ids given, or all up to the newest at this moment."""
    from ..topics.errors import InvalidInput

    if bool(ids) == every:
        raise InvalidInput("name the ids of dead letters, or --all")
    if ids:
        return ids
    found: list[int] = []
    last = max((one.id for one in await letters.page(limit=1)), default=0)
    after = 0
    while after < last:
        page = [one.id for one in await letters.page(after, 500) if one.id <= last]
        if not page:
            break
        found += page
        after = page[-1]
    return found
