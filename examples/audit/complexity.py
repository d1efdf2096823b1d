"""Cyclomatic complexity and maintainability, computed by radon.

`radon.raw.analyze` is not used: it tokenizes every statement anew for each of its lines, 35 s for the standard
library packages of the demo where one pass over the tokens takes one. The line counts come from `lines.py`.
"""

import ast
from collections.abc import Iterator

from radon.metrics import h_visit_ast, mi_compute  # type: ignore[import-untyped]  # radon ships no types
from radon.visitors import Class, ComplexityVisitor, Function  # type: ignore[import-untyped]

Place = tuple[int, int]


class Complexity:
    """The complexities of one tree. Lookup is by the place (line, column) of the `def`."""

    def __init__(self, tree: ast.Module) -> None:
        """Visits the whole tree once. Raises RecursionError when it is nested too deeply."""
        visitor = ComplexityVisitor.from_ast(tree)
        self.total: int = visitor.total_complexity
        self._known = dict(_places(visitor.functions, visitor.classes))

    def of(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
        """Complexity of one function without its inner functions; 1 is a straight line."""
        place = (function.lineno, function.col_offset)
        if place not in self._known:  # radon leaves out the methods of classes that stand inside functions
            visitor = ComplexityVisitor.from_ast(function)
            self._known.update(_places(visitor.functions, visitor.classes))
        return self._known[place]


def maintainability(tree: ast.Module, complexity: int, statements: int, comment_percent: float) -> float:
    """The maintainability index, 0 to 100, from Halstead volume, complexity, statements and the share of comments."""
    volume = h_visit_ast(tree).total.volume
    return round(float(mi_compute(volume, complexity, statements, min(comment_percent, 100.0))), 1)


def _places(functions: list[Function], classes: list[Class]) -> Iterator[tuple[Place, int]]:
    for function in functions:
        yield (function.lineno, function.col_offset), function.complexity
        yield from _places(function.closures, [])
    for found in classes:
        yield from _places(found.methods, found.inner_classes)
