"""The steps that describe a module: its outline and its figures."""

import ast
from collections.abc import Iterator

from .complexity import Complexity, maintainability
from .lines import LineCounts, count_lines
from .models import Definition, Kind, Measures, Outline, Source
from .syntax import parse_text, printable, syntax_error
from .view import FUNCTIONS, CodeView, DefinitionNode

MAX_DEFINITIONS = 500
"""So many definitions an outline holds; the rest is only counted."""


def parse(source: Source) -> Outline:
    """List what the module defines and imports. An unreadable or unparsable source gives an outline with `error`."""
    if source.error is not None:
        return Outline(error=source.error)
    parsed = parse_text(source.text)
    if parsed.tree is None:
        return Outline(error=syntax_error(parsed))
    try:
        view = CodeView(source.text, parsed.tree)
        definitions = list(_definitions(view, Complexity(parsed.tree)))
    except RecursionError:
        return Outline(error="nested too deeply for the analysis")
    imports = sorted({printable(name) for name in view.imports.values()})
    documented = ast.get_docstring(parsed.tree, clean=False) is not None
    return Outline(tuple(definitions[:MAX_DEFINITIONS]), tuple(imports), len(definitions), documented)


def measure(source: Source) -> Measures:
    """Measure lines, complexity and maintainability. Never fails; what cannot be measured is 0."""
    parsed = parse_text(source.text)
    nodes = list(ast.walk(parsed.tree)) if parsed.tree is not None else []
    counts = count_lines(source.text, nodes)
    if parsed.tree is None:
        return Measures(*counts)
    try:
        return _measured(parsed.tree, nodes, counts)
    except RecursionError:
        return Measures(*counts)


def _measured(tree: ast.Module, nodes: list[ast.AST], counts: LineCounts) -> Measures:
    complexity = Complexity(tree)
    each = [complexity.of(node) for node in nodes if isinstance(node, FUNCTIONS)]
    statements = sum(isinstance(node, ast.stmt) for node in nodes)
    commented = 100 * (counts.comment + counts.docstring) / counts.code if counts.code else 0.0
    return Measures(
        *counts,
        functions=len(each),
        classes=sum(isinstance(node, ast.ClassDef) for node in nodes),
        complexity_total=complexity.total,
        complexity_max=max(each, default=0),
        complexity_mean=round(sum(each) / len(each), 2) if each else 0.0,
        maintainability=maintainability(tree, complexity.total, statements, commented),
    )


def _definitions(view: CodeView, complexity: Complexity) -> Iterator[Definition]:
    for node, name in view.names.items():
        yield Definition(
            kind=_kind(view, node),
            name=printable(name, 120),
            line=node.lineno,
            end_line=node.end_lineno or node.lineno,
            complexity=_complexity(node, complexity),
            documented=ast.get_docstring(node, clean=False) is not None,
        )


def _kind(view: CodeView, node: DefinitionNode) -> Kind:
    if isinstance(node, ast.ClassDef):
        return "class"
    return "method" if isinstance(view.parent(node), ast.ClassDef) else "function"


def _complexity(node: DefinitionNode, complexity: Complexity) -> int:
    if isinstance(node, FUNCTIONS):
        return complexity.of(node)
    return max((complexity.of(method) for method in node.body if isinstance(method, FUNCTIONS)), default=1)
