"""Event streams while things break: no gap, no double, whoever disconnects and whatever is killed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import httpx
import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import CallboardError
from callboard.topics.messages import Status

from .serving import Gateway, Sse, Writer, events, gateway

DEADLINE_S = 40.0


async def follow(url: str, run: str, found: list[Sse], *, hops: random.Random | None = None, tree: bool = True) -> None:
    """A client that connects again with the id of the last event it has seen, until the end; with `hops` it also
    leaves by itself after a random number of events."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            headers = {"last-event-id": found[-1].id} if found else {}
            leave_after = hops.randint(1, 300) if hops else 1 << 60
            try:
                async with httpx.AsyncClient(base_url=url) as client:
                    async for event in events(client, f"/runs/{run}/events?tree={tree}", headers=headers):
                        if event.event == "end":
                            return
                        found.append(event)
                        leave_after -= 1
                        if not leave_after:
                            break
            except (httpx.TransportError, AssertionError):
                await asyncio.sleep(0.05)


def check(found: list[Sse], writers: list[Writer]) -> None:
    """Everything written, once, in the order of the log."""
    places = [tuple(int(part) for part in event.id.split(".")) for event in found]
    keys = [(place[0], place[1] if len(place) > 1 else 1 << 30) for place in places]
    assert keys == sorted(set(keys)), "not in order, or twice"
    for writer in writers:
        own = [event for event in found if event.data["run"] == writer.run]
        assert [event.entry["n"] for event in own if event.event == "delta"] == list(range(1, writer.n + 1))
        assert own[-1].entry["status"] in {"completed", "failed"}


async def write(writer: Writer, count: int, seed: int) -> None:
    """Single events and lists, some awaited and some in a burst; written again when the broker was away."""
    chance = random.Random(seed)
    while writer.n < count:
        batch = [[writer.event() for _ in range(chance.choice((1, 1, 3)))] for _ in range(chance.randint(1, 20))]
        for one in batch:
            await _written(writer, one)
        if chance.random() < 0.3:
            await asyncio.sleep(0.002)


async def _written(writer: Writer, entries: list) -> None:  # type: ignore[type-arg]
    while True:
        try:
            await writer.write(*entries)
        except CallboardError as error:
            if not error.retryable:
                raise
            await asyncio.sleep(0.05)
        else:
            return


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.proof)])
async def test_random_disconnects_under_concurrent_writers(served: Gateway, bus: Bus, seed: int) -> None:
    root = await Writer(bus).begin()
    children = [await Writer(bus, f"{root.run}~{index:016}", parent=root.run).begin() for index in range(3)]
    writers = [root, *children]
    clients: list[list[Sse]] = [[] for _ in range(6)]
    following = [
        asyncio.create_task(
            follow(served.url, root.run, found, hops=random.Random(f"{seed} {index}") if index else None)
        )
        for index, found in enumerate(clients)
    ]
    await asyncio.gather(*(write(writer, 400, seed * 10 + index) for index, writer in enumerate(writers)))
    for child in children:
        await child.to(Status.COMPLETED)
    await root.to(Status.COMPLETED)
    await asyncio.gather(*following)
    for found in clients:
        check(found, writers)


@pytest.mark.crash
async def test_a_killed_gateway_loses_nothing_for_its_clients(
    settings: BrokerSettings, projection: Path, bus: Bus
) -> None:
    with gateway(settings, projection) as killed:
        writer = await Writer(bus).begin()
        found: list[Sse] = []
        following = asyncio.create_task(follow(killed.url, writer.run, found))
        writing = asyncio.create_task(write(writer, 1500, 1))
        for _ in range(2):
            await asyncio.sleep(0.4)
            killed.kill()
            await asyncio.to_thread(killed.start)
        await writing
        await writer.to(Status.COMPLETED)
        await following
        check(found, [writer])


@pytest.mark.crash
async def test_a_killed_nats_server_loses_nothing_for_connected_clients(
    nats: ServerProcess, settings: BrokerSettings, projection: Path, bus: Bus
) -> None:
    """The streams stay open meanwhile, and the hub reads what it missed from the log."""
    with gateway(settings, projection, ping_s=60) as there:
        writer = await Writer(bus).begin()
        clients: list[list[Sse]] = [[], []]
        following = [asyncio.create_task(follow(there.url, writer.run, found)) for found in clients]
        writing = asyncio.create_task(write(writer, 2500, 2))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(nats.kill)
        assert httpx.get(f"{there.url}/healthz").status_code == 200
        await asyncio.sleep(0.5)
        refused = httpx.get(f"{there.url}/readyz")
        assert (refused.status_code, refused.json()["ready"]) == (503, False)
        problem = httpx.get(f"{there.url}/runs/{writer.run}")
        assert (problem.status_code, problem.json()["code"]) == (503, "unavailable")
        await asyncio.to_thread(nats.start)
        await writing
        await writer.to(Status.COMPLETED)
        await asyncio.gather(*following)
        for found in clients:
            check(found, [writer])
