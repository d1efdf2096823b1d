"""Defects of exception handling."""

import ast
from collections.abc import Iterator

from .models import Finding
from .view import CodeView, inside

_BROAD = frozenset({"Exception", "BaseException", "builtins.Exception", "builtins.BaseException"})
_LOGGING = frozenset({"debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log", "print"})
_TRACES = frozenset({"print_exc", "print_exception", "print_last", "format_exc", "format_exception", "exc_info"})
_PASSING_ON = frozenset(
    {"excepthook", "set_exception", "throw", "fail", "abort", "exit", "_exit", "handle_error", "handleError"}
    | {"handle_exception", "call_exception_handler", "report_error"}
)
_TELLING = _LOGGING | _TRACES | _PASSING_ON
"""Calls by which a handler makes an exception known or ends the program."""


def handler_defects(view: CodeView) -> Iterator[Finding]:
    """Swallowed exceptions, bare and broad handlers; the worst that is true of a handler, once."""
    for handler in view.of(ast.ExceptHandler):
        if not _broad(view, handler) or _raises(handler):
            continue
        caught = "any exception" if handler.type is None else ast.unparse(handler.type)
        if all(_does_nothing(statement) for statement in handler.body):
            yield view.finding("swallowed-exception", handler, f"{caught} is caught and nothing is done about it")
        elif handler.type is None:
            yield view.finding("bare-except", handler, "bare except without raising again; name what is expected")
        elif not _tells(handler):
            yield view.finding("broad-except", handler, f"{caught} is caught, neither raised, logged nor passed on")


def finally_defects(view: CodeView) -> Iterator[Finding]:
    """return, break or continue that leave a finally block."""
    blocks: list[ast.Try | ast.TryStar] = [*view.of(ast.Try), *view.of(ast.TryStar)]
    statements = [statement for block in blocks for statement in block.finalbody]
    for leaving in (found for statement in statements for found in _leaving(statement, in_loop=False)):
        word = type(leaving).__name__.lower()
        yield view.finding("return-in-finally", leaving, f"{word} in finally drops the exception on its way")


def _broad(view: CodeView, handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(view.dotted(kind) in _BROAD for kind in types)


def _raises(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) for node in inside(handler))


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.Pass, ast.Continue, ast.Break)):
        return True
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _tells(handler: ast.ExceptHandler) -> bool:
    """Whether the exception is used, or a call makes it known."""
    for node in inside(handler):
        if isinstance(node, ast.Name) and handler.name is not None and node.id == handler.name:
            return True
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in _TELLING:
                return True
    return False


def _leaving(node: ast.AST, in_loop: bool) -> Iterator[ast.stmt]:
    if isinstance(node, ast.Return) or (not in_loop and isinstance(node, (ast.Break, ast.Continue))):
        yield node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return
    looping = in_loop or isinstance(node, (ast.For, ast.AsyncFor, ast.While))
    for child in ast.iter_child_nodes(node):
        yield from _leaving(child, looping)
