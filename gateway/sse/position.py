"""A place in a log as an SSE id names it: `{sequence}`, or `{sequence}.{i}` inside a message that carries a list."""

from __future__ import annotations

import re

from ...topics.reads import MAX_SEQUENCE
from ..errors import InvalidRequest

Position = tuple[int, int]
"""(stream sequence, entry). A message's last entry, or its only one, has `WHOLE`; earlier entries count from 1."""

WHOLE = 1 << 40
START: Position = (0, WHOLE)
_ID = re.compile(r"(\d{1,19})(?:\.(\d{1,9}))?\Z", re.ASCII)


def parse(text: str) -> Position:
    """The position that an SSE id names; 0 is the one before the first event. Raises InvalidRequest."""
    match = _ID.match(text)
    sequence = int(match[1]) if match else -1
    if match is None or sequence > MAX_SEQUENCE or (match[2] and not sequence):
        raise InvalidRequest(
            f"{text[:40]!r} is not an event id: give the id of the last event that was seen, such as 1207 or 1207.2",
            errors=[{"where": "after", "what": "not an event id"}],
        )
    return sequence, int(match[2]) if match[2] else WHOLE


def log_after(position: Position) -> int:
    """The sequence after which the log has to be read to continue at `position`."""
    sequence, part = position
    return sequence if part == WHOLE else sequence - 1
