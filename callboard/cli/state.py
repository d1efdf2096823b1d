"""`callboard state`: what a run, or a thread, has in mind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json, Run

if TYPE_CHECKING:
    from ..store.checkpoints import State
    from .console import Output
    from .session import Session

_SHORT = 100


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("state", short_help="Show the state of a run or a thread.")(state)
    app.command("update", short_help="Edit the state of a run that nobody carries out.")(update)


def state(
    ctx: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="The run's id.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", metavar="C", help="An id or a label; else the newest.")
    ] = None,
    thread: Annotated[str | None, typer.Option("--thread", metavar="THREAD", help="A thread's state instead.")] = None,
    subgraph: Annotated[
        str, typer.Option("--subgraph", metavar="PATH", help="A subgraph's state instead of the run's own.")
    ] = "",
    json: Json = False,
) -> None:
    """Show the state of a run as of its newest checkpoint, or of one that is named; or the state of a thread, from
    which the next run of the same agent begins there."""
    from ..topics.errors import InvalidInput
    from .console import Output
    from .session import run as run_session

    output = Output(json)
    if (run is None) == (thread is None):
        raise InvalidInput("name either a RUN or a --thread")

    async def work(session: Session) -> None:
        which, word = (str(run), checkpoint) if thread is None else await _tip(session, thread)
        show(output, await loaded(session, which, word, subgraph))

    run_session(ctx, work)


def update(
    ctx: typer.Context,
    run: Run,
    value: Annotated[str, typer.Argument(metavar="JSON", help="New values by channel; - reads standard input.")],
    append: Annotated[
        str | None, typer.Option("--append", metavar="JSON", help="By channel: items that come on at a list's end.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="CHANNEL", help="Take the value away; repeatable.")
    ] = None,
    as_node: Annotated[
        str | None, typer.Option("--as-node", metavar="NODE", help="Go on after this node, as if it had done the edit.")
    ] = None,
    json: Json = False,
) -> None:
    """Edit the state of a run, and print the new checkpoint's id. Only while nobody carries the run out; what is at
    work, or has ended, is forked with the edit instead: see `callboard fork --update`."""
    from .console import Output
    from .session import run as run_session

    output = Output(json)
    values = _by_channel(value)
    items = {} if append is None else _by_channel(append)

    async def work(session: Session) -> None:
        store = session.checkpoints
        saved = await store.update_state(run, values, append=items, remove=remove or (), as_node=as_node)
        if output.json:
            output.record({"run": run, "checkpoint": saved.id, "changed": sorted(saved.checkpoint.put)})
        else:
            output.line(saved.id)

    run_session(ctx, work)


def _by_channel(text: str) -> dict[str, Any]:
    import msgspec

    from ..topics.errors import InvalidInput
    from .values import json_input

    try:
        return msgspec.json.decode(json_input(text), type=dict[str, Any])
    except msgspec.ValidationError as error:
        raise InvalidInput('an edit is an object: the values by channel, as {"text": "new"}') from error


async def _tip(session: Session, thread: str) -> tuple[str, str | None]:
    from ..store.threads import Threads
    from ..topics.errors import NotFound

    tip = (await Threads(session.bus).head(thread)).order.tip
    if tip is None:
        raise NotFound(f"thread {thread} has no state: no run with checkpoints has ended in it", thread=thread)
    return tip.run, str(tip.checkpoint)


async def loaded(session: Session, run: str, word: str | None, namespace: str = "") -> State:
    """The state of a run. Raises NotFound, CheckpointMissing, InvalidInput."""
    from ..topics.errors import NotFound
    from ..topics.ids import require_run_id

    await session.log.require(require_run_id(run))
    store = session.checkpoints
    found = await store.load(run, None if word is None else await store.labels.find(run, word), namespace)
    if found is None:
        where = f" in {namespace!r}" if namespace else ""
        raise NotFound(f"run {run} has no checkpoint{where}", run=run)
    return found


def show(output: Output, found: State) -> None:
    """Prints a state: where it stands, and the value of each channel."""
    import msgspec

    from .wording import stamp

    saved = found.saved
    if output.json:
        values = {name: msgspec.Raw(raw) for name, raw in found.raws.items()}
        output.record({"run": saved.run, "checkpoint": saved.id, "values": values})
        return
    made = saved.checkpoint
    then = f", then {', '.join(made.next)}" if made.next else ""
    output.line(f"checkpoint {saved.id} of {saved.run}, step {made.step}{then}, {stamp(saved.time)}", "dim")
    for name in sorted(found.raws):
        value(output, name, found.raws[name])


def value(output: Output, name: str, raw: bytes, lead: tuple[str, str | None] = ("", None)) -> None:
    """Prints a value: on one line if it is short, else over several, however it was written."""
    import msgspec

    from .wording import clean

    text = bytes(raw).decode()
    lines = [text] if len(text) <= _SHORT else msgspec.json.format(text, indent=2).splitlines()
    output.parts(lead, (clean(name), "bold"), (" = ", "dim"), (clean(lines[0]), None))
    for line in lines[1:]:
        output.line("  " + clean(line))


def dumped(found: Any) -> bytes:
    """A value as JSON."""
    import msgspec

    return msgspec.json.encode(found)
