"""The gate of an agent with limits: which of its attempts may be under way."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

KEYLESS = "-"
"""In place of the key of a run that has none."""


class Holder(Struct, frozen=True, omit_defaults=True):
    """An attempt that was let through. It holds its slot as long as its run is queued or at work with this dispatch."""

    run: str
    dispatch: int
    key: str = KEYLESS


class Gate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cb.gate.{agent}`, written under a fence by the coordinators. What waits before it stands on
    `cb.work.{agent}.{priority}.{key}`."""

    agent: str
    holders: list[Holder] = []
    last: dict[str, str] = {}
    """By priority: the key that was served last; the next round begins behind it."""
    tokens: float = 0.0
    """Attempts that the rate had left at `filled_at`; without that time, the bucket is full."""
    filled_at: datetime | None = None
