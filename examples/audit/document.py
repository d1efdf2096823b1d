"""A report as documents: Markdown for people, JSON for programs."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from .models import RankedFinding, Report
from .rules import WEIGHTS

TOP_MODULES = 20
TOP_FINDINGS = 20
TOP_PER_RULE = 5
_MARKUP = re.compile(r"[\\`*\[\]<>|#]|(?<![^\W_])_|_(?![^\W_])")
"""Characters that mean something in Markdown; an underscore only does at the edge of a word."""
MAX_LISTED = 50
"""So many failures and left-out files the Markdown names; the JSON has them all."""


def to_json(report: Report) -> str:
    """The whole report, with all findings that the reviews kept."""
    return json.dumps(asdict(report), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def to_markdown(report: Report) -> str:
    """The report for reading: figures, ranking, what to look at first, findings by rule, what was not reviewed."""
    parts = [
        f"# Code audit: {_text(report.target)}",
        *_summary(report),
        *_modules(report),
        *_first(report),
        *_complex(report),
        *_rules(report),
        *_by_rule(report),
        *_not_reviewed(report),
        *_scoring(report),
    ]
    return "\n\n".join(parts) + "\n"


def _summary(report: Report) -> Iterator[str]:
    figures = report.figures
    by_severity = ", ".join(f"{count:,} {severity}" for severity, count in figures.severities.items())
    yield (
        f"**{figures.findings:,} findings** ({by_severity}) in {figures.modules:,} modules "
        f"with {figures.code_lines:,} lines of code."
    )
    yield "## Figures"
    rows = [
        ("Modules", f"{figures.modules:,}"),
        ("Reviewed completely", f"{figures.reviewed:,}"),
        ("Not, or only partly, reviewed", f"{figures.failed:,}"),
        ("Lines", f"{figures.lines:,}"),
        ("Lines of code", f"{figures.code_lines:,}"),
        ("Functions and methods", f"{figures.functions:,}"),
        ("Classes", f"{figures.classes:,}"),
        ("Highest complexity of a function", f"{figures.complexity_max:,}"),
        ("Mean complexity of a function", f"{figures.complexity_mean:.2f}"),
        ("Mean maintainability (0 to 100, by lines of code)", f"{figures.maintainability_mean:.1f}"),
        ("Findings per 1,000 lines of code", f"{1000 * figures.findings / max(figures.code_lines, 1):.1f}"),
        ("Score", f"{figures.score:,}"),
    ]
    yield _table(("Figure", "Value"), rows, "lr")


def _modules(report: Report) -> Iterator[str]:
    shown = [module for module in report.modules[:TOP_MODULES] if module.score]
    if not shown:
        return
    yield f"## The {len(shown)} modules with the highest score" if len(shown) > 1 else "## The module with findings"
    header = ("#", "Module", "Score", "Per 100 lines", "High", "Medium", "Low", "Code", "Complexity", "Maintainability")
    rows = [
        (
            str(module.rank),
            _code(module.module),
            f"{module.score:,}",
            f"{module.density:.1f}",
            *(f"{module.severities[severity]:,}" for severity in ("high", "medium", "low")),
            f"{module.measures.code_lines:,}",
            str(module.measures.complexity_max),
            f"{module.measures.maintainability:.1f}",
        )
        for module in shown
    ]
    yield _table(header, rows, "rlrrrrrrrr")


def _first(report: Report) -> Iterator[str]:
    shown = [item for item in report.findings[:TOP_FINDINGS] if WEIGHTS[item.finding.severity]]
    if shown:
        yield "## Read these first"
        rows = [
            (str(item.rank), item.finding.severity, item.finding.rule, _place(item), _text(item.finding.message))
            for item in shown
        ]
        yield _table(("#", "Severity", "Rule", "Where", "What"), rows, "rllll")


def _complex(report: Report) -> Iterator[str]:
    shown = [item for item in report.complex[:10] if item.definition.complexity > 1]
    if shown:
        yield "## The most complex functions"
        rows = [
            (
                str(item.definition.complexity),
                _code(item.definition.name),
                _code(f"{item.file}:{item.definition.line}"),
                str(item.definition.end_line - item.definition.line + 1),
            )
            for item in shown
        ]
        yield _table(("Complexity", "Function", "Where", "Lines"), rows, "rllr")


def _rules(report: Report) -> Iterator[str]:
    if report.rules:
        yield "## Rules"
        rows = [
            (_code(rule.rule), rule.severity, f"{rule.findings:,}", f"{rule.modules:,}", _text(rule.why))
            for rule in report.rules
        ]
        yield _table(("Rule", "Severity", "Findings", "Modules", "Why it matters"), rows, "llrrl")


def _by_rule(report: Report) -> Iterator[str]:
    by_rule: dict[str, list[RankedFinding]] = defaultdict(list)
    for item in report.findings:
        by_rule[item.finding.rule].append(item)
    if by_rule:
        yield "## Findings by rule"
    for rule in report.rules:
        shown = by_rule[rule.rule][:TOP_PER_RULE]
        if shown:
            yield f"### {rule.rule} ({rule.severity}, {rule.findings:,})"
            lines = [f"- {_place(item)}{_symbol(item)}: {_text(item.finding.message)}" for item in shown]
            if rule.findings > len(shown):
                lines.append(f"- and {rule.findings - len(shown):,} more")
            yield "\n".join(lines)


def _not_reviewed(report: Report) -> Iterator[str]:
    lines = [f"- {_code(failure.file)} {_text(failure.error)}" for failure in report.failures]
    lines += [f"- {_text(skipped)} (left out)" for skipped in report.skipped]
    if lines:
        yield "## Not, or only partly, reviewed"
        more = [f"- and {len(lines) - MAX_LISTED:,} more"] if len(lines) > MAX_LISTED else []
        yield "\n".join(lines[:MAX_LISTED] + more)


def _scoring(report: Report) -> Iterator[str]:
    weights = ", ".join(f"{severity} {value}" for severity, value in WEIGHTS.items())
    yield "## How this was made"
    yield (
        f"The score of a module is the sum of the weights of its findings ({weights}). "
        "Findings are ranked by severity, then rare rules before frequent ones, then by the score of their module. "
        "Complexity is cyclomatic (that of a module: of its most complex function). "
        "The maintainability index joins Halstead volume, complexity, statements and comments. "
        f"Analysed with Python {report.python}, pyflakes and radon; the audited files were only read."
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> str:
    rule = ["---:" if side == "r" else "---" for side in align]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *rows))


def _place(item: RankedFinding) -> str:
    return _code(f"{item.file}:{item.finding.line}")


def _symbol(item: RankedFinding) -> str:
    return f" in {_code(item.finding.symbol)}" if item.finding.symbol else ""


def _code(text: str) -> str:
    """A code span; backticks would end it, bars and line ends would break a table."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return "`" + line.replace("`", "'").replace("|", "\\|") + "`"


def _text(text: str) -> str:
    """Plain words from audited code must not become Markdown or HTML."""
    line = "".join(char if char.isprintable() else " " for char in text)
    return _MARKUP.sub(r"\\\g<0>", line)
