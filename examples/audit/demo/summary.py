"""The last words: what was done, what it was found to be, and where the report is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .verdict import Check, Figures

SEVERITIES = ("high", "medium", "low", "info")


def print_summary(
    console: Console,
    result: dict[str, Any],
    found: Figures,
    kill: str,
    seconds: tuple[float, float],
    files: Sequence[Path],
) -> None:
    """Print the figures. `seconds`: of the whole demo, and from the publication of the task to the end of its run."""
    severities = ", ".join(f"{result['severities'].get(name, 0):,} {name}" for name in SEVERITIES)
    executed = f"by the log: {found.recorded_twice}; by a count of {found.begun:,} executions: {found.executed_again}"
    if found.unfinished:
        executed += f" ({found.unfinished} cut short before the result was recorded, and begun again)"
    rows = [
        ("modules", f"{result['modules']:,}", f"{result['code_lines']:,} lines of code"),
        ("findings", f"{result['findings']:,}", severities),
        ("runs", f"{found.runs:,}", f"{len(found.moved)} of them moved: {kill}" if found.moved else kill),
        ("steps", f"{found.steps:,}", "with a recorded result"),
        ("steps executed twice", f"{found.twice:,}", executed),
        ("runs lost", f"{found.lost:,}", "" if found.lost else "each run that was started has one outcome in the log"),
        ("wall time", f"{seconds[0]:.1f} s", f"the job itself {seconds[1]:.1f} s"),
    ]
    _print_rows(console, rows)
    for path in files:
        console.print(Text.assemble(f"{'report':<20} ", (str(path), "bold")), soft_wrap=True)


def _print_rows(console: Console, rows: Sequence[tuple[str, str, str]]) -> None:
    if not console.is_terminal:
        for label, value, detail in rows:
            console.print(f"{label:<20} {value:>8}  {detail}", soft_wrap=True, markup=False, highlight=False)
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for label, value, detail in rows:
        table.add_row(label, Text(value, style="bold"), Text(detail))
    console.print(table)


def print_failures(console: Console, checks: Sequence[Check]) -> bool:
    """Print what does not hold; whether all holds."""
    broken = [check for check in checks if not check.holds]
    for check in broken:
        console.print(Text.assemble(("FAILED  ", "bold red"), f"{check.claim}: {check.detail}"), soft_wrap=True)
    return not broken
