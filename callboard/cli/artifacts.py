"""`callboard artifacts`: the named results of a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Json, Run

if TYPE_CHECKING:
    from .session import Session


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("artifacts", short_help="List or print the artifacts of a run.")(artifacts)


def artifacts(
    ctx: typer.Context,
    run: Run,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Print this one's content.")] = None,
    to: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the content to a file instead.")
    ] = None,
    json: Json = False,
) -> None:
    """List the artifacts of a run, or print the content of one, byte for byte."""
    from ..store.artifacts import Artifacts
    from ..topics.errors import InvalidInput
    from ..topics.ids import require_run_id
    from .console import Output, note
    from .session import run as run_session
    from .wording import size

    output = Output(json)
    if to is not None and name is None:
        raise InvalidInput("--output needs the NAME of an artifact")

    async def work(session: Session) -> None:
        await session.log.require(require_run_id(run))
        shelf = Artifacts(session.bus, session.blobs)
        if name is not None:
            artifact, content = await shelf.read(run, name)
            if output.json:
                output.record({"run": run, "artifact": artifact})
            elif to is None:
                sys.stdout.buffer.write(content)
                sys.stdout.buffer.flush()
            if to is not None:
                _write(to, content)
                note(f"{size(len(content))} written to {to}")
            return
        found = await shelf.list(run)
        if output.json:
            output.records([_without_content(artifact) for artifact in found])
            return
        rows = [(one.name, one.media_type, size(one.size), str(one.attempt), one.digest[:19]) for one in found]
        output.table(("NAME", "TYPE", "SIZE", "ATTEMPT", "DIGEST"), rows, f"run {run} has no artifacts")

    run_session(ctx, work)


def _write(path: Path, content: bytes) -> None:
    from ..topics.errors import InvalidInput

    try:
        path.write_bytes(content)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror or error}") from error


def _without_content(artifact: object) -> object:
    import msgspec

    return msgspec.structs.replace(artifact, text=None, base64=None)  # type: ignore[type-var]
