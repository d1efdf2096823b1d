"""Trace context in message headers: W3C `traceparent`, written in lower case because names are case-sensitive.

Only the API of OpenTelemetry is used here; an entry point that sets up the SDK (`runtime/telemetry.py`) gives its
tracer to `enable()`. Until then nothing is recorded, headers carry nothing, and `enabled()` is all that it costs.

The spans of one run are made in several processes at different times. What holds them together are ids that follow
from the run's id (`ids_of`): the coordinator that creates a run fixes the context of the run's span, everybody names
it as the parent, and the coordinator that ends the run records that span.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags, Tracer

HEADER = "traceparent"

Attributes = Mapping[str, str | int | float | bool]

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_LONGEST = 512
_OFF: AbstractContextManager[Span] = nullcontext(trace.INVALID_SPAN)


class Ids(NamedTuple):
    """The ids that a span is to have; a `span` of 0 leaves that one to chance."""

    trace: int
    span: int = 0


_tracer: Tracer | None = None
_pinned: ContextVar[Ids | None] = ContextVar("callboard_span_ids", default=None)


# -- the switch -------------------------------------------------------------------------------------------------


def enable(tracer: Tracer) -> None:
    """Spans of this process are made by `tracer` from now on. Its provider must take ids from `pinned()`."""
    global _tracer  # noqa: PLW0603  # one switch a process, as OpenTelemetry's own provider is
    _tracer = tracer


def disable() -> None:
    """Nothing is recorded any more."""
    global _tracer  # noqa: PLW0603
    _tracer = None


def enabled() -> bool:
    """Whether spans are recorded in this process."""
    return _tracer is not None


# -- ids and their text -----------------------------------------------------------------------------------------


def ids_of(salt: str, run: str) -> Ids:
    """The ids of a run's span, and of its trace if it is the first of one: whoever creates the run again gets the same.

    `salt` is the installation's secret: equal run ids of two installations are different traces."""
    digest = hashlib.blake2b(f"{salt}\0{run}".encode(), digest_size=24).digest()
    return Ids(int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:]) or 1)


def pinned() -> Ids | None:
    """The ids that the span which is being started must have; None: any."""
    return _pinned.get()


def text(found: SpanContext) -> str:
    """A span context as a `traceparent`."""
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{int(found.trace_flags):02x}"


def parse(value: str | None) -> SpanContext | None:
    """A `traceparent` as a remote span context; None when it is not one (a bad header is ignored, as W3C asks)."""
    found = _FORM.fullmatch(value.strip()) if value and len(value) <= _LONGEST else None
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    flags = TraceFlags(int(found[4], 16))
    context = SpanContext(int(found[2], 16), int(found[3], 16), is_remote=True, trace_flags=flags)
    return context if context.is_valid else None


def traceparent(span: Span | None = None) -> str | None:
    """The `traceparent` of `span` (default: the current one); None when off or without a valid span."""
    if _tracer is None:
        return None
    found = (span or trace.get_current_span()).get_span_context()
    return text(found) if found.is_valid else None


def inject(headers: dict[str, str]) -> dict[str, str]:
    """Adds the current span's `traceparent` to `headers`, if there is one, and returns them."""
    value = traceparent()
    if value is not None:
        headers[HEADER] = value
    return headers


def extract(headers: Mapping[str, str]) -> SpanContext | None:
    """The span context that a message came with; None when off, absent or malformed."""
    return None if _tracer is None else parse(headers.get(HEADER))


# -- spans ------------------------------------------------------------------------------------------------------


def start(
    name: str,
    parent: SpanContext | None,
    ids: Ids,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Attributes | None = None,
    start_ns: int | None = None,
) -> Span:
    """Starts a span with ids that are known beforehand, below `parent` or as the first of the trace `ids.trace`.

    The caller ends it, or lets go of it to have nothing recorded: its context says whether the sampler took it.
    `start_ns`: nanoseconds since 1970, default now. When off, a span that records nothing."""
    if _tracer is None:
        return trace.INVALID_SPAN
    above = Context() if parent is None else _below(parent, Context())
    token = _pinned.set(ids)
    try:
        return _tracer.start_span(name, above, kind, attributes, start_time=start_ns)
    finally:
        _pinned.reset(token)


def span(
    name: str,
    parent: SpanContext | str | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Attributes | None = None,
    ids: Ids | None = None,
) -> AbstractContextManager[Span]:
    """A span around a block, below `parent` (default: the current span). Costs nothing when off.

    `ids`: for a span without a parent, the trace that it belongs to. An exception that leaves the block is recorded,
    makes the span's status an error, and goes on."""
    if _tracer is None:
        return _OFF
    remote = parse(parent) if isinstance(parent, str) else parent
    return _around(_tracer, name, None if remote is None else _below(remote), kind, attributes, ids)


@contextmanager
def _around(
    tracer: Tracer, name: str, above: Context | None, kind: SpanKind, attributes: Attributes | None, ids: Ids | None
) -> Iterator[Span]:
    token = _pinned.set(ids)
    try:
        found = tracer.start_span(name, above, kind, attributes)
    finally:
        _pinned.reset(token)
    with trace.use_span(found, end_on_exit=True):
        yield found


def _below(parent: SpanContext, context: Context | None = None) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(parent), context)
