"""The spans of a worker: one for each attempt, one for each execution of a step. Asked only when spans are recorded.

A step whose result is remembered from an earlier attempt has none: nothing was executed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from opentelemetry.trace import Span, SpanKind, StatusCode

from ...topics import trace
from ...topics.messages import ErrorInfo, Outcome, RunRecord


def attempt_span(record: RunRecord, salt: str) -> AbstractContextManager[Span]:
    """Around an attempt, below the span of its run.

    Without one (the coordinators record no spans, and the task came with none) the attempts of a tree of runs are at
    least in one trace."""
    return trace.span(
        f"attempt {record.agent}",
        parent=record.trace,
        kind=SpanKind.CONSUMER,
        attributes=_identity(record),
        ids=trace.Ids(trace.ids_of(salt, record.root).trace),
    )


def attempt_ended(span: Span, outcome: Outcome | None) -> None:
    """Says on the span how the attempt ended; None: its run is owned by somebody else now."""
    span.set_attribute("callboard.outcome", "lost" if outcome is None else outcome.kind)
    if outcome is None:
        return
    span.set_attribute("callboard.steps", outcome.steps)
    if outcome.error is not None:
        _failed(span, outcome.error)


def step_span(record: RunRecord, name: str, place: str) -> AbstractContextManager[Span]:
    """Around the execution of a step, its retries included, below the current span."""
    return trace.span(f"step {name}", attributes=_identity(record) | {"callboard.step": name, "callboard.place": place})


def _identity(record: RunRecord) -> dict[str, str | int]:
    return {
        "callboard.run": record.id,
        "callboard.root": record.root,
        "callboard.agent": record.agent,
        "callboard.attempt": record.attempt,
    }


def _failed(span: Span, error: ErrorInfo) -> None:
    span.set_status(StatusCode.ERROR, error.message)
    span.set_attribute("error.type", error.code)
    event = {"exception.type": error.type or error.code, "exception.message": error.message}
    if error.traceback:
        event["exception.stacktrace"] = error.traceback
    span.add_event("exception", event)
