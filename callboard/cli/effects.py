"""`callboard runs effects` and `callboard runs reconcile`: what a run did outside, and a person's word on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json, Run
from .runs import group

if TYPE_CHECKING:
    from ..store.effects import Effect
    from ..topics.messages import RunRecord
    from .session import Session

_COLUMNS = ("PLACE", "NAME", "STATUS", "ATTEMPT", "CLAIMED", "SETTLED", "KEY", "RESULT")


def register(_: typer.Typer) -> None:
    """Adds the commands to the group `runs`."""
    group.command("effects")(effects)
    group.command("reconcile")(reconcile)


def effects(ctx: typer.Context, run: Run, json: Json = False) -> None:
    """List what a run did outside: claimed, settled, failed, unknown, compensated.

    In the order of the claims, also of a run that was rolled back. What is unknown is decided with `runs reconcile`."""
    from ..store.lineage import load_effects
    from ..topics.ids import require_run_id
    from .console import Output
    from .session import run as run_session

    output = Output(json)

    async def work(session: Session) -> None:
        record = (await session.log.require(require_run_id(run))).record
        found = (await load_effects(session.bus, record)).all
        if output.json:
            output.records([described(record, one) for one in found])
            return
        output.table(_COLUMNS, [_row(record, one) for one in found], f"run {run} has no effects")
        for one in found:
            if one.error is not None:
                output.line(f"{one.at} {one.name}: {one.error.code}: {one.error.message}")

    run_session(ctx, work)


def described(record: RunRecord, effect: Effect) -> dict[str, Any]:
    """An effect as JSON."""
    compensation = effect.compensation
    found = {
        "place": effect.at, "name": effect.name, "status": effect.status(record), "key": effect.key,
        "calls": effect.calls, "attempt": effect.claim.attempt, "claimed_at": effect.claimed_at,
        "settled_at": effect.settled_at, "settled_by": effect.settlement.by if effect.settlement else None,
        "result": effect.value, "error": effect.error, "compensate": effect.claim.compensate,
        "compensation_key": compensation.key if compensation else None, "compensated_at": effect.compensated_at,
        "compensation_result": compensation.value if compensation else None,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def _row(record: RunRecord, effect: Effect) -> tuple[str, ...]:
    from .wording import cut, payload, stamp

    return (
        effect.at, cut(effect.name, 40), effect.status(record), str(effect.claim.attempt), stamp(effect.claimed_at),
        stamp(effect.settled_at), cut(effect.key, 60), payload(effect.value, 60),
    )  # fmt: skip


def reconcile(
    ctx: typer.Context,
    run: Run,
    effect: Annotated[str, typer.Argument(metavar="EFFECT", help="Its place, or its name if that tells which.")],
    value: Annotated[
        str | None, typer.Argument(metavar="[JSON]", help="With --happened: what its function would have returned.")
    ] = None,
    happened: Annotated[
        bool | None, typer.Option("--happened/--did-not-happen", help="It happened, or it is to be done (again).")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept with the run.")] = None,
    json: Json = False,
) -> None:
    """Say whether an unknown effect has happened; the run goes on when all are decided.

    `--happened '{"id": 7}'` makes that the effect's result; `--did-not-happen` has it called again with the same
    idempotency key."""
    from ..topics.errors import InvalidInput
    from .console import Output
    from .session import run as run_session
    from .values import json_input

    output = Output(json)
    if happened is None:
        raise InvalidInput("say --happened (with the result as JSON, if the code needs it) or --did-not-happen")
    if value is not None and not happened:
        raise InvalidInput("--did-not-happen takes no result")
    data = json_input(value) if value is not None else b"null"

    async def work(session: Session) -> None:
        payload = await session.blobs.payload(data) if happened else None
        record = await session.submitter.reconcile(run, effect, happened=happened, value=payload, reason=reason)
        if output.json:
            output.record({"run": record.id, "status": record.status, "unknown": record.unknown or []})
            return
        output.line(str(record.status))
        for one in record.unknown or ():
            output.line(f"unknown: {one.at} {one.name} (key {one.key})")

    run_session(ctx, work)
