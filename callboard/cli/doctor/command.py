"""The command: everything is looked at, also when one look fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ..options import Json

if TYPE_CHECKING:
    from ..environment import Globals
    from .check import Check


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("doctor", short_help="Say what is wrong, and how to mend it.")(doctor)


def doctor(ctx: typer.Context, json: Json = False) -> None:
    """Look at everything and say what is wrong and how to mend it.

    That is: server, streams, consumers, queues, workers, limits, dead letters, runs that stand still, and the clock.

    Exit code 0 when there is no problem, 1 when there is one, 4 when the broker cannot be reached."""
    import asyncio

    from ..console import Output
    from ..exits import FAILED
    from ..logs import set_up
    from ..session import globals_of

    chosen = globals_of(ctx)
    set_up(chosen.verbose, quiet=True)
    output = Output(json)
    checks = asyncio.run(_look(chosen))
    bad = sum(check.level == "problem" for check in checks)
    if output.json:
        output.records(checks)
    else:
        for check in checks:
            _print(output, check)
        output.line()
        output.line(f"{bad} problem{'' if bad == 1 else 's'}" if bad else "no problems", "red" if bad else "green")
    if bad:
        raise typer.Exit(FAILED)


def _print(output: object, check: Check) -> None:
    from ..console import STYLES, Output
    from ..wording import clean

    assert isinstance(output, Output)
    output.parts((f"{check.level:<8} ", STYLES[check.level]), (f"{check.name}: ", "bold"), (clean(check.text), None))
    if check.remedy:
        output.parts((" " * 9 + "→ ", None), (clean(check.remedy), None))


async def _look(chosen: Globals) -> list[Check]:
    from ...topics.errors import CallboardError, NoResponders
    from ..session import connect_now
    from . import broker, traffic
    from .check import problem
    from .limits import limits

    bus = await connect_now(chosen, "callboard-doctor")
    found: list[Check] = []
    try:
        found += await broker.server(bus)
        if any(check.level == "problem" and check.name == "server" for check in found):
            return found  # nothing else can be asked
        for look in (
            broker.streams, broker.clock, traffic.coordinators, traffic.consumers, traffic.queues, limits,
            traffic.dead_letters, traffic.still_runs,
        ):  # fmt: skip
            try:
                found += await look(bus)
            except NoResponders:
                continue  # a stream is missing, which `streams` has said
            except CallboardError as error:
                found.append(problem(look.__name__.replace("_", " "), error.message, "see the lines above"))
    finally:
        await bus.close()
    return found
