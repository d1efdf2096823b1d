"""One row of the table, and how a row is made of the rounds' values."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass
class Figure:
    """One row. `reached` is None where the figure is only reported."""

    name: str
    value: float
    unit: str
    target: str = ""
    reached: bool | None = None
    note: str = ""


def reported(name: str, values: list[float], unit: str, note: str = "") -> Figure:
    """The median, with nothing to reach."""
    return Figure(name, statistics.median(values), unit, note=note or spread(values))


def at_most(name: str, values: list[float], unit: str, limit: float, note: str = "") -> Figure:
    """The median, which is to be at most `limit`."""
    value = statistics.median(values)
    return Figure(name, value, unit, f"≤ {limit:g}", value <= limit, note or spread(values))


def at_least(name: str, values: list[float], unit: str, limit: float, note: str = "") -> Figure:
    """The median, which is to be at least `limit`."""
    value = statistics.median(values)
    return Figure(name, value, unit, f"≥ {limit:g}", value >= limit, note or spread(values))


def spread(values: list[float]) -> str:
    """The smallest and the largest, for the notes."""
    return f"{min(values):.4g} to {max(values):.4g}" if len(values) > 1 else ""
