"""A telemetry collector for tests: a real HTTP server that takes spans by OTLP and keeps them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Wire
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class Span:
    """A span as it was received. Ids in hexadecimal, times in nanoseconds."""

    trace: str
    id: str
    parent: str
    """Empty for the first of its trace."""
    name: str
    service: str
    instance: str
    kind: str
    start: int
    end: int
    attributes: dict[str, Any]
    failed: bool
    message: str
    events: tuple[str, ...]

    @property
    def traceparent(self) -> str:
        """The header that names it as a parent."""
        return f"00-{self.trace}-{self.id}-01"


class Collector:
    """Keeps what it is sent; `url` is the value of OTEL_EXPORTER_OTLP_ENDPOINT."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.spans: list[Span] = []
        self.paths: set[str] = set()

    def take(self, path: str, body: bytes) -> None:
        """One export request."""
        self.paths.add(path)
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _attributes(group.resource.attributes)
            self.spans += [_span(one, resource) for scope in group.scope_spans for one in scope.spans]

    def of(self, trace: str) -> list[Span]:
        """The spans of one trace, in the order of their start."""
        return sorted((span for span in self.spans if span.trace == trace), key=lambda span: span.start)

    def of_run(self, run: str) -> list[Span]:
        """The spans that name a run."""
        return sorted(
            (span for span in self.spans if span.attributes.get("callboard.run") == run), key=lambda span: span.start
        )

    async def until(self, condition: Callable[[], bool], within_s: float = 15.0) -> None:
        """Waits until enough has been received."""
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, "\n".join(map(str, self.spans))
            await asyncio.sleep(0.05)


def _span(one: Wire, resource: dict[str, Any]) -> Span:
    return Span(
        trace=one.trace_id.hex(),
        id=one.span_id.hex(),
        parent=one.parent_span_id.hex(),
        name=one.name,
        service=resource["service.name"],
        instance=resource["service.instance.id"],
        kind=Wire.SpanKind.Name(one.kind).removeprefix("SPAN_KIND_").lower(),
        start=one.start_time_unix_nano,
        end=one.end_time_unix_nano,
        attributes=_attributes(one.attributes),
        failed=one.status.code == Status.STATUS_CODE_ERROR,
        message=one.status.message,
        events=tuple(event.name for event in one.events),
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    return getattr(value, value.WhichOneof("value") or "string_value")


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector on a free port of loopback, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.take(self.path, body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Collector(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
