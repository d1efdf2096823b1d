"""What each line of a module is: code, comment, docstring or blank. One pass over the tokens."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

_LAYOUT = frozenset(
    {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT}
)
_TODO = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


class LineCounts(NamedTuple):
    """How many lines are what; a line with code and a comment counts as both."""

    total: int
    code: int
    comment: int
    docstring: int
    blank: int


class Comment(NamedTuple):
    """A comment's text with its line (from 1) and column (from 0)."""

    line: int
    column: int
    text: str


def count_lines(text: str, tree: ast.Module | None) -> LineCounts:
    """Count the lines. Without a tree (a syntax error) every line that is not blank or a comment counts as code."""
    lines = text.split("\n")
    total = len(lines) - (lines[-1] == "")
    blank = sum(not line.strip() for line in lines[:total])
    if tree is None:
        comment = sum(line.lstrip().startswith("#") for line in lines)
        return LineCounts(total, total - blank - comment, comment, 0, blank)
    documentation = _docstring_lines(tree)
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokens(text):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in _LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    filled = {number for number, line in enumerate(lines, 1) if line.strip()}
    code = (code - documentation) & filled
    return LineCounts(total, len(code), len(comments), len(documentation & filled), blank)


def todo_comments(text: str) -> Iterator[Comment]:
    """Yield the comments that put work off. The text is tokenized only when such a word stands in it."""
    if not _TODO.search(text):
        return
    for token in tokens(text):
        if token.type == tokenize.COMMENT and _TODO.search(token.string):
            yield Comment(*token.start, token.string.lstrip("# \t"))


def tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """Yield the tokens up to the end, or to where the tokenizer gives up: it is stricter than the parser at times."""
    try:
        yield from tokenize.generate_tokens(io.StringIO(text).readline)
    except (tokenize.TokenError, SyntaxError):
        return


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Lines of strings that stand as statements."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines
