"""`run_at`: when a run that is asked for may begin. Until then it is queued, visible, and can be cancelled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ...topics import units
from ...topics.errors import InvalidInput

HEADER = "Callboard-Run-At"
_LONGEST_S = 3660 * 86_400.0


def require_valid(run_at: datetime | float | None) -> None:
    """Raises InvalidInput for a time without a zone, and for seconds that are none."""
    if isinstance(run_at, datetime):
        if run_at.tzinfo is None:
            raise InvalidInput(f"run_at {run_at.isoformat()} has no time zone: add Z or an offset such as +02:00")
        if not 1 < run_at.year <= units.LAST_YEAR:
            raise InvalidInput(
                f"run_at {run_at.isoformat()} is beyond the calendar: give a time up to {units.LAST_YEAR}"
            )
    elif run_at is not None and not 0 <= run_at <= _LONGEST_S:
        raise InvalidInput(f"run_at {run_at:g} is not a delay: give 0 to {_LONGEST_S:.0f} seconds, or a time")


def of_header(text: str | None) -> datetime | float | None:
    """The header of a task: an ISO time with a zone, or seconds from when the task was stored. Raises InvalidInput."""
    if text is None:
        return None
    try:
        found: datetime | float = float(text)
    except ValueError:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise InvalidInput(
                f"header {HEADER} {text[:60]!r} is neither an ISO time with a zone nor a number of seconds"
            ) from None
    require_valid(found)
    return found


def moment(run_at: datetime | float | None, taken: datetime) -> datetime | None:
    """The time that is meant, in UTC; seconds count from `taken`."""
    if run_at is None or isinstance(run_at, datetime):
        return None if run_at is None else run_at.astimezone(UTC)
    return taken + timedelta(seconds=run_at)


def to_come(run_at: datetime | float | None, now: datetime) -> datetime | None:
    """The time before which nothing is dispatched; None when there is nothing to wait for."""
    found = moment(run_at, now)
    return found if found is not None and found > now else None


def text(run_at: datetime | float | None) -> str:
    """As it goes into the digest of a request."""
    if isinstance(run_at, datetime):
        return run_at.astimezone(UTC).isoformat()
    return "" if run_at is None else f"{float(run_at)!r}"
