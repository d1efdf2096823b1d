"""The span of a run: from its creation to its end, which different coordinators may see.

Its context is fixed when the run is created (`RunRecord.trace`), with ids that follow from the run's id, and its
parent is kept (`RunRecord.trace_parent`); whichever coordinator writes the terminal state records the span. A
coordinator that records no spans passes on what the task came with, and the run has no span of its own then.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace
from opentelemetry.trace import SpanKind, StatusCode

from ...topics import trace
from ...topics.bus import Bus
from ...topics.messages import RunRecord, Status

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ERRORS = frozenset({Status.FAILED, Status.TIMED_OUT, Status.REJECTED, Status.ORPHANED})


class RunTracing:
    """Places runs in their traces and records their spans."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus  # its salt is known once the streams are declared

    def placed(self, record: RunRecord) -> RunRecord:
        """A run to be created, whose `trace` is what the request came with, with the context of its own span.

        A `trace` that is no traceparent is dropped."""
        if record.trace is None and not trace.enabled():
            return record
        parent = trace.parse(record.trace)
        came_with = None if parent is None else trace.text(parent)
        if not trace.enabled():
            return replace(record, trace=came_with)
        ids = trace.ids_of(self._bus.salt, record.id)
        # Not the span itself, which begins and ends at once at the end of the run: the sampler's word on it.
        asked = trace.start(_name(record), parent, ids, kind=SpanKind.CONSUMER, attributes=_identity(record))
        context = asked.get_span_context()
        if context.span_id != ids.span:  # a provider that does not let us choose: the run stays without a span
            return replace(record, trace=came_with)
        return replace(record, trace=trace.text(context), trace_parent=came_with)

    def came_with(self, record: RunRecord) -> str | None:
        """What the request that created the run came with."""
        return record.trace_parent if self._has_span(record) else record.trace

    def ended(self, record: RunRecord) -> None:
        """Records the span of a run that has just become terminal."""
        context = trace.parse(record.trace)
        if context is None or not context.trace_flags.sampled or not self._has_span(record):
            return
        span = trace.start(
            _name(record),
            trace.parse(record.trace_parent),
            trace.Ids(context.trace_id, context.span_id),
            kind=SpanKind.CONSUMER,
            attributes=_identity(record) | _ending(record),
            start_ns=_nanoseconds(record.created_at),
        )
        if record.started_at is not None:
            span.add_event("started", timestamp=_nanoseconds(record.started_at))
        if record.status in _ERRORS:
            span.set_status(StatusCode.ERROR, record.error.message if record.error else record.reason)
        span.end(_nanoseconds(record.ended_at or record.updated_at))

    def _has_span(self, record: RunRecord) -> bool:
        """Whether `trace` is the context of the run's own span, and not what the request came with."""
        found = trace.parse(record.trace)
        return found is not None and found.span_id == trace.ids_of(self._bus.salt, record.id).span


def _name(record: RunRecord) -> str:
    return f"run {record.agent or record.topic}"


def _identity(record: RunRecord) -> dict[str, str | int]:
    found = {
        "callboard.run": record.id,
        "callboard.root": record.root,
        "callboard.agent": record.agent,
        "callboard.parent": record.parent,
        "callboard.topic": record.topic,
        "callboard.thread": record.thread,
    }
    return {name: value for name, value in found.items() if value}


def _ending(record: RunRecord) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "callboard.status": str(record.status),
        "callboard.attempts": record.attempt,
        "callboard.steps": record.steps,
    }
    if record.status in _ERRORS:
        found["error.type"] = record.error.code if record.error else str(record.status)
    return found


def _nanoseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
