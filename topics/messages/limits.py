"""How much of an agent's work may be under way at once, and how fast, across all workers."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Priority = Literal["high", "normal", "low"]
"""Which of the runs that wait for their turn at an agent's limits goes first."""


class Limits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits of an agent, part of its registration: the newest registration holds for all workers."""

    concurrency: int
    """Attempts under way at once, by all workers together."""
    per_key: int | None = None
    """Attempts under way at once of runs with the same key."""
    key: str | None = None
    """Where a run's key is found: `thread`, `metadata.NAME`, or `$.NAME` in its input."""
    rate: float | None = None
    """Attempts begun in a second, on the average."""
    burst: int = 1
    """Attempts that may begin at once when none has begun for a while."""
