"""`callboard fork`: a new run from a checkpoint of another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .options import Json, Key, Metadata, PolicyOption, Run, RunIdOption

if TYPE_CHECKING:
    from ..topics.messages import TaskRequest
    from .session import Session

Text = str | None


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("fork", short_help="Start a run from a checkpoint of another run.")(fork)


def fork(
    ctx: typer.Context,
    run: Run,
    checkpoint: Annotated[
        Text, typer.Option("--checkpoint", metavar="ID", help="Which one, by its id or a label; default: the newest.")
    ] = None,
    thread: Annotated[
        Text, typer.Option("--thread", metavar="THREAD", help="A thread to work in; default: its own.")
    ] = None,
    new_thread: Annotated[
        bool, typer.Option("--new-thread", help="Work in a new thread, forked from its own.")
    ] = False,
    policy: PolicyOption = None,
    update: Annotated[
        Text, typer.Option("--update", metavar="JSON", help="An edit of the state: new values by channel.")
    ] = None,
    as_node: Annotated[
        Text, typer.Option("--as-node", metavar="NODE", help="Take the edit as if it came from this node.")
    ] = None,
    value: Annotated[
        Text, typer.Option("--input", metavar="JSON", help="An input of its own, which is added to the state.")
    ] = None,
    version: Annotated[
        Text, typer.Option("--version", metavar="VERSION", help="Pin it to this version of its agent.")
    ] = None,
    run_id: RunIdOption = None,
    key: Key = None,
    metadata: Metadata = None,
    json: Json = False,
) -> None:
    """Start a run from a checkpoint of another run, and print its id. What that run has done stays as it is.

    Without --update and --input it does again what came after the checkpoint. It takes its turn in that run's thread;
    from then on the thread's state is the fork's."""
    from ..topics.errors import InvalidInput
    from ..topics.messages import Fork, TaskRequest
    from . import values

    if new_thread and (thread is not None or policy is not None):
        raise InvalidInput("--new-thread goes with neither --thread nor --policy")
    data = None if value is None else values.json_input(value)
    edit = None if update is None else values.json_input(update)
    request = TaskRequest(
        run=run_id, key=key, thread=thread, policy="fork" if new_thread else values.policy(policy),
        metadata=values.metadata(metadata), version=version,
        fork=Fork(run=run, as_node=as_node),
    )  # fmt: skip
    _submit(ctx, request, checkpoint, data, edit, json=json)


def _submit(
    ctx: typer.Context,
    request: TaskRequest,
    checkpoint: str | None,
    data: bytes | None,
    edit: bytes | None,
    *,
    json: bool,
) -> None:
    from msgspec.structs import replace

    from ..store.submit import require_taken
    from .console import Output
    from .publish import as_json, tell_turn
    from .session import run as run_session
    from .tracing import command_trace

    output = Output(json)

    async def work(session: Session) -> None:
        source = request.fork
        if source is not None and checkpoint is not None:
            source = replace(source, checkpoint=await session.checkpoints.labels.number(source.run, checkpoint))
        asked = replace(request, fork=source, trace=traceparent)
        reply = await session.submitter.submit(asked, data, update=edit)
        require_taken(reply)
        if output.json:
            output.record(as_json(reply))
            return
        output.line(reply.run or "")
        tell_turn(reply)

    with command_trace("callboard fork") as traceparent:
        run_session(ctx, work)
