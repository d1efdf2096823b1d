"""The step that finds defects: all checks over one module, capped so that the result stays small."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import PurePath

from .bindings import name_defects, shadowed_builtins
from .calls import call_defects
from .comparisons import comparison_defects
from .flow import unreachable_code
from .functions import missing_docstrings, mutable_defaults, size_defects
from .handlers import finally_defects, handler_defects
from .lines import todo_comments
from .models import Defects, Finding, Source
from .rules import RULES, weight
from .syntax import parse_text, syntax_error
from .view import CodeView

MAX_FINDINGS = 200
"""So many findings of a module are kept, the worst ones; `Defects.counts` has them all."""

PLENTY = 20
"""More findings of one rule in one module say little more, and must not crowd out the others."""

Check = Callable[[CodeView], Iterator[Finding]]


def find_defects(source: Source) -> Defects:
    """Find the defects of one module. Any text gives a result; what does not parse has one finding and `error`.

    Pure: the same text gives the same findings, on the same version of Python.
    """
    if source.error is not None:
        return Defects(error=source.error)
    parsed = parse_text(source.text)
    if parsed.tree is None:
        line, column, message = parsed.error or (1, 0, "invalid syntax")
        found = Finding(parsed.rule, RULES[parsed.rule].severity, line, column, message)
        return Defects((found,), {parsed.rule: 1}, syntax_error(parsed))
    view = CodeView(source.text, parsed.tree, parsed.warnings, PurePath(source.path).name)
    return _capped([finding for check in CHECKS for finding in _checked(check, view)])


def comment_defects(view: CodeView) -> Iterator[Finding]:
    """Comments that put work off."""
    for comment in todo_comments(view.text):
        yield view.finding_at("todo-comment", comment.line, comment.column, comment.text)


def escape_defects(view: CodeView) -> Iterator[Finding]:
    """What the parser itself warned about."""
    for warning in view.warnings:
        if "escape" in warning.message:
            yield view.finding_at("invalid-escape", warning.line, warning.column, warning.message)


CHECKS: tuple[Check, ...] = (
    handler_defects,
    finally_defects,
    name_defects,
    shadowed_builtins,
    comparison_defects,
    call_defects,
    size_defects,
    mutable_defaults,
    missing_docstrings,
    unreachable_code,
    comment_defects,
    escape_defects,
)


def _checked(check: Check, view: CodeView) -> list[Finding]:
    """Run one check; code nested beyond the interpreter's recursion limit becomes a finding, not a crash."""
    try:
        return list(check(view))
    except RecursionError:
        what = check.__name__.replace("_", " ")
        return [view.finding_at("too-nested", 1, 0, f"nested too deeply to look for {what}")]


def _capped(findings: list[Finding]) -> Defects:
    """Keep the worst; but beyond its first `PLENTY` findings a rule stands behind all others."""
    counts: Counter[str] = Counter()
    ordered: list[tuple[bool, int, Finding]] = []
    for finding in sorted(findings, key=_place):
        counts[finding.rule] += 1
        ordered.append((counts[finding.rule] > PLENTY, -weight(finding.rule), finding))
    ordered.sort(key=lambda item: item[:2])
    kept = sorted((finding for _, _, finding in ordered[:MAX_FINDINGS]), key=_place)
    return Defects(tuple(kept), dict(sorted(counts.items())))


def _place(finding: Finding) -> tuple[int, int, str, str]:
    return finding.line, finding.column, finding.rule, finding.message
