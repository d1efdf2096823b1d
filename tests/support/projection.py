"""Messages as the log holds them, for tests of the projection: built by hand, or written to a real stream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Raw

from callboard.topics.bus import Bus
from callboard.topics.messages import NOTHING, Artifact, Payload, RunRecord, Status, ThreadMessage, ThreadRecord, encode
from callboard.topics.reads import Stored
from callboard.topics.subjects import Subjects

START = datetime(2026, 1, 1, tzinfo=UTC)


def record(run: str, status: Status = Status.QUEUED, second: float = 0, **fields: Any) -> RunRecord:
    """A record of `run` that was created `second` seconds behind START."""
    created = START + timedelta(seconds=second)
    given: dict[str, Any] = {"agent": "reviewer", "input": NOTHING, "created_at": created, "updated_at": created}
    return RunRecord(id=run, root=run.partition("~")[0], status=status, **(given | fields))


class Tape:
    """A stream written by hand: each call gives the next message."""

    def __init__(self, namespace: str = "cb") -> None:
        self.subjects = Subjects(namespace)
        self.messages: list[Stored] = []

    def raw(self, subject: str, data: bytes) -> Stored:
        sequence = len(self.messages) + 1
        stamp = START + timedelta(seconds=sequence)
        self.messages.append(Stored(subject, sequence, data, None, stamp.isoformat()))
        return self.messages[-1]

    def state(self, run: str, status: Status = Status.QUEUED, second: float = 0, **fields: Any) -> Stored:
        return self.raw(self.subjects.state(run), encode(record(run, status, second, **fields)))

    def artifact(self, run: str, name: str, attempt: int = 1, n: int = 1, size: int = 3) -> Stored:
        return self.raw(self.subjects.event(run, "artifact"), encode(artifact(name, attempt, n, size)))

    def thread(self, thread: str, second: float = 0, **fields: Any) -> Stored:
        body = ThreadRecord(id=thread, created_at=START + timedelta(seconds=second), **fields)
        return self.raw(f"{self.subjects.thread}.{thread}.record", encode(body))

    def message(self, thread: str, **fields: Any) -> Stored:
        body = ThreadMessage(role="user", content=Payload(json=Raw(b'"hello"')), **fields)
        return self.raw(f"{self.subjects.thread}.{thread}.message", encode(body))


def artifact(name: str, attempt: int = 1, n: int = 1, size: int = 3) -> Artifact:
    """An artifact entry with a text of `size` bytes."""
    return Artifact(
        at="1",
        attempt=attempt,
        n=n,
        name=name,
        media_type="text/plain",
        size=size,
        digest=f"sha256:{n}",
        text="x" * size,
    )


async def publish(bus: Bus, messages: Iterable[tuple[str, bytes]], window: int = 500) -> int:
    """Stores messages on a real stream, pipelined; returns the last sequence."""
    pending: list[asyncio.Future[int]] = []
    last = 0
    for subject, data in messages:
        pending.append(bus.write(subject, data))
        if len(pending) >= window:
            last = (await asyncio.gather(*pending))[-1]
            pending = []
    return (await asyncio.gather(*pending))[-1] if pending else last


def life(bus: Bus, run: str, second: float, **fields: Any) -> list[tuple[str, bytes]]:
    """The three states of a run that goes well."""
    subject = bus.subjects.state(run)
    states = (Status.QUEUED, Status.RUNNING, Status.COMPLETED)
    return [(subject, encode(record(run, one, second, rev=rev + 1, **fields))) for rev, one in enumerate(states)]
