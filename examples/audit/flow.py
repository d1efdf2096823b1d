"""Code that can never run."""

import ast
from collections.abc import Iterator
from itertools import pairwise

from .models import Finding
from .view import CodeView

_JUMPS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_WORDS = {ast.Return: "return", ast.Raise: "raise", ast.Continue: "continue", ast.Break: "break"}


def unreachable_code(view: CodeView) -> Iterator[Finding]:
    """The first statement of each block that stands after the block has been left for good."""
    for block in _blocks(view):
        for last, following in pairwise(block):
            if _leaves(last):
                if not _makes_generator(following):
                    word = _WORDS.get(type(last), "a statement that always leaves")
                    yield view.finding("unreachable-code", following, f"never runs: it follows {word} in its block")
                break


def _blocks(view: CodeView) -> Iterator[list[ast.stmt]]:
    for owner in (node for kind in _OWNERS for node in view.of(kind)):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(owner, name, None)
            if isinstance(block, list) and len(block) > 1:
                yield block


_OWNERS: tuple[type[ast.AST], ...] = (
    ast.Module,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.TryStar,
    ast.ExceptHandler,
    ast.match_case,
)


def _leaves(statement: ast.stmt) -> bool:
    """Whether control never reaches the end of the statement. `with` may swallow, so it never counts."""
    if isinstance(statement, _JUMPS):
        return True
    if isinstance(statement, ast.If):
        branches = (statement.body, statement.orelse)
        return all(branch and _leaves(branch[-1]) for branch in branches)
    if isinstance(statement, ast.While):
        endless = isinstance(statement.test, ast.Constant) and bool(statement.test.value)
        return endless and not any(_breaks(child) for child in statement.body)
    return False


def _breaks(node: ast.AST) -> bool:
    """Whether a break in here ends the loop around it."""
    if isinstance(node, ast.Break):
        return True
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return False
    if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        return any(_breaks(child) for child in node.orelse)
    return any(_breaks(child) for child in ast.iter_child_nodes(node))


def _makes_generator(statement: ast.stmt) -> bool:
    """`return` followed by `yield` is the usual way to write an empty generator."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, (ast.Yield, ast.YieldFrom))
