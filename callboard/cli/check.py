"""`callboard check`: audits the log against every invariant, and mends what a crash has left."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Json

if TYPE_CHECKING:
    from ..actors.audit import Finding, Report
    from .console import Output
    from .session import Session

_SHOWN = 20
"""Of each code, for people; `--json` has more."""
_SEVERITIES = ("error", "warning", "note")
_STYLES = {"error": "red", "warning": "yellow", "note": "blue"}


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("check", short_help="Audit the log; mend what a crash has left.")(check)


def check(
    ctx: typer.Context,
    repair: Annotated[bool, typer.Option("--repair", help="Publish what mends, and say whether it did.")] = False,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", metavar="SECONDS", min=0, max=86_400, help="How long a live run may lack what it is owed."
        ),
    ] = 3.0,
    pending: Annotated[
        float,
        typer.Option("--pending", metavar="SECONDS", min=0, max=86_400, help="How long a task may wait in the INBOX."),
    ] = 60.0,
    blobs: Annotated[bool, typer.Option("--blobs", help="Look for every blob in the object store too.")] = False,
    projection: Annotated[
        Path | None,
        typer.Option("--projection", metavar="FILE", help="The SQLite file to compare. [env: CALLBOARD_PROJECTION]"),
    ] = None,
    expect: Annotated[
        Path | None,
        typer.Option("--expect", metavar="FILE", help="Runs that must exist, one id a line; - reads standard input."),
    ] = None,
    json: Json = False,
) -> None:
    """Audit the whole log against every invariant; --repair mends what a crash can leave.

    The paths of all runs, their outcomes, journals and trees, and what live runs are owed: work messages, timers, words
    to parents, workers. The read model is compared as well, if its file is there. Live runs may be under way: what is
    found of them counts when it is found again after --wait seconds. docs/check.md explains each finding.

    Exit code 0 when all holds or was mended, 1 when something was found, 4 when the broker cannot be reached."""
    from .console import Output
    from .exits import FAILED
    from .session import run

    output = Output(json)

    async def work(session: Session) -> int | None:
        from ..actors.audit import audit

        file = _projection(projection)
        report = await audit(
            session.bus,
            expected=_runs(expect),
            wait_s=wait,
            pending_s=pending,
            repair=repair,
            blobs=blobs,
            projection=file,
            foreign_ok=projection is None,
        )
        _tell(output, report)
        return None if report.clean else FAILED

    run(ctx, work)


def _projection(given: Path | None) -> Path | None:
    """The file named, else the one of the settings if it is there."""
    if given is not None:
        return given
    from ..gateway.config import GatewaySettings
    from .environment import load

    found = load(GatewaySettings).projection
    return found if found.is_file() else None


def _runs(file: Path | None) -> list[str]:
    """The ids in a file, one a line. Raises InvalidInput."""
    import sys

    from ..topics.errors import InvalidInput
    from ..topics.ids import require_run_id

    if file is None:
        return []
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"--expect {file}: {error}") from error
    return [require_run_id(line.strip()) for line in text.splitlines() if line.strip()]


def _tell(output: Output, report: Report) -> None:
    if output.json:
        output.record(report)
        return
    shown: Counter[str] = Counter()
    for finding in sorted(report.findings, key=lambda one: _SEVERITIES.index(one.severity)):
        if shown[finding.code] < _SHOWN:
            shown[finding.code] += 1
            _print(output, finding)
    hidden = {code: n - shown[code] for code, n in report.counts.items() if n > shown[code]}
    if hidden:
        output.line(f"and more, see --json: {', '.join(f'{code} {n}' for code, n in hidden.items())}")
    if report.findings:
        output.line()
    output.line(_summary(report))
    output.line(_verdict(report), "green" if report.clean else "red")


def _print(output: Output, finding: Finding) -> None:
    from .wording import clean

    state = {None: finding.severity, True: "mended", False: "not mended"}[finding.mended]
    style = "green" if finding.mended else _STYLES[finding.severity]
    where = f" {finding.run}" if finding.run else ""
    output.parts((f"{state:<10} ", style), (f"{finding.code}{where}", "bold"), (f": {clean(finding.found)}", None))
    output.parts((" " * 11 + "must hold: ", None), (clean(finding.expected), None))
    if finding.repair and finding.mended is None:
        does = "takes away" if finding.repair.endswith("*") else "publishes"
        output.parts((" " * 11 + f"→ --repair {does} ", None), (clean(finding.repair), None))


def _summary(report: Report) -> str:
    parts = [
        f"{report.runs} runs ({report.live} live), {report.events} events up to sequence {report.sequence}",
        f"INBOX: {report.tasks} tasks, {report.commands} commands",
        f"dead letters: {report.dead_letters}",
        f"projection: {report.projection or 'none compared'}",
    ]
    if report.truncated:
        parts.append("the log has lost its beginning to retention")
    return "; ".join(parts)


def _verdict(report: Report) -> str:
    mended = [one for one in report.findings if one.mended]
    notes = {one.code for one in report.findings if one.severity == "note"}
    rest = sum(n for code, n in report.counts.items() if code not in notes)
    rest -= sum(one.code not in notes for one in mended)
    if report.clean:
        return f"all invariants hold{f'; {len(mended)} mended' if mended else ''}"
    return f"{rest} finding{'' if rest == 1 else 's'}{f', {len(mended)} mended' if mended else ''}"
