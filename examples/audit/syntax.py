"""Parsing text to a tree without ever failing, and without letting the parser's warnings reach the terminal."""

import ast
import threading
import warnings
from typing import Literal, NamedTuple

_FILE = "<audited source>"
_warnings_lock = threading.Lock()


class Problem(NamedTuple):
    """Something that the parser said about a line (counted from 1) and column (from 0)."""

    line: int
    column: int
    message: str


class Parsed(NamedTuple):
    """Either a tree or the reason why there is none; and the parser's warnings, such as invalid escapes."""

    tree: ast.Module | None
    error: Problem | None
    warnings: tuple[Problem, ...] = ()
    rule: Literal["syntax-error", "too-nested"] = "syntax-error"
    """Which rule an `error` breaks."""


def parse_text(text: str) -> Parsed:
    """Parse source text. Text that is no Python, or too deeply nested for the parser, gives an `error`.

    Warning filters belong to the whole process, so parsing holds a lock while it replaces them; a warning that
    another thread raises in those milliseconds is not shown.
    """
    try:
        with _warnings_lock, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tree = ast.parse(text, filename=_FILE)
    except SyntaxError as error:
        column = max((error.offset or 1) - 1, 0)
        return Parsed(None, Problem(max(error.lineno or 1, 1), column, printable(error.msg or "invalid syntax")))
    except (RecursionError, MemoryError):
        return Parsed(None, Problem(1, 0, "nested too deeply for the parser"), rule="too-nested")
    except ValueError as error:
        return Parsed(None, Problem(1, 0, printable(str(error))))
    said = (Problem(w.lineno, 0, printable(str(w.message))) for w in caught if w.filename == _FILE)
    return Parsed(tree, None, tuple(said))


def syntax_error(parsed: Parsed) -> str | None:
    """The parse error as a clause for a report: "line 3: invalid syntax"; None when there is a tree."""
    return None if parsed.error is None else f"line {parsed.error.line}: {parsed.error.message}"


def printable(text: str, limit: int = 200) -> str:
    """One line of at most `limit` characters, without lone surrogates and control characters, which fits into JSON."""
    clean = "".join(char if char.isprintable() else " " for char in text.encode("utf-8", "backslashreplace").decode())
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
