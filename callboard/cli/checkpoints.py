"""`callboard checkpoints`: the snapshots of runs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Json, Run

if TYPE_CHECKING:
    from ..store.checkpoints import Difference, Marks, Saved
    from ..store.size import Amount, Size
    from .console import Output
    from .session import Session

group = typer.Typer(
    help="The snapshots of runs: look, compare, label, prune, weigh.", no_args_is_help=True, rich_markup_mode=None
)
Word = Annotated[str, typer.Argument(metavar="CHECKPOINT", help="A checkpoint's id, or a label.")]
Subgraph = Annotated[str, typer.Option("--subgraph", metavar="PATH", help="Of a subgraph, not of the run itself.")]
_COLUMNS = ("CHECKPOINT", "TIME", "STEP", "SOURCE", "RAN", "NEXT", "CHANGED", "SIZE", "LABELS")
_THREAD_RUNS = 100_000


def register(app: typer.Typer) -> None:
    """Adds the group."""
    app.add_typer(group, name="checkpoints")


@group.command("ls")
def ls(
    ctx: typer.Context,
    run: Run,
    subgraph: Subgraph = "",
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="At most so many.")] = 50,
    before: Annotated[str | None, typer.Option("--before", metavar="ID", help="Only those before this one.")] = None,
    json: Json = False,
) -> None:
    """List the checkpoints of a run, the newest first."""
    from ..store.checkpoints import outline
    from .console import Output
    from .session import run as run_session

    output = Output(json)

    async def work(session: Session) -> None:
        await _required(session, run)
        store = session.checkpoints
        found = await store.history(run, before=before, limit=limit, namespace=subgraph)
        marks = await store.labels.of(run)
        if output.json:
            output.records([outline(saved, marks) for saved in found])
            return
        output.table(_COLUMNS, [_row(saved, marks) for saved in found], f"run {run} has no checkpoints")

    run_session(ctx, work)


def _row(saved: Saved, marks: Marks) -> tuple[str, ...]:
    from .wording import cut, size, stamp

    made = saved.checkpoint
    lists = (made.ran, made.next, sorted(made.put))
    ran, then, changed = (cut(", ".join(names) or "-", 40) for names in lists)
    labels = ", ".join(marks.names_of(saved)) or "-"
    weight = size(saved.size_bytes)
    return (saved.id, stamp(saved.time), str(made.step), made.source, ran, then, changed, weight, labels)


@group.command("show")
def show(ctx: typer.Context, run: Run, checkpoint: Word, json: Json = False) -> None:
    """Show one checkpoint, with its values."""
    from ..store.checkpoints import outline
    from . import state
    from .console import Output
    from .session import run as run_session

    output = Output(json)

    async def work(session: Session) -> None:
        import msgspec

        found = await state.loaded(session, run, checkpoint)
        told = outline(found.saved, await session.checkpoints.labels.of(run))
        if output.json:
            output.record(told | {"values": {name: msgspec.Raw(raw) for name, raw in found.raws.items()}})
            return
        shown = {name: ", ".join(one) if isinstance(one, list) else str(one or "") for name, one in told.items()}
        output.fields(list(shown.items()))
        output.line()
        for name in sorted(found.raws):
            state.value(output, name, found.raws[name])

    run_session(ctx, work)


@group.command("diff")
def diff(
    ctx: typer.Context,
    run: Run,
    old: Annotated[str, typer.Argument(metavar="OLD", help="A checkpoint's id, or a label.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Another one.")],
    other: Annotated[
        str | None, typer.Option("--other-run", metavar="RUN", help="The run of NEW, if it is another one.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what differs between two checkpoints, channel by channel.

    Exit code 0 whether they differ or not."""
    from .console import Output, note
    from .session import run as run_session

    output = Output(json)

    async def work(session: Session) -> None:
        store = session.checkpoints
        first, second = await _found(session, run, old), await _found(session, other or run, new)
        found = await store.difference(first, second)
        if output.json:
            output.records(found)
            return
        for one in found:
            _told(output, one)
        if not found:
            note("they do not differ")

    run_session(ctx, work)


def _told(output: Output, one: Difference) -> None:
    from .state import dumped, value

    match one.kind:
        case "added":
            value(output, one.channel, dumped(one.new), ("+ ", "green"))
        case "removed":
            value(output, one.channel, dumped(one.old), ("- ", "red"))
        case "appended":
            value(output, f"{one.channel}, appended", dumped(one.appended), ("> ", "green"))
        case "changed" if one.inside:
            for change in one.inside:
                place = f"{one.channel}{change.path}"
                for sign, style, part in (("- ", "red", change.old), ("+ ", "green", change.new)):
                    if not _absent(part):
                        value(output, place, dumped(part), (sign, style))
        case "changed":
            value(output, one.channel, dumped(one.old), ("- ", "red"))
            value(output, one.channel, dumped(one.new), ("+ ", "green"))


def _absent(part: object) -> bool:
    import msgspec

    return part is msgspec.UNSET


@group.command("label")
def label(
    ctx: typer.Context,
    run: Run,
    checkpoint: Word,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The label; it moves if another checkpoint has it.")],
) -> None:
    """Name a checkpoint: it is found by that, and never pruned."""
    from .console import Output
    from .session import run as run_session

    async def work(session: Session) -> None:
        await _required(session, run)
        labels = session.checkpoints.labels
        saved = await labels.put(run, name, await labels.find(run, checkpoint))
        Output().line(f"checkpoint {saved.id} is {name}")

    run_session(ctx, work)


@group.command("unlabel")
def unlabel(
    ctx: typer.Context, run: Run, name: Annotated[str, typer.Argument(metavar="NAME", help="The label.")]
) -> None:
    """Take a label away."""
    from .session import run as run_session

    async def work(session: Session) -> None:
        await _required(session, run)
        await session.checkpoints.labels.drop(run, name)

    run_session(ctx, work)


@group.command("prune")
def prune(
    ctx: typer.Context,
    run: Run,
    keep: Annotated[int | None, typer.Option("--keep", metavar="N", help="Keep the newest so many.")] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help="Keep those that are younger, as 12h or 7d.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
    json: Json = False,
) -> None:
    """Remove old checkpoints; what labels, forks and the run itself still need stays.

    With both options a checkpoint stays if one of them says so."""
    from ..store.checkpoints import Choice
    from .console import Output
    from .session import run as run_session
    from .values import span
    from .wording import size

    output = Output(json)
    choice = Choice(keep, None if older_than is None else timedelta(seconds=span(older_than)))

    async def work(session: Session) -> None:
        await _required(session, run)
        done = await session.checkpoints.prune(run, choice, dry_run=dry_run)
        if output.json:
            output.record(done)
            return
        verb = "would be removed" if dry_run else "removed"
        output.line(f"{done.removed} messages ({size(done.removed_bytes)}) {verb}")
        held = f", {done.held} of them for a label or another run" if done.held else ""
        output.line(f"{done.kept} checkpoints stay{held}")
        if done.carriers:
            output.line(f"{done.carriers} more messages stay for values that those need")

    run_session(ctx, work)


@group.command("size")
def size(
    ctx: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="The run's id.")] = None,
    thread: Annotated[
        str | None, typer.Option("--thread", metavar="THREAD", help="A thread with all its runs instead.")
    ] = None,
    json: Json = False,
) -> None:
    """Show how much room a run takes, or a thread: messages by kind, values by channel, and the object store."""
    from ..store.size import Scale
    from ..topics.errors import InvalidInput
    from .console import Output
    from .listing import newest_runs
    from .session import run as run_session

    output = Output(json)
    if (run is None) == (thread is None):
        raise InvalidInput("name either a RUN or a --thread")

    async def work(session: Session) -> None:
        scale = Scale(session.bus)
        if run is not None:
            await _required(session, run)
            found = await scale.run(run)
        else:
            listed = await newest_runs(session.bus, lambda record: record.thread == thread, _THREAD_RUNS)
            found = await scale.thread(str(thread), [one.record.id for one in listed])
        if output.json:
            output.record(found)
        else:
            _weighed(output, found)

    run_session(ctx, work)


def _weighed(output: Output, found: Size) -> None:
    from .wording import size

    def row(part: str, amount: Amount) -> tuple[str, str, str]:
        return part, str(amount.count), size(amount.bytes)

    kinds = [row(f"  {kind}", amount) for kind, amount in sorted(found.kinds.items())]
    channels = [row(f"  {name}", amount) for name, amount in sorted(found.channels.items())]
    head = [row("messages", found.messages), *kinds]
    values = [("values in checkpoints", "", ""), *channels] if channels else []
    output.table(("PART", "COUNT", "BYTES"), [*head, *values, row("object store", found.blobs)], "nothing")


async def _required(session: Session, run: str) -> None:
    from ..topics.ids import require_run_id

    await session.log.require(require_run_id(run))


async def _found(session: Session, run: str, word: str) -> Saved:
    await _required(session, run)
    store = session.checkpoints
    return await store.reader.at(run, await store.labels.find(run, word))
