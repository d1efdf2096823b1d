"""Trace context in message headers: W3C `traceparent`, written in lower case because names are case-sensitive.

Only the API of OpenTelemetry is used here; what an entry point sets up (`runtime/telemetry.py`) decides whether
anything is recorded. Until `enable()` is called every function returns at once, and headers carry nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context, trace
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags, TraceState

HEADER = "traceparent"
_enabled = False


def enable(on: bool = True) -> None:
    """Says that spans are recorded in this process. Called once by the entry point that set up an exporter."""
    global _enabled  # noqa: PLW0603  # one switch a process, as OpenTelemetry's own provider is
    _enabled = on


def enabled() -> bool:
    """Whether spans are recorded in this process."""
    return _enabled


def traceparent(span: Span | None = None) -> str | None:
    """The `traceparent` of `span` (default: the current one); None when off or without a valid span."""
    if not _enabled:
        return None
    found = (span or trace.get_current_span()).get_span_context()
    if not found.is_valid:
        return None
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{int(found.trace_flags):02x}"


def inject(headers: dict[str, str]) -> dict[str, str]:
    """Adds the current span's `traceparent` to `headers`, if there is one, and returns them."""
    value = traceparent()
    if value is not None:
        headers[HEADER] = value
    return headers


def parse(value: str | None) -> SpanContext | None:
    """A `traceparent` as a remote span context; None when it is not one (a bad header is ignored, as W3C asks)."""
    parts = (value or "").strip().split("-")
    if len(parts) < 4 or [len(part) for part in parts[:4]] != [2, 32, 16, 2] or parts[0] == "ff":
        return None
    if value is not None and value != value.lower():
        return None
    try:
        ids, span, flags = int(parts[1], 16), int(parts[2], 16), int(parts[3], 16)
    except ValueError:
        return None
    found = SpanContext(ids, span, is_remote=True, trace_flags=TraceFlags(flags), trace_state=TraceState())
    return found if found.is_valid else None


def extract(headers: Mapping[str, str]) -> SpanContext | None:
    """The span context that a message came with; None when off, absent or malformed."""
    return parse(headers.get(HEADER)) if _enabled else None


@contextmanager
def span(
    name: str,
    parent: SpanContext | str | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Mapping[str, str | int | float | bool] | None = None,
) -> Iterator[Span]:
    """A span around a block, below `parent` (default: the current span). Costs nothing when off.

    An exception that leaves the block is recorded and goes on."""
    if not _enabled:
        yield trace.INVALID_SPAN
        return
    remote = parse(parent) if isinstance(parent, str) else parent
    above = None if remote is None else trace.set_span_in_context(NonRecordingSpan(remote), context.get_current())
    tracer = trace.get_tracer("callboard")
    with tracer.start_as_current_span(name, above, kind, attributes) as found:
        yield found
