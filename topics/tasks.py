"""What a request for a run may say: told before a task is published as well as when it is taken."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from .errors import InvalidInput
from .ids import require_run_id
from .messages import TaskRequest, encode
from .subjects import require_token
from .units import LAST_YEAR, LONGEST_S
from .versions import require_version

_KEY_CHARS = 512


def require_valid(request: TaskRequest, metadata_limit: int) -> None:
    """Raises InvalidInput (InvalidSubject, InvalidRunId), which says what cannot be and what may. `metadata_limit`: in
    bytes. A fork's own terms are not looked at."""
    if request.fork is None:
        if bool(request.agent) == bool(request.topic):
            raise InvalidInput("a task names either an agent or a topic: set exactly one of the two")
        require_token("agent" if request.agent else "topic", request.agent or request.topic or "")
    require_version(request.version or "")
    _require_name(request.run, request.key)
    _require_moment(request.run_at)
    for name, seconds in (("deadline_s", request.deadline_s), ("wait_timeout_s", request.wait_timeout_s)):
        if seconds is not None and not 0 < seconds <= LONGEST_S:  # also refuses nan
            raise InvalidInput(f"{name} {seconds:g} is no limit: give more than 0 and at most {LONGEST_S:.0f} seconds")
    if request.thread is not None:
        require_token("thread", request.thread)
    elif request.policy is not None and request.fork is None:
        raise InvalidInput(f"policy {request.policy!r} says what to do in a busy thread: name the thread as well")
    require_metadata(request.metadata, metadata_limit)


def require_metadata(metadata: dict[str, Any] | None, limit: int) -> None:
    """Raises InvalidInput for metadata of more than `limit` bytes, which would make a record that cannot change."""
    if metadata and len(encode(metadata)) > limit:
        raise InvalidInput(f"metadata is above {limit} bytes: put large values into the input")


def _require_name(run: str | None, key: str | None) -> None:
    if run is not None and "~" in require_run_id(run):
        raise InvalidInput(f"run id {run!r} is a child's: leave out '~' and what follows it", run=run)
    if key is None:
        return
    if run is not None:
        raise InvalidInput(
            f"the task has an id ({run}) and an idempotency key, which stands for one: give one of them", run=run
        )
    if not 0 < len(key) <= _KEY_CHARS:
        raise InvalidInput(f"an idempotency key has 1 to {_KEY_CHARS} characters, not {len(key)}")


def _require_moment(run_at: datetime | float | None) -> None:
    if isinstance(run_at, datetime):
        if run_at.tzinfo is None:
            raise InvalidInput(f"run_at {run_at.isoformat()} has no time zone: add Z or an offset such as +02:00")
        if not 1 < run_at.year <= LAST_YEAR:
            raise InvalidInput(f"run_at {run_at.isoformat()} is beyond the calendar: give a time up to {LAST_YEAR}")
    elif run_at is not None and not 0 <= run_at <= LONGEST_S:
        raise InvalidInput(f"run_at {run_at:g} is not a delay: give 0 to {LONGEST_S:.0f} seconds, or a time")
