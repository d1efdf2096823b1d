"""What each line of a module is: code, comment, docstring or blank; and the comments that put work off."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_TODO = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


class LineCounts(NamedTuple):
    """How many lines are what. Each line is one thing: code with a comment behind it is code."""

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


def count_lines(text: str, nodes: Iterable[ast.AST] = ()) -> LineCounts:
    """Count the lines; `nodes` are all nodes of the tree, none when the text does not parse.

    The tree tells which lines belong to strings, so that no tokenizer is needed: it takes longer than the parser.
    """
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    documentation, quoted = _string_lines(nodes)
    comment = docstring = blank = 0
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line:
            blank += 1
        elif number in documentation:
            docstring += 1
        elif line.startswith("#") and number not in quoted:
            comment += 1
    return LineCounts(len(lines), len(lines) - comment - docstring - blank, comment, docstring, blank)


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


def _string_lines(nodes: Iterable[ast.AST]) -> tuple[set[int], set[int]]:
    """Lines of strings that stand as statements, and lines on which another string of several lines goes on."""
    documentation: set[int] = set()
    quoted: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documentation.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, (ast.Constant, ast.JoinedStr)) and node.end_lineno != node.lineno:
            quoted.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    return documentation, quoted
