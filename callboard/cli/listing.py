"""Lists of runs from the log itself: always current, and with nothing needed but the broker.

The log is read backwards in growing spans, so the newest states come first and what a list costs depends on how far
back it goes, not on how much there is. A filter that matches little reads further, up to the whole log; the gateway's
`GET /runs` has indexes for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..store.log import decode_record
from ..topics import reads
from ..topics.bus import Bus
from ..topics.errors import InvalidMessage
from ..topics.messages import RunRecord
from ..topics.reads import Stored

_SPAN = 1_000
_SPAN_MAX = 64_000


class Listed(NamedTuple):
    """A run and the sequence of its newest state."""

    record: RunRecord
    sequence: int


async def newest_runs(
    bus: Bus, accept: Callable[[RunRecord], bool], limit: int, *, reach: int | None = None
) -> list[Listed]:
    """At most `limit` runs that `accept` takes, the last changed first.

    `reach`: how many messages of the stream to look back over at most; None is all."""
    info = await bus.api(f"STREAM.INFO.{bus.subjects.events}")
    state = (info or {}).get("state", {})
    high, bottom = int(state.get("last_seq", 0)), max(0, int(state.get("first_seq", 1)) - 1)
    if reach is not None:
        bottom = max(bottom, high - reach)
    found: list[Listed] = []
    seen: set[str] = set()
    span = _SPAN
    while high > bottom and len(found) < limit:
        low = max(bottom, high - span)
        for stored in reversed(await _states(bus, low, high)):
            if stored.subject in seen:
                continue
            seen.add(stored.subject)
            record = _record(stored)
            if record is not None and accept(record):
                found.append(Listed(record, stored.sequence))
                if len(found) == limit:
                    break
        high, span = low, min(span * 2, _SPAN_MAX)
    return found


async def _states(bus: Bus, low: int, high: int) -> list[Stored]:
    """The states after sequence `low` up to `high`, in order."""
    part: list[Stored] = []
    async for page in reads.read(bus, bus.subjects.events, f"{bus.subjects.run}.*.*.state", low):
        part += page if page[-1].sequence <= high else [one for one in page if one.sequence <= high]
        if page[-1].sequence >= high:
            break
    return part


def _record(stored: Stored) -> RunRecord | None:
    try:
        return decode_record(stored.data)
    except InvalidMessage:
        return None
