"""Defects of comparisons."""

import ast
from collections.abc import Iterator

from .models import Finding
from .view import CodeView


def comparison_defects(view: CodeView) -> Iterator[Finding]:
    """Comparisons by == with None, True or False, and comparisons whose result nobody uses."""
    for compare in view.of(ast.Compare):
        yield from _with_singletons(view, compare)
        if isinstance(view.parent(compare), ast.Expr):
            yield view.finding("useless-comparison", compare, "the result of this comparison is not used")


def _with_singletons(view: CodeView, compare: ast.Compare) -> Iterator[Finding]:
    sides = [compare.left, *compare.comparators]
    for left, operator, right in zip(sides, compare.ops, sides[1:], strict=False):
        if not isinstance(operator, (ast.Eq, ast.NotEq)):
            continue
        sign, word = ("==", "is") if isinstance(operator, ast.Eq) else ("!=", "is not")
        values = [side.value for side in (left, right) if isinstance(side, ast.Constant)]
        if any(value is None for value in values):
            yield view.finding("none-comparison", compare, f"comparison with None by {sign}; use `{word} None`")
        elif any(value is True or value is False for value in values):
            yield view.finding("bool-comparison", compare, f"comparison with a truth value by {sign}")
