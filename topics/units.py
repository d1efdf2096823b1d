"""Conversion between Python's durations and the broker's nanoseconds, in this one place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

NANOSECONDS = 1_000_000_000
LAST_YEAR = 2261
"""The broker counts nanoseconds since 1970 in 64 bits, to April 2262: what is due later would be due at once."""
LONGEST_S = 3660 * 86_400.0
"""Ten years: what anybody asks for lies within them."""
_LAST = datetime(LAST_YEAR, 12, 31, 23, 59, 59, tzinfo=UTC)


def nanoseconds(duration: timedelta | float) -> int:
    """A duration (timedelta, or seconds) in the broker's unit."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    return int(seconds * NANOSECONDS)


def schedule_at(moment: datetime) -> str:
    """The header `Nats-Schedule` of a message that is due at `moment`, at the latest in `LAST_YEAR`."""
    return f"@at {min(moment, _LAST).astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def utc(seconds: float) -> datetime:
    """Unix seconds as an aware datetime."""
    return datetime.fromtimestamp(seconds, UTC)


def now() -> datetime:
    """The wall clock, aware. Used for stamps that people read; order is always the broker's sequence."""
    return datetime.now(UTC)
