"""Conversion between Python's durations and the broker's nanoseconds, in this one place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

NANOSECONDS = 1_000_000_000


def nanoseconds(duration: timedelta | float) -> int:
    """A duration (timedelta, or seconds) in the broker's unit."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    return int(seconds * NANOSECONDS)


def utc(seconds: float) -> datetime:
    """Unix seconds as an aware datetime."""
    return datetime.fromtimestamp(seconds, UTC)


def now() -> datetime:
    """The wall clock, aware. Used for stamps that people read; order is always the broker's sequence."""
    return datetime.now(UTC)
