"""`callboard runs`: look at runs, cancel them, retry them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .options import Json, Metadata, Run

if TYPE_CHECKING:
    from ..topics.messages import RunRecord
    from .console import Output
    from .session import Session

Scope = Literal["run", "tree", "children"]
Action = Literal["cancel", "interrupt", "rollback"]
group = typer.Typer(help="Look at runs, cancel them, retry them.", no_args_is_help=True, rich_markup_mode=None)


def register(app: typer.Typer) -> None:
    """Adds the group."""
    app.add_typer(group, name="runs")


# -- list -------------------------------------------------------------------------------------------------------


@group.command("ls")
def ls(
    ctx: typer.Context,
    status: Annotated[
        list[str] | None, typer.Option("--status", metavar="STATUS", help="Only these; repeatable.")
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="AGENT", help="Only this agent's.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic's.")] = None,
    thread: Annotated[str | None, typer.Option("--thread", metavar="THREAD", help="Only this thread's.")] = None,
    metadata: Metadata = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only created since: 10m, 2h, 3d, or an ISO time.")
    ] = None,
    roots: Annotated[bool, typer.Option("--roots", help="No children.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=100_000, help="At most so many.")] = 50,
    json: Json = False,
) -> None:
    """List runs, the last changed first.

    Read from the log itself, backwards from its end: current, and no projection is needed. Filters that match little
    read far back; the gateway's GET /runs has indexes for those."""
    from .console import Output
    from .listing import newest_runs
    from .session import run

    output = Output(json)
    accept = _filter(
        status=_statuses(status), agent=agent, topic=topic, thread=thread, labels=metadata, since=since, roots=roots
    )

    async def work(session: Session) -> None:
        found = await newest_runs(session.bus, accept, limit)
        if output.json:
            output.records([listed.record for listed in found])
        else:
            _table(output, [listed.record for listed in found])

    run(ctx, work)


def _statuses(given: Sequence[str] | None) -> frozenset[str]:
    from ..topics.errors import InvalidInput
    from ..topics.messages import Status

    wanted = frozenset(word.lower() for text in given or () for word in text.split(","))
    unknown = sorted(wanted - {str(status) for status in Status})
    if unknown:
        raise InvalidInput(f"status {unknown[0]!r} is not known: use {', '.join(Status)}")
    return wanted


def _filter(
    *,
    status: frozenset[str],
    agent: str | None,
    topic: str | None,
    thread: str | None,
    labels: Sequence[str] | None,
    since: str | None,
    roots: bool,
) -> Callable[[RunRecord], bool]:
    from . import values

    pairs = values.metadata(labels) or {}
    start = None if since is None else values.since(since)
    equal = [
        (name, text) for name, text in (("agent", agent), ("topic", topic), ("thread", thread)) if text is not None
    ]

    def accept(record: RunRecord) -> bool:
        return (
            (not status or record.status in status)
            and all(getattr(record, name) == text for name, text in equal)
            and all((record.metadata or {}).get(name) == value for name, value in pairs.items())
            and (start is None or record.created_at >= start)
            and not (roots and record.parent is not None)
        )

    return accept


def _table(output: Output, records: list[RunRecord]) -> None:
    from .wording import age, cut, took

    rows = [
        (
            record.id,
            str(record.status),
            record.agent or f"@{record.topic}",
            str(record.attempt),
            age(record.created_at),
            took(record.started_at, record.ended_at),
            cut(record.error.message if record.error else record.reason or "", 60),
        )
        for record in records
    ]
    output.table(("RUN", "STATUS", "AGENT", "TRIES", "AGE", "TOOK", "WHY"), rows, "no runs")


# -- show -------------------------------------------------------------------------------------------------------


@group.command("show")
def show(ctx: typer.Context, run: Run, json: Json = False) -> None:
    """Show one run: its record as the log has it now.

    With --json the whole record; values above 32 KiB stand there by reference."""
    from ..topics.ids import require_run_id
    from .console import Output
    from .session import run as run_session

    output = Output(json)

    async def work(session: Session) -> None:
        loaded = await session.log.require(require_run_id(run))
        if output.json:
            output.record(loaded.record)
        else:
            output.fields(_fields(loaded.record, loaded.sequence))

    run_session(ctx, work)


def _fields(record: RunRecord, sequence: int) -> list[tuple[str, str]]:
    import msgspec

    from .wording import payload, stamp, took

    error = record.error
    return [
        ("run", record.id),
        ("status", str(record.status)),
        ("reason", record.reason or ""),
        ("agent", record.agent),
        ("version", record.version + (" (pinned)" if record.pin else "")),
        ("forked from", _forked(record)),
        ("retries", record.retry_of or ""),
        ("replaces", record.successor_of or ""),
        ("replaced by", record.successor or ""),
        ("topic", record.topic or ""),
        ("thread", record.thread or ""),
        ("parent", record.parent or ""),
        ("created", stamp(record.created_at)),
        ("started", stamp(record.started_at)),
        ("ended", stamp(record.ended_at)),
        ("took", took(record.started_at, record.ended_at)),
        ("attempt", str(record.attempt) if record.attempt else ""),
        ("worker", (record.worker or "") if not record.terminal else ""),
        ("wakes at", stamp(record.wake_at)),
        ("waits for", ", ".join(f"{record.root}~{one}" for group in record.waits or () for one in group)),
        ("steps", str(record.steps) if record.steps else ""),
        ("key", record.key or ""),
        ("metadata", msgspec.json.encode(record.metadata).decode() if record.metadata else ""),
        ("input", payload(record.input, 400)),
        ("result", payload(record.result, 400)),
        ("error", f"{error.code}: {error.message}" if error else ""),
        ("state", f"revision {record.rev}, sequence {sequence}"),
    ]


def _forked(record: RunRecord) -> str:
    fork = record.forked_from
    return f"run {fork.run} at checkpoint {fork.checkpoint}" if fork else ""


# -- tree -------------------------------------------------------------------------------------------------------


@group.command("tree")
def tree(ctx: typer.Context, run: Run, json: Json = False) -> None:
    """Show a run and all its descendants. With --json one record a line, parents before their children."""
    from ..topics.ids import require_run_id
    from .console import Output
    from .session import run as run_session

    output = Output(json)

    async def work(session: Session) -> None:
        require_run_id(run)
        records = await session.log.tree(run)
        order = _ordered(records, run)
        if not order:
            await session.log.require(run)  # a direct get of the leader; tells that there is none
        if output.json:
            output.records([record for record, _ in order])
        else:
            for record, lead in order:
                _tree_line(output, record, lead)

    run_session(ctx, work)


def _ordered(records: list[RunRecord], top: str) -> list[tuple[RunRecord, str]]:
    """The runs below `top`, parents first, each with the lines that lead to it."""
    by_id = {record.id: record for record in records}
    children: dict[str, list[RunRecord]] = {}
    for record in records:
        if record.parent is not None:
            children.setdefault(record.parent, []).append(record)
    found: list[tuple[RunRecord, str]] = []
    stack: list[tuple[RunRecord, str, str]] = [(by_id[top], "", "")] if top in by_id else []
    while stack:  # no recursion: trees can be deep
        record, lead, below = stack.pop()
        found.append((record, lead))
        own = children.get(record.id, [])
        for index, child in reversed(list(enumerate(own))):
            last = index == len(own) - 1
            stack.append((child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))
    return found


def _tree_line(output: Output, record: RunRecord, lead: str) -> None:
    from .console import STYLES
    from .wording import cut, took

    why = record.error.message if record.error else record.reason if not record.terminal else None
    parts: list[tuple[str, Any]] = [
        (lead, "dim"),
        (f"{record.agent or '@' + str(record.topic)} ", "bold"),
        (str(record.status), STYLES.get(record.status)),
        (f" {took(record.started_at, record.ended_at)} ", None),
        (record.id, "dim"),
        (f" {cut(why, 80)}" if why else "", None),
    ]
    output.parts(*parts)


# -- retry ------------------------------------------------------------------------------------------------------


@group.command("retry")
def retry(
    ctx: typer.Context,
    run: Run,
    version: Annotated[
        str, typer.Option("--version", metavar="VERSION", help="Have workers of this version of its agent go on.")
    ] = "",
    json: Json = False,
) -> None:
    """Retry a run that ended without a result, from where it failed. Prints the id of the run that goes on from it.

    One that was pinned to a version of its agent stays on it, unless --version names another one."""
    from .attention import retry_run

    retry_run(ctx, run, version, json=json)


# -- cancel -----------------------------------------------------------------------------------------------------


@group.command("cancel")
def cancel(
    ctx: typer.Context,
    run: Run,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept with the run.")] = None,
    scope: Annotated[Scope, typer.Option("--scope", help="The run alone, with all below it, or only that.")] = "tree",
    action: Annotated[Action, typer.Option("--action", help="How the runs end.")] = "cancel",
    json: Json = False,
) -> None:
    """Cancel a run and all that it has started; workers stop at their next safe boundary.

    Prints the status after it, and what is still alive. Again, it reaches again what lives."""
    from .console import Output
    from .session import run as run_session

    output = Output(json)

    async def work(session: Session) -> None:
        record, alive = await session.submitter.cancel(run, scope=scope, action=action, reason=reason)
        if output.json:
            output.record({"run": record.id, "status": record.status, "alive": alive})
            return
        output.line(str(record.status))
        for one in alive:
            where = f" on worker {one.worker}" if one.worker else ""
            output.line(f"alive: {one.run} {one.agent} is {one.status}{where}: {one.reason or 'no reason given'}")

    run_session(ctx, work)
