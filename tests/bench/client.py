"""A client that publishes tasks and sees its runs end, as any NATS client could."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from callboard.topics.bus import Bus, Subscription
from callboard.topics.client import Message, head_bytes
from callboard.topics.ids import new_run_id
from callboard.topics.messages import SubmitReply, TaskRequest, encode

ENDED = (b'"status":"completed"', b'"status":"failed"', b'"status":"canceled"', b'"status":"timed_out"')


class Client:
    """Follows `cb.live.run.*.*.state`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._subscription: Subscription | None = None

    @classmethod
    async def open(cls, bus: Bus) -> Client:
        """Begins to follow."""
        client = cls(bus)
        client._subscription = await bus.subscribe("cb.live.run.*.*.state", client._heard)
        return client

    async def close(self) -> None:
        """Follows no more."""
        if self._subscription is not None:
            await self._subscription.close()

    def _heard(self, message: Message) -> None:
        if any(mark in message.data for mark in ENDED):
            future = self._waiting.get(message.subject.split(".")[4])
            if future is not None and not future.done():
                future.set_result(message.data)

    async def publish(self, topic: str, value: Any) -> bytes:
        """Publishes a task on a topic (a durable publish) and waits until its run is seen ended; the last record."""
        run = new_run_id()
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[run] = future
        try:
            await self._bus.write(f"cb.task.{topic}", msgspec.json.encode(value), head_bytes({"Callboard-Run": run}))
            return await future
        finally:
            del self._waiting[run]

    async def finish(self, agent: str, value: Any) -> str:
        """Submits a run for an agent and waits for its end; its id. Raises AssertionError unless it completed."""
        run = new_run_id()
        future = self._waiting[run] = asyncio.get_running_loop().create_future()
        try:
            await submit(self._bus, agent, value, run)
            assert ENDED[0] in await future, f"run {run} did not complete"
        finally:
            del self._waiting[run]
        return run


async def submit(bus: Bus, agent: str, value: Any, run: str | None = None) -> str:
    """Submits a run for an agent; its id, once it is durable."""
    given = msgspec.Raw(msgspec.json.encode(value))
    request = encode(TaskRequest(agent=agent, input=given, run=run or new_run_id()))
    message = await bus.request("cb.rpc.submit", request, timeout_s=10)
    reply = msgspec.json.decode(message.data, type=SubmitReply)
    assert reply.error is None, reply.error
    assert reply.run is not None
    return reply.run
