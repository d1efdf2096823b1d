"""Places inside a value, written as `$.findings[3].owner` or `$["odd key"]`."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LONGEST_KEY = 80


def step(part: str | int) -> str:
    """Return one step: `.name`, `[3]` or `["odd key"]`; long keys are cut, and what is no text is escaped."""
    if isinstance(part, int):
        return f"[{part}]"
    if _PLAIN_NAME.fullmatch(part) and len(part) <= _LONGEST_KEY:
        return f".{part}"
    shown = part if len(part) <= _LONGEST_KEY else part[:_LONGEST_KEY] + "…"
    printable = shown.encode("utf-8", "backslashreplace").decode("utf-8")
    return f"[{msgspec.json.encode(printable).decode()}]"


def join(parts: Iterable[str | int]) -> str:
    """Return the steps without the root sign: `.findings[3].owner`."""
    return "".join(map(step, parts))
