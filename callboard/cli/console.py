"""What goes to standard output: JSON for programs, coloured tables for a terminal, plain lines for everything else."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from .wording import clean

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {
    "completed": "green", "running": "cyan", "queued": "yellow", "waiting": "blue",
    "input_required": "magenta", "auth_required": "magenta",
    "cancel_requested": "yellow", "failed": "red", "timed_out": "red", "orphaned": "red", "rejected": "red",
    "canceled": "bright_black", "interrupted": "bright_black", "rolled_back": "bright_black",
    "ok": "green", "note": "blue", "warning": "yellow", "problem": "red",
}  # fmt: skip


class Output:
    """Standard output. `json` is what the user asked for with `--json`."""

    def __init__(self, json: bool = False) -> None:
        self.json = json

    @cached_property
    def _console(self) -> Console | None:
        """The terminal; None when output goes elsewhere."""
        if self.json or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
            return None
        from rich.console import Console

        return Console(highlight=False, soft_wrap=True)  # honours NO_COLOR by itself

    def record(self, value: Any) -> None:
        """One JSON value on a line of its own."""
        sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
        sys.stdout.flush()

    def records(self, values: Sequence[Any]) -> None:
        """One JSON value a line."""
        sys.stdout.writelines(msgspec.json.encode(value).decode() + "\n" for value in values)
        sys.stdout.flush()

    def line(self, text: str = "", style: str | None = None) -> None:
        """A line of text."""
        console = self._console
        if console is None or style is None:
            sys.stdout.write(text + "\n")
        else:
            console.print(text, style=style, markup=False)
        sys.stdout.flush()

    def parts(self, *parts: tuple[str, str | None]) -> None:
        """A line of parts, each with a style."""
        console = self._console
        if console is None:
            sys.stdout.write("".join(text for text, _ in parts).rstrip() + "\n")
        else:
            from rich.text import Text

            console.print(Text.assemble(*((text, style or "") for text, style in parts)))
        sys.stdout.flush()

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], none: str) -> None:
        """Rows under headings; the text `none`, on standard error, when there are no rows."""
        if not rows:
            note(none)
            return
        cells = [[clean(cell) for cell in row] for row in rows]
        widths = [max(len(title), *(len(row[i]) for row in cells)) for i, title in enumerate(columns)]
        self.parts(*((title.ljust(width + 2), "bold") for title, width in zip(columns, widths, strict=True)))
        for row in cells:
            pairs = zip(row, widths, strict=True)
            self.parts(*((cell.ljust(width + 2), STYLES.get(cell)) for cell, width in pairs))

    def fields(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Names and values, one pair a line; empty values are left out."""
        shown = [(name, text) for name, text in pairs if text not in {"", "-"}]
        width = max((len(name) for name, _ in shown), default=0)
        for name, text in shown:
            self.parts((f"{name.ljust(width)}  ", "bold"), (clean(text), STYLES.get(text)))


def note(text: str) -> None:
    """A line for people, on standard error, so that standard output stays what was asked for."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
