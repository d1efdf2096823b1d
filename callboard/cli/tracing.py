"""The trace that a command's work belongs to: TRACEPARENT of the environment, and a span of its own if spans are sent.

TRACEPARENT is what build servers and `otel-cli` set, so that a pipeline's trace goes on in the runs it starts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_ENVIRONMENT = "TRACEPARENT"


@contextmanager
def command_trace(name: str) -> Iterator[str | None]:
    """Around a whole command: gives the traceparent to send with a task; None when there is none. The span is sent when
    the block ends.

    Nothing of OpenTelemetry is imported unless the environment speaks of it. Raises InvalidInput for settings that
    are not understood."""
    came_with = os.environ.get(_ENVIRONMENT)
    if came_with is None and not any(variable.startswith("OTEL_") for variable in os.environ):
        yield None
        return
    from opentelemetry.trace import SpanKind

    from ..runtime.telemetry import set_up_telemetry
    from ..topics import trace

    end = set_up_telemetry("cli")
    try:
        parent = trace.parse(came_with)
        with trace.span(name, parent, SpanKind.PRODUCER):
            yield trace.traceparent() or (None if parent is None else trace.text(parent))
    finally:
        end()
