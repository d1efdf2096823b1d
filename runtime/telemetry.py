"""OpenTelemetry for a process: set up by entry points, and only when the standard environment variables ask for it.

| variable | effect |
| --- | --- |
| `OTEL_TRACES_EXPORTER=otlp` | spans are sent by OTLP over HTTP |
| `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set | the same, to there |
| `OTEL_TRACES_EXPORTER=console` | spans are printed as JSON on standard error |
| `OTEL_TRACES_EXPORTER=none`, `OTEL_SDK_DISABLED=true` | nothing, whatever else is set |

The other variables of the SDK (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`,
`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_BSP_…`) work as the SDK documents them. docs/telemetry.md has the whole.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..topics import trace as trace_context
from ..topics.errors import InvalidInput

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.trace.id_generator import IdGenerator

log = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_FLUSH_S = 2.0
_DISTRIBUTION = "callboard"


def wanted_exporter(environment: Mapping[str, str]) -> str | None:
    """Which exporter the environment asks for: `otlp`, `console`, or None.

    Raises InvalidInput for the name of one that is not built in, and for OTLP over anything but HTTP."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    named = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if named == "none":
        return None
    if named not in {"", "otlp", "console"}:
        raise InvalidInput(f"OTEL_TRACES_EXPORTER={named!r} is not known: use otlp, console or none")
    if not named and not any(environment.get(name, "").strip() for name in _ENDPOINTS):
        return None
    if named != "console":
        _require_http(environment)
    return named or "otlp"


def _require_http(environment: Mapping[str, str]) -> None:
    for name in _PROTOCOLS:
        protocol = environment.get(name, "").strip().lower()
        if protocol:
            if protocol != "http/protobuf":
                raise InvalidInput(
                    f"{name}={protocol!r}: spans are sent by http/protobuf only; unset it, and name the collector's "
                    "HTTP port (4318 by default) in OTEL_EXPORTER_OTLP_ENDPOINT"
                )
            return


def set_up_telemetry(role: str, environment: Mapping[str, str] | None = None) -> Callable[[], None]:
    """Begins to record spans if the environment asks for it. `role` names the service unless the environment does.

    Gives the function that sends what is left (in at most two seconds) and ends it; call it last. When nothing is
    asked for, the SDK is not even imported. Raises InvalidInput."""
    env = os.environ if environment is None else environment
    exporter = wanted_exporter(env)
    if exporter is None:
        return _nothing
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=_resource(role), id_generator=_pinned_ids(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_exporter(exporter)))
    trace.set_tracer_provider(provider)  # for what agents record themselves; ours is used even if one is set already
    trace_context.enable(provider.get_tracer("callboard"))
    log.info("spans are exported (%s)", exporter)
    return lambda: _end(provider)


def _end(provider: TracerProvider) -> None:
    """Sends what is left. The exporter may retry for longer than anybody waits: it is left behind then."""
    trace_context.disable()
    last = threading.Thread(target=provider.shutdown, name="telemetry-end", daemon=True)
    last.start()
    last.join(_FLUSH_S)
    if last.is_alive():
        log.warning("spans of the last moments could not be sent within %g s", _FLUSH_S)


def _resource(role: str) -> Resource:
    """What is said of this process; what the environment says goes first."""
    from opentelemetry.sdk.resources import Resource

    said = Resource.create()
    own = {
        "service.name": f"callboard-{role}",
        "service.version": _version(),
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
    }
    given = {
        name: value
        for name, value in said.attributes.items()
        if not (name == "service.name" and str(value).startswith("unknown_service"))
    }
    return said.merge(Resource({name: value for name, value in own.items() if name not in given}))


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def _pinned_ids() -> IdGenerator:
    """Random ids, but for spans whose ids are known beforehand."""
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class PinnedIds(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            ids = trace_context.pinned()
            return ids.trace if ids is not None else super().generate_trace_id()

        def generate_span_id(self) -> int:
            ids = trace_context.pinned()
            return ids.span if ids is not None and ids.span else super().generate_span_id()

    return PinnedIds()


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _nothing() -> None:
    """There is nothing to end."""
