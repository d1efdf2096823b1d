"""`python -m tests.bench [NAME…] [--rounds N]`: measures, prints a table, writes .bench/results.json."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from tests.bench.figure import Figure
from tests.bench.figures import ALL

RESULTS = Path(".bench/results.json")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(ALL)} (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each figure; the median counts")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(ALL)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(ALL)}")
    console = Console() if sys.stdout.isatty() else Console(width=160)
    figures: list[Figure] = []
    for name in arguments.names or ALL:
        console.print(f"measuring {name} …")
        figures += uvloop.run(ALL[name](arguments.rounds))
    console.print(_table(figures))
    _write(figures)
    console.print(f"written to {RESULTS}")


def _table(figures: list[Figure]) -> Table:
    table = Table("figure", "median", "unit", "to reach", "", "spread and notes")
    marks = {True: "[green]reached[/]", False: "[red]missed[/]", None: ""}
    for figure in figures:
        table.add_row(
            figure.name, f"{figure.value:,.4g}", figure.unit, figure.target, marks[figure.reached], figure.note
        )
    return table


def _write(figures: list[Figure]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known |= {figure.name: figure.value for figure in figures}
    known["details"] = known.get("details", {}) | {figure.name: asdict(figure) for figure in figures}
    known["measured"] = datetime.now(UTC).isoformat()
    known["machine"] = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    RESULTS.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    main()
