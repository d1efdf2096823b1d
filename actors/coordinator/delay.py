"""`run_at`: when a run that is asked for may begin. Until then it is queued, visible, and can be cancelled."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ...topics.errors import InvalidInput

HEADER = "Callboard-Run-At"


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
