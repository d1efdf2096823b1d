"""`Limit` and `Rate`: how much of an agent's work may be under way at once, and how fast, across all workers."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta

from ..topics.errors import InvalidInput
from ..topics.messages import Limits

MOST = 1000
"""Attempts that one agent with limits may have under way: each change of its gate writes all of them down."""
_KEY = re.compile(r"(thread|metadata\.[^\s.]{1,100}|\$\.[^\s.]{1,100})\Z")


@dataclass(frozen=True, kw_only=True)
class Limit:
    """At most `concurrency` attempts at once, and at most `per_key` of runs with the same key.

    A run that waits (for children, for a clock, for a person) has no attempt under way and counts for nothing. A run
    without a key is bound by `concurrency` alone."""

    concurrency: int = MOST
    """1 to 1,000."""
    per_key: int | None = None
    key: str | None = None
    """Where the key of a run is found: `thread`, `metadata.NAME`, or `$.NAME`, a string or number of its input (an
    input too large for a message has none)."""

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= MOST:
            raise InvalidInput(f"{self}: concurrency is 1 to {MOST}")
        if (self.per_key is None) != (self.key is None):
            raise InvalidInput(f"{self}: per_key and key belong together, as per_key=1, key='metadata.tenant'")
        if self.per_key is not None and self.per_key < 1:
            raise InvalidInput(f"{self}: per_key is at least 1")
        if self.key is not None and not _KEY.match(self.key):
            raise InvalidInput(f"{self}: key is 'thread', 'metadata.NAME' or '$.NAME' of the input")


@dataclass(frozen=True)
class Rate:
    """At most `count` attempts begun in `per` on the average, and at most `burst` of them at once.

    In any span of time t at most `burst + count · t/per` begin."""

    count: float
    per: timedelta = timedelta(seconds=1)
    burst: int | None = None
    """None: as many as belong to one second, at least 1."""

    def __post_init__(self) -> None:
        if not (self.count > 0 and math.isfinite(self.count)) or self.per <= timedelta(0):
            raise InvalidInput(f"{self}: count and per are above 0")
        if self.burst is not None and self.burst < 1:
            raise InvalidInput(f"{self}: burst is at least 1")

    @property
    def per_second(self) -> float:
        """The average in attempts a second."""
        return self.count / self.per.total_seconds()


def limits(limit: Limit | None, rate: Rate | None) -> Limits | None:
    """Both as they are registered; None without either."""
    if limit is None and rate is None:
        return None
    bound = limit or Limit()
    burst = 1 if rate is None else rate.burst or max(1, math.ceil(rate.per_second))
    return Limits(
        concurrency=bound.concurrency,
        per_key=bound.per_key,
        key=bound.key,
        rate=None if rate is None else rate.per_second,
        burst=burst,
    )
