"""A client of the gateway, made of the standard library: what any program that speaks HTTP would do."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import quote

from .errors import DemoError

_ANSWER_S = 15.0
_SILENCE_S = 40.0
"""The gateway sends a comment after 15 s without an event."""


class SentEvent(NamedTuple):
    """One server-sent event."""

    id: str
    kind: str
    data: str


class Gateway:
    """Talks to one gateway. Raises DemoError, with what the gateway said."""

    def __init__(self, url: str) -> None:
        self.url = url

    def submit(self, topic: str, value: Any, metadata: dict[str, Any]) -> str:
        """Publishes a task on a topic and gives the id of its run, which is durable then."""
        body = {"topic": topic, "input": value, "metadata": metadata}
        created = self._json("/runs", json.dumps(body).encode())
        return str(created["run"])

    def run(self, run: str) -> dict[str, Any]:
        """The run as it is now."""
        found: dict[str, Any] = self._json(f"/runs/{quote(run)}")
        return found

    def result(self, run: str) -> Any:
        """What the agent returned."""
        return self._json(f"/runs/{quote(run)}/result")

    def artifact(self, run: str, name: str) -> bytes:
        """The content of an artifact."""
        return self._bytes(f"/runs/{quote(run)}/artifacts/{quote(name)}")

    def events(self, run: str, kinds: str) -> Iterator[SentEvent]:
        """The events of the whole tree of a run, from the first one to its end.

        A broken connection is made again where it ended, as browsers do it; what was seen is not seen again. Raises
        OSError or HTTPException when that fails three times in a row."""
        last, failures = "", 0
        while failures < 3:
            failures += 1
            try:
                for event in self._stream(f"/runs/{quote(run)}/events?tree=true&kinds={kinds}", last):
                    if event.kind == "end":
                        return
                    last, failures = event.id or last, 0
                    yield event
            except (OSError, HTTPException):
                if failures == 3:
                    raise

    def _stream(self, path: str, last: str) -> Iterator[SentEvent]:
        request = urllib.request.Request(self.url + path, headers={"Last-Event-ID": last} if last else {})  # noqa: S310
        with urllib.request.urlopen(request, timeout=_SILENCE_S) as answer:  # noqa: S310
            fields: dict[str, str] = {}
            for raw in answer:
                line = raw.decode().rstrip("\n")
                if line:
                    name, _, text = line.partition(": ")
                    fields[name] = text
                    continue
                if "event" in fields:
                    yield SentEvent(fields.get("id", ""), fields["event"], fields.get("data", ""))
                fields = {}

    def _json(self, path: str, body: bytes | None = None) -> Any:
        return json.loads(self._bytes(path, body))

    def _bytes(self, path: str, body: bytes | None = None) -> bytes:
        headers = {} if body is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, body, headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")[:500]
            raise DemoError(f"the gateway answers {error.code} to {request.method} {path}: {said}") from error
        except (OSError, HTTPException) as error:
            raise DemoError(f"the gateway does not answer {request.method} {path}: {error}") from error
