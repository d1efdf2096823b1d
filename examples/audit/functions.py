"""Defects of definitions: size, complexity, signature, documentation."""

import ast
from collections.abc import Iterator

from .complexity import Complexity
from .models import Finding
from .rules import EXTREME_COMPLEXITY, MAX_ARGUMENTS, MAX_COMPLEXITY, MAX_FUNCTION_LINES, MAX_NESTING
from .view import FUNCTIONS, CodeView, DefinitionNode, FunctionNode

_MUTABLE_CALLS = frozenset(
    {"list", "dict", "set", "bytearray"}
    | {f"collections.{name}" for name in ("defaultdict", "deque", "OrderedDict", "Counter", "ChainMap")}
)
_MUTABLE = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
_NESTING = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
_UNDOCUMENTED = frozenset({"overload", "override", "setter", "deleter", "singledispatch", "register"})
"""Decorators of functions whose contract is written elsewhere."""


def size_defects(view: CodeView) -> Iterator[Finding]:
    """Functions that are too complex, too long, too deeply nested, or take too many positional arguments."""
    complexity = Complexity(view.tree)
    for function in view.functions():
        yield from _complexity(view, function, complexity.of(function))
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > MAX_FUNCTION_LINES:
            yield view.finding("long-function", function, f"{function.name}() has {lines} lines")
        arguments = _positional(view, function)
        if arguments > MAX_ARGUMENTS:
            yield view.finding("too-many-arguments", function, f"{function.name}() takes {arguments} arguments")
        depth = max((_depth(statement) for statement in function.body), default=0)
        if depth > MAX_NESTING:
            yield view.finding("deep-nesting", function, f"{function.name}() is nested {depth} levels deep")


def mutable_defaults(view: CodeView) -> Iterator[Finding]:
    """Defaults that all calls of a function share and that can change."""
    for function in (*view.functions(), *view.of(ast.Lambda)):
        for default in (*function.args.defaults, *function.args.kw_defaults):
            if default is None:
                continue
            made = isinstance(default, ast.Call) and view.dotted(default.func) in _MUTABLE_CALLS
            if made or isinstance(default, _MUTABLE):
                text = ast.unparse(default)
                yield view.finding("mutable-default", default, f"mutable default {text} is shared by all calls")


def missing_docstrings(view: CodeView) -> Iterator[Finding]:
    """Public modules, classes, functions and methods without a docstring. What a private one holds is private."""
    if view.private:
        return
    if view.tree.body and not ast.get_docstring(view.tree, clean=False):
        yield view.finding_at("missing-docstring", 1, 0, "module without a docstring")
    for node, name in view.names.items():
        if _public(view, node) and not ast.get_docstring(node, clean=False):
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            yield view.finding("missing-docstring", node, f"public {kind} {name} without a docstring")


def _complexity(view: CodeView, function: FunctionNode, value: int) -> Iterator[Finding]:
    if value > EXTREME_COMPLEXITY:
        yield view.finding("very-complex-function", function, f"{function.name}() has a complexity of {value}")
    elif value > MAX_COMPLEXITY:
        yield view.finding("complex-function", function, f"{function.name}() has a complexity of {value}")


def _positional(view: CodeView, function: FunctionNode) -> int:
    count = len(function.args.posonlyargs) + len(function.args.args)
    bound = isinstance(view.parent(function), ast.ClassDef) and "staticmethod" not in _decorators(function)
    return count - (bound and count > 0)


def _depth(node: ast.AST) -> int:
    """Levels of nesting from here on. An elif is no deeper than its if."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.expr)):
        return 0
    if isinstance(node, ast.If):
        chained = len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)
        below = 1 + max((_depth(child) for child in node.body), default=0)
        other = max((_depth(child) for child in node.orelse), default=0)
        return max(below, other + (not chained))
    below = max((_depth(child) for child in ast.iter_child_nodes(node)), default=0)
    return below + isinstance(node, _NESTING)


def _public(view: CodeView, node: DefinitionNode) -> bool:
    if any(part.startswith("_") for part in view.names[node].split(".")) or view.function(node) is not None:
        return False
    around = view.parent(node)
    while around is not None:
        if isinstance(around, FUNCTIONS):
            return False
        around = view.parent(around)
    return not _UNDOCUMENTED.intersection(_decorators(node))


def _decorators(node: DefinitionNode) -> set[str]:
    """The last names of the decorators: `x.setter` is "setter"."""
    names = set()
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        names.add(target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", ""))
    return names
