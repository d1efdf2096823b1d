"""A gateway as a process of its own, and what stands behind it: a coordinator and a projector, in a thread."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec

from callboard.actors.coordinator import Coordinator
from callboard.runtime.host import Host
from callboard.runtime.nats_port import free_ports
from callboard.store.log import EventLog
from callboard.store.projection import Projection, ProjectionFeed
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.ids import new_run_id
from callboard.topics.messages import NOTHING, Event, Payload, RunRecord, Status, encode
from callboard.topics.streams import ensure_streams
from tests.support.nursery import Process, born

START_S = 20.0


class Gateway:
    """`python -m callboard.gateway` on a port of its own; `kill` and `start` crash and restart it."""

    def __init__(self, broker: BrokerSettings, projection: Path, **settings: Any) -> None:
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self._environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith(("CALLBOARD_", "NATS_"))},
            "NATS_URL": broker.nats_url,
            "CALLBOARD_NAMESPACE": broker.namespace,
            "CALLBOARD_REPLICAS": str(broker.replicas),
            "CALLBOARD_PORT": str(self.port),
            "CALLBOARD_PROJECTION": str(projection),
            **{f"CALLBOARD_{name.upper()}": str(value) for name, value in settings.items()},
        }
        self.process: Process | None = None

    def start(self, *, ready: bool = True) -> None:
        self.process = born(["-m", "callboard.gateway"], self._environment)
        self.wait_for("/readyz" if ready else "/healthz")

    def wait_for(self, path: str, status: int = 200) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                if httpx.get(self.url + path, timeout=5).status_code == status:
                    return
            except httpx.TransportError:
                assert self.process is not None
                assert self.process.poll() is None, "the gateway ended"
            assert time.monotonic() < deadline, f"{path} is not {status}"
            time.sleep(0.05)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def terminate(self, within_s: float = 15.0) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within_s)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextmanager
def gateway(broker: BrokerSettings, projection: Path, *, ready: bool = True, **settings: Any) -> Iterator[Gateway]:
    found = Gateway(broker, projection, **settings)
    try:
        found.start(ready=ready)
        yield found
    finally:
        found.stop()


@contextmanager
def backstage(broker: BrokerSettings, projection: Path) -> Iterator[None]:
    """A coordinator and a projector, in a thread with a loop of its own."""
    loop, up = asyncio.new_event_loop(), threading.Event()
    stop = asyncio.Event()

    async def play() -> None:
        bus = await Bus.connect(broker)
        await ensure_streams(bus, broker)
        read_model = await Projection.open(projection)
        feed = ProjectionFeed(bus, read_model)
        feeding = asyncio.create_task(feed.run())
        host = Host(bus)
        host.add(lambda: Coordinator(bus))
        await host.start()
        up.set()
        await stop.wait()
        await host.stop()
        await feed.stop()
        await feeding
        await read_model.close()
        await bus.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(play(),))
    thread.start()
    try:
        assert up.wait(START_S), "the coordinator did not start"
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(START_S)
        loop.close()


# --- runs written by hand ------------------------------------------------------------------------------------------


class Writer:
    """Writes the log of a run as coordinator and worker would."""

    def __init__(self, bus: Bus, run: str | None = None, parent: str | None = None) -> None:
        self._log = EventLog(bus)
        self.run = run or new_run_id()
        now = datetime.now(UTC)
        self.record = RunRecord(
            id=self.run, root=self.run.partition("~")[0], parent=parent, agent="writer", status=Status.QUEUED,
            input=NOTHING, created_at=now, updated_at=now,
        )  # fmt: skip
        self.state = 0
        self.n = 0

    async def to(self, status: Status, **fields: Any) -> int:
        changed = {"status": status, "updated_at": datetime.now(UTC), "rev": self.record.rev + (1 if self.state else 0)}
        self.record = msgspec.structs.replace(self.record, **changed, **fields)
        self.state = await self._log.append_state(self.record, self.state)
        return self.state

    async def begin(self) -> Writer:
        await self.to(Status.QUEUED)
        await self.to(Status.RUNNING, attempt=1)
        return self

    def event(self, text: str = "word") -> Event:
        self.n += 1
        data = Payload(json=msgspec.Raw(msgspec.json.encode({"text": text, "n": self.n})))
        return Event(at=str(self.n), attempt=1, n=self.n, type="delta", data=data)

    def write(self, *events: Event, kind: str = "delta") -> asyncio.Future[int]:
        body = encode(events[0]) if len(events) == 1 else encode(list(events))
        return self._log.append(self.run, kind, body, self.state)


# --- event streams -------------------------------------------------------------------------------------------------


class Sse:
    """One event as a client sees it."""

    def __init__(self, text: str) -> None:
        self.id = self.event = ""
        data: list[str] = []
        for line in text.split("\n"):
            name, _, value = line.partition(": ")
            if name == "id":
                self.id = value
            elif name == "event":
                self.event = value
            elif name == "data":
                data.append(value)
        self.data: Any = msgspec.json.decode("\n".join(data)) if data else None

    @property
    def entry(self) -> Any:
        return self.data["entry"]


async def events(
    client: httpx.AsyncClient, path: str, comments: list[str] | None = None, **options: Any
) -> AsyncIterator[Sse]:
    """The events of a stream until it ends, `end` included; comments and hints go to `comments`."""
    async with client.stream("GET", path, timeout=httpx.Timeout(30), **options) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        rest = ""
        async for text in answer.aiter_text():
            *found, rest = (rest + text).split("\n\n")
            for one in found:
                event = Sse(one)
                if event.data is not None:
                    yield event
                elif comments is not None:
                    comments.append(one)


async def all_events(client: httpx.AsyncClient, path: str, **options: Any) -> list[Sse]:
    return [event async for event in events(client, path, **options)]
