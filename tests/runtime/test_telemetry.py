"""Traces: off and free by default, on by the standard variables, in headers that any language reads."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from callboard.runtime.telemetry import set_up_telemetry, wanted_exporter
from callboard.topics import trace
from callboard.topics.errors import InvalidInput

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("environment", "exporter"),
    [
        ({}, None),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, None),
    ],
)
def test_the_standard_variables_decide(environment: dict[str, str], exporter: str | None) -> None:
    assert wanted_exporter(environment) == exporter


def test_an_unknown_exporter_is_refused() -> None:
    with pytest.raises(InvalidInput, match="zipkin"):
        set_up_telemetry("worker", {"OTEL_TRACES_EXPORTER": "zipkin"})


def test_off_nothing_is_written_read_or_recorded() -> None:
    set_up_telemetry("worker", {})()
    assert not trace.enabled()
    with trace.span("x", PARENT) as span:
        assert not span.is_recording()
        assert trace.inject({}) == {}
    assert trace.extract({"traceparent": PARENT}) is None


@pytest.mark.parametrize(
    "header",
    [
        "",
        "garbage",
        PARENT.upper(),
        PARENT[:-3],
        "ff" + PARENT[2:],
        PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
    ],
)
def test_a_malformed_header_is_ignored(header: str) -> None:
    assert trace.parse(header) is None


PROGRAM = """
from callboard.runtime.telemetry import set_up_telemetry
from callboard.topics import trace
end = set_up_telemetry("worker")
with trace.span("outer", {parent!r}, attributes={{"run": "r1"}}):
    with trace.span("inner"):
        headers = trace.inject({{}})
print(headers["traceparent"])
assert trace.extract(headers) is not None
end()
"""


class Collector(BaseHTTPRequestHandler):
    bodies: list[tuple[str, bytes]] = []  # noqa: RUF012

    def do_POST(self) -> None:
        self.bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def collector() -> Iterator[HTTPServer]:
    Collector.bodies = []
    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_spans_continue_the_trace_of_the_header_and_are_sent(collector: HTTPServer) -> None:
    environment = {
        "PATH": "",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
    }
    code = PROGRAM.format(parent=PARENT)
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=30, check=True
    )
    assert ended.stdout.startswith("00-0af7651916cd43dd8448eb211c80319c-")
    [(path, body)] = Collector.bodies
    assert path == "/v1/traces"
    assert b"outer" in body
    assert b"inner" in body
    assert b"callboard-worker" in body


def test_off_the_sdk_is_not_even_imported() -> None:
    code = (
        "import sys; from callboard.runtime.telemetry import set_up_telemetry; set_up_telemetry('x'); "
        "assert not any(name.startswith('opentelemetry.sdk') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], env={"PATH": ""}, timeout=30, check=True)
