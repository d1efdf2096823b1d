"""Defects that show in calls: dangerous ones, blocking ones, and results that must not be dropped."""

import ast
from collections.abc import Iterator

from .models import Finding
from .view import CodeView, FunctionNode

_BLOCKING = frozenset(
    {"time.sleep", "os.system", "os.wait", "os.waitpid", "urllib.request.urlopen", "socket.create_connection"}
    | {f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "getoutput")}
    | {f"requests.{name}" for name in ("get", "post", "put", "patch", "delete", "head", "request")}
)
_SHELLS = frozenset(f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen"))
_TASKS = frozenset({"asyncio.create_task", "asyncio.ensure_future"})
_READERS = frozenset(
    {"json.load", "pickle.load", "tomllib.load", "marshal.load", "plistlib.load", "csv.reader", "csv.DictReader"}
    | {"list", "tuple", "set", "sorted", "sum", "len", "enumerate", "ast.literal_eval", "yaml.safe_load", "yaml.load"}
)
"""Functions that use a file and do not close it."""


def call_defects(view: CodeView) -> Iterator[Finding]:
    """Check each call."""
    for call in view.of(ast.Call):
        name = view.dotted(call.func)
        yield from _dangerous(view, call, name)
        if name in _BLOCKING and isinstance(view.function(call), ast.AsyncFunctionDef):
            yield view.finding("blocking-call-in-async", call, f"{name}() blocks the event loop")
        if name in _TASKS and isinstance(view.parent(call), ast.Expr):
            yield view.finding("lost-task", call, f"the task of {name}() is not kept")
        if view.calls_builtin(call, "open") and _left_open(view, call):
            yield view.finding("unclosed-file", call, "the file is opened without with and never closed here")


def _dangerous(view: CodeView, call: ast.Call, name: str) -> Iterator[Finding]:
    if view.calls_builtin(call, "eval", "exec") and call.args and not isinstance(call.args[0], ast.Constant):
        yield view.finding("eval-use", call, f"{name}() runs computed text")
    if name in _SHELLS and any(_is_true(keyword) for keyword in call.keywords):
        yield view.finding("shell-true", call, f"{name}(…, shell=True)")
    if name == "tempfile.mktemp":
        yield view.finding("unsafe-temp-name", call, "tempfile.mktemp() only makes a name up; use mkstemp()")


def _is_true(keyword: ast.keyword) -> bool:
    return keyword.arg == "shell" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True


def _left_open(view: CodeView, call: ast.Call) -> bool:
    """Whether the opened file surely stays open: used on the spot, dropped, or kept in a local that only reads it.

    A file that is returned, stored or handed to unknown code may be closed there, and is not reported.
    """
    parent = view.parent(call)
    if isinstance(parent, ast.Attribute):
        return parent.attr != "close"
    if isinstance(parent, ast.Expr):
        return True
    if isinstance(parent, ast.Call):
        return call in parent.args and view.dotted(parent.func) in _READERS
    if isinstance(parent, (ast.For, ast.comprehension)):
        return True
    function = view.function(call)
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and function is not None:
        target = parent.targets[0]
        return isinstance(target, ast.Name) and not _may_be_closed(view, function, target.id)
    return False


def _may_be_closed(view: CodeView, function: FunctionNode, name: str) -> bool:
    """Whether the local is closed or given away, also by inner functions; `global` names belong to the module."""
    for node in ast.walk(function):
        if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
            return True
        used = isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        if used and _gives_away(view, node):
            return True
    return False


def _gives_away(view: CodeView, use: ast.AST) -> bool:
    parent = view.parent(use)
    if isinstance(parent, ast.Attribute):
        return parent.attr in {"close", "__exit__", "detach"} or not isinstance(view.parent(parent), ast.Call)
    if isinstance(parent, ast.Call):
        return view.dotted(parent.func) not in _READERS
    return not isinstance(parent, (ast.For, ast.comprehension))
