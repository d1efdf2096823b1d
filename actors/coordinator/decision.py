"""What `transitions.decide` answers with, and the few ways in which a record changes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from ...topics.messages import RunRecord, Status
from .run_commands import Verdict

MAX_LOSSES = 5
"""A run whose process died this often without a result or a suspension in between is taken for the cause of it."""


class Decision(NamedTuple):
    """What becomes of a command: the next record (`changed`), or why there is none.

    `applied`: it was carried out before; `stale`: it belongs to something that is over; `later`: it may be early;
    `refused`: the status does not allow it."""

    verdict: Verdict
    record: RunRecord | None = None


APPLIED, STALE, LATER, REFUSED = Decision("applied"), Decision("stale"), Decision("later"), Decision("refused")


def following(record: RunRecord, now: datetime, status: Status, **changes: object) -> Decision:
    """The next record."""
    return Decision("changed", replace(record, status=status, rev=record.rev + 1, updated_at=now, **changes))


def finished(record: RunRecord, now: datetime, status: Status, **changes: object) -> Decision:
    """The last record. Of answers that the code did not take it is only remembered that they were given; of effects
    that nobody knows about, that there are such."""
    if record.unknown:
        changes = {"left": True} | changes
    if record.interrupts or record.answers:
        marks = [*(record.answered or ()), *(one.mark for one in record.answers or ())]
        changes = {"interrupts": None, "answers": None, "answered": marks or None} | changes
    return following(
        record, now, status, ended_at=now, waits=None, wake_at=None, hears=False, worker=None, lease=0, unknown=None,
        **changes,
    )  # fmt: skip


def queued(record: RunRecord, now: datetime, reason: str | None, **changes: object) -> Decision:
    """Back to the queue, to be dispatched at once. Sent anew, it has waited since it was queued. With its `dispatch`
    and `lease` the work message that it had goes on."""
    wait_until = record.wait_until
    if record.wait_timeout_s is not None and (record.status is not Status.QUEUED or record.wake_at is not None):
        wait_until = now + timedelta(seconds=record.wait_timeout_s)
    changes = {"dispatch": record.dispatch + 1, "lease": 0} | changes
    return following(
        record,
        now,
        Status.QUEUED,
        reason=reason,
        waits=None,
        wake_at=None,
        hears=False,
        worker=None,
        wait_until=wait_until,
        **changes,
    )
