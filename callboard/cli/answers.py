"""`callboard resume` and `callboard say`: answers to what a run asks, and messages to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .interrupts import By, Comment, Id, tell
from .options import Json, Run

if TYPE_CHECKING:
    from ..topics.messages import Answer
    from .session import Session


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("resume")(resume)
    app.command("say")(say)


def resume(
    ctx: typer.Context,
    run: Run,
    answers: Annotated[
        list[str] | None, typer.Argument(metavar="[ID=JSON]...", help="Answers to interrupts by their ids.")
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", metavar="JSON", help="The answer; - reads it from standard input.")
    ] = None,
    approve: Annotated[bool, typer.Option("--approve", help="The payload is right as it is.")] = False,
    edit: Annotated[str | None, typer.Option("--edit", metavar="JSON", help="Approve this in its place.")] = None,
    reject: Annotated[bool, typer.Option("--reject", help="It is not to be.")] = False,
    update: Annotated[
        str | None, typer.Option("--update", metavar="JSON", help="An object of fields to set in the run's state.")
    ] = None,
    id: Id = None,
    comment: Comment = None,
    by: By = None,
    json: Json = False,
) -> None:
    """Answer what a run, or one below it, asks; the run goes on with that.

    `callboard resume RUN --approve`, `--value '{"ok": true}'`, or several at once: `review='"good"' size=3`. An answer
    that is not what was asked for is refused, and nothing is accepted then."""
    from ..topics.errors import InvalidInput
    from .console import Output
    from .session import run as run_session

    chosen = [name for name, given in _chosen(value, edit, approve=approve, reject=reject).items() if given]
    if len(chosen) + bool(answers) != 1:
        raise InvalidInput("give one of ID=JSON, --value, --approve, --edit and --reject")
    output = Output(json)

    async def work(session: Session) -> None:
        given = [await _by_id(session, text, by, comment) for text in answers or ()]
        if chosen:
            given = [await _by_option(session, chosen[0], value or edit, id, by, comment)]
        given = [await _with_update(session, one, update) for one in given]
        tell(output, await session.submitter.resume(run, given))

    run_session(ctx, work)


def _chosen(value: str | None, edit: str | None, *, approve: bool, reject: bool) -> dict[str, bool]:
    return {"respond": value is not None, "edit": edit is not None, "approve": approve, "reject": reject}


async def _by_id(session: Session, text: str, by: str | None, comment: str | None) -> Answer:
    from ..topics.errors import InvalidInput
    from ..topics.messages import Answer
    from .values import json_input

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidInput(f"{text[:80]!r} is no answer: write ID=JSON, such as review='\"good\"'")
    return Answer(id=name, value=await session.blobs.payload(json_input(value)), by=by, comment=comment)


async def _by_option(
    session: Session, action: str, text: str | None, id: str | None, by: str | None, comment: str | None
) -> Answer:
    from ..topics.messages import ASKED, Answer
    from .values import json_input

    value = None if text is None else await session.blobs.payload(json_input(text))
    asked = next(one for one in ASKED if one == action)
    return Answer(id=id or "", action=asked, value=value, by=by, comment=comment)


async def _with_update(session: Session, answer: Answer, update: str | None) -> Answer:
    import msgspec

    from ..topics.errors import InvalidInput
    from .values import json_input

    if update is None:
        return answer
    data = json_input(update)
    if not data.startswith(b"{"):
        raise InvalidInput("an update of the state is an object of its fields")
    return msgspec.structs.replace(answer, update=await session.blobs.payload(data))


def say(
    ctx: typer.Context,
    run: Run,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Text; with --as-json any JSON; - reads it.")],
    as_json: Annotated[bool, typer.Option("--as-json", help="The message is JSON, not text.")] = False,
    by: By = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Names the message: it is not said twice.")
    ] = None,
    json: Json = False,
) -> None:
    """Say something to a run that has not ended, which goes on meanwhile: it is heard once, where the code listens.

    Durable when this returns. Nothing is canceled by it."""
    import sys

    import msgspec

    from .console import Output
    from .session import run as run_session
    from .values import json_input

    text = message if as_json or message != "-" else sys.stdin.read()
    data = json_input(text) if as_json else msgspec.json.encode(text)
    output = Output(json)

    async def work(session: Session) -> None:
        from ..topics.ids import new_token

        word = key or new_token()
        content = await session.blobs.payload(data)
        record = await session.submitter.say(run, content, by=by or "", key=word)
        if output.json:
            output.record({"run": record.id, "status": record.status, "key": word})
        else:
            output.line(f"said to run {record.id}, which is {record.status}")

    run_session(ctx, work)
