"""OpenTelemetry for a process: set up by entry points, and only when the standard environment variables ask for it.

| variable | effect |
| --- | --- |
| `OTEL_TRACES_EXPORTER=otlp` | spans are sent by OTLP over HTTP |
| `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set | the same, to there |
| `OTEL_TRACES_EXPORTER=console` | spans are printed as JSON on standard error |
| `OTEL_TRACES_EXPORTER=none`, `OTEL_SDK_DISABLED=true` | nothing, whatever else is set |

The other variables of the SDK (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`,
`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_BSP_…`) work as the SDK documents them.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..topics import trace as trace_context
from ..topics.errors import InvalidInput

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_FLUSH_MS = 2000


def wanted_exporter(environment: Mapping[str, str]) -> str | None:
    """Which exporter the environment asks for: `otlp`, `console`, or None.

    Raises InvalidInput for the name of one that is not built in."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    named = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if named in {"otlp", "console"}:
        return named
    if named == "none":
        return None
    if named:
        raise InvalidInput(f"OTEL_TRACES_EXPORTER={named!r} is not known: use otlp, console or none")
    return "otlp" if any(environment.get(name, "").strip() for name in _ENDPOINTS) else None


def set_up_telemetry(role: str, environment: Mapping[str, str] | None = None) -> Callable[[], None]:
    """Begins to record spans if the environment asks for it. `role` names the service unless OTEL_SERVICE_NAME does.

    Gives the function that sends what is left (at most two seconds) and ends it; call it last. When nothing is asked
    for, the SDK is not even imported."""
    env = os.environ if environment is None else environment
    exporter = wanted_exporter(env)
    if exporter is None:
        return _nothing
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({} if env.get("OTEL_SERVICE_NAME") else {"service.name": f"callboard-{role}"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_exporter(exporter)))
    trace.set_tracer_provider(provider)
    trace_context.enable()
    log.info("spans are exported (%s)", exporter)

    def end() -> None:
        trace_context.enable(False)
        provider.force_flush(_FLUSH_MS)
        provider.shutdown()

    return end


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _nothing() -> None:
    """There is nothing to end."""
