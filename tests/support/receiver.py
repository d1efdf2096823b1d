"""A receiver of webhooks for tests: a real HTTP server that checks signatures, and is slow or fails as told."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import msgspec

from callboard.runtime.nats_port import free_ports


class Received(NamedTuple):
    """One event that came in."""

    id: str
    type: str
    data: dict[str, Any]
    valid: bool
    """Whether the signature is right, made with the receiver's own key at about this time."""
    path: str
    host: str


class Receiver:
    """`start()` and `stop()` any number of times, on the same port. `status` is what it answers."""

    def __init__(self, secret: str) -> None:
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}/hooks?x=1"
        self.key = base64.b64decode(secret.removeprefix("whsec_"))
        self.got: list[Received] = []
        self.status = 204
        self.headers: dict[str, str] = {}
        self.delay_s = 0.0
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> Receiver:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                time.sleep(receiver.delay_s)
                if server is not receiver._server:  # stopped meanwhile; this connection was kept alive
                    self.close_connection = True
                    return
                receiver.got.append(receiver.judged(self.path, dict(self.headers.items()), body))
                self.send_response(receiver.status)
                for name, text in receiver.headers.items():
                    self.send_header(name, text)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        server = self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def judged(self, path: str, headers: dict[str, str], body: bytes) -> Received:
        found = {name.lower(): text for name, text in headers.items()}
        id_, stamp = found["webhook-id"], found["webhook-timestamp"]
        signed = f"{id_}.{stamp}.".encode() + body
        right = "v1," + base64.b64encode(hmac.new(self.key, signed, hashlib.sha256).digest()).decode()
        valid = right in found["webhook-signature"].split(" ") and abs(time.time() - int(stamp)) < 30
        event = msgspec.json.decode(body)
        return Received(id_, event["type"], event["data"], valid, path, found["host"])

    def of(self, type_: str) -> list[Received]:
        """What came in of one type."""
        return [one for one in self.got if one.type == type_]
