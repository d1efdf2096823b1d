"""The report of a chaos run as a page for people: what was injected how often, what was lost, what was doubled.

Written into a Markdown file; where that has the two marks, between them, and the rest of the page stays."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.run import Outcome

BEGIN, END = "<!-- chaos report: begin -->", "<!-- chaos report: end -->"
_LOST = {
    "acknowledged runs without a record": ("lost",),
    "runs that did not end": ("not ended",),
    "results that were not the right ones": ("result",),
    "events that a client missed, or saw twice": ("events",),
}
_DOUBLED = {
    "idempotency keys with two runs": ("doubled",),
    "finished steps executed again, or by an attempt that had lost its run": ("executed",),
    "payments made twice, or not undone": ("payments",),
    "questions taken twice, or with another answer than the accepted one": ("answers",),
    "forks that did what was behind their checkpoint": ("forked",),
    "turns in a thread at the same time, or replaced for nothing": ("thread",),
    "runs alive after their canceled root": ("cancel",),
}
_OTHER = {"findings of `callboard check`": ("audit",), "answers and ends that must not be": ("behaved",)}
_REPEATED = (
    "steps executed more than once",
    "nodes carried out more than once",
    "payments asked for again under their key",
    "writes stored twice",
)
"""What is repeated as documented."""


def write(outcome: Outcome, path: Path) -> None:
    """Writes the report to a page of its own, or between the marks of one that is there."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    text = f"{BEGIN}\n\n{markdown(outcome)}\n{END}"
    head, mark, rest = before.partition(BEGIN)
    _, _, tail = rest.partition(END)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + text + tail if mark else f"{text}\n", encoding="utf-8")


def markdown(outcome: Outcome) -> str:
    """The report as paragraphs and tables."""
    totals, counts = outcome.verdict.totals, outcome.verdict.counts
    verdict = "nothing was violated" if not counts else f"{sum(counts.values())} violations: see the table"
    faults = sorted(outcome.faults.items())
    work = [(name, count) for name, count in totals.items() if name not in _REPEATED]
    summary = (
        f"Seed {outcome.seed}, {outcome.seconds:g} seconds of faults: {outcome.faults.total()} were injected, into "
        f"{totals['runs']} runs with {totals['steps executed']} executions of steps; {verdict}."
    )
    lines = [summary, "", *_table("injected", faults), *_table("work under these faults", work)]
    for title, kinds in (("lost", _LOST), ("doubled", _DOUBLED), ("otherwise", _OTHER)):
        lines += _table(title, [(what, sum(counts.get(kind, 0) for kind in names)) for what, names in kinds.items()])
    return "\n".join([*lines, *_table("repeated, as documented", [(one, totals.get(one, 0)) for one in _REPEATED])])


def _table(title: str, rows: list[tuple[str, int]]) -> list[str]:
    return [f"| {title} | times |", "| --- | ---: |", *(f"| {name} | {count:,} |" for name, count in rows), ""]
