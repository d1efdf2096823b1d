"""Names: what pyflakes finds out about them, and builtins that are hidden by others."""

import ast
import builtins
from collections.abc import Iterator

from pyflakes import messages  # type: ignore[import-untyped]  # pyflakes ships no types
from pyflakes.checker import Checker  # type: ignore[import-untyped]

from .models import Finding
from .view import FUNCTIONS, CodeView

_SITE = frozenset({"copyright", "credits", "license", "exit", "quit", "help"})
_BUILTINS = frozenset(name for name in dir(builtins) if not name.startswith("_")) - _SITE

_RULES: dict[type[messages.Message], str] = {
    messages.UndefinedName: "undefined-name",
    messages.UndefinedLocal: "undefined-name",
    messages.UndefinedExport: "undefined-name",
    messages.UnusedImport: "unused-import",
    messages.UnusedVariable: "unused-variable",
    messages.UnusedAnnotation: "unused-variable",
    messages.RedefinedWhileUnused: "redefinition",
    messages.ImportShadowedByLoopVar: "redefinition",
    messages.ImportStarUsed: "star-import",
    messages.MultiValueRepeatedKeyLiteral: "duplicate-key",
    messages.MultiValueRepeatedKeyVariable: "duplicate-key",
    messages.AssertTuple: "tuple-condition",
    messages.IfTuple: "tuple-condition",
    messages.IsLiteral: "literal-identity",
    messages.FStringMissingPlaceholders: "empty-fstring",
    messages.RaiseNotImplemented: "raise-not-implemented",
    messages.InvalidPrintSyntax: "misplaced-statement",
    messages.ReturnOutsideFunction: "misplaced-statement",
    messages.YieldOutsideFunction: "misplaced-statement",
    messages.ContinueOutsideLoop: "misplaced-statement",
    messages.BreakOutsideLoop: "misplaced-statement",
    messages.DefaultExceptNotLast: "misplaced-statement",
    messages.DuplicateArgument: "misplaced-statement",
    messages.TwoStarredExpressions: "misplaced-statement",
    messages.TooManyExpressionsInStarredAssignment: "misplaced-statement",
    messages.LateFutureImport: "misplaced-statement",
    messages.FutureFeatureNotDefined: "misplaced-statement",
    messages.ImportStarNotPermitted: "misplaced-statement",
    messages.ForwardAnnotationSyntaxError: "misplaced-statement",
}
_FORMATS = ("PercentFormat", "StringDotFormat")


def name_defects(view: CodeView) -> Iterator[Finding]:
    """What pyflakes reports, under our rules. Imports of a package's `__init__` are its interface, not unused."""
    filename = "package/__init__.py" if view.package else "module.py"
    for message in Checker(view.tree, filename=filename, withDoctest=False).messages:
        rule = _rule(message)
        if rule is None or (rule == "unused-import" and view.package):
            continue
        yield view.finding_at(rule, message.lineno, message.col, message.message % message.message_args)


def shadowed_builtins(view: CodeView) -> Iterator[Finding]:
    """Builtins that a variable, parameter or function hides; attributes of classes hide nothing. Once per scope."""
    seen: set[tuple[ast.AST | None, str]] = set()
    for node, name in _bindings(view):
        scope = view.function(node)
        if name in _BUILTINS and (scope, name) not in seen:
            seen.add((scope, name))
            yield view.finding("shadowed-builtin", node, f"{name} hides the builtin of that name")


def _rule(message: messages.Message) -> str | None:
    """The rule for a message; None for those that say nothing about the module (lazy imports, doctests)."""
    if type(message).__name__.startswith(_FORMATS):
        return "format-mismatch"
    return _RULES.get(type(message))


def _bindings(view: CodeView) -> Iterator[tuple[ast.stmt | ast.expr | ast.arg, str]]:
    for name in view.of(ast.Name):
        if isinstance(name.ctx, ast.Store) and not _in_class_body(view, name):
            yield name, name.id
    for argument in view.of(ast.arg):
        yield argument, argument.arg
    for definition in view.names:
        if not _in_class_body(view, definition):
            yield definition, definition.name


def _in_class_body(view: CodeView, node: ast.AST) -> bool:
    around = view.parent(node)
    while around is not None and not isinstance(around, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
        around = view.parent(around)
    return isinstance(around, ast.ClassDef)
