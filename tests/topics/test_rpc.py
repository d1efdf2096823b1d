"""Requests to coordinators that die with them, stand still, or are slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from callboard.topics import rpc
from callboard.topics.bus import Bus
from callboard.topics.client import Message
from callboard.topics.errors import NoResponders, Unavailable


class Server:
    """Serves `cb.rpc.echo`: `answer` is told of each request and its number, from 1."""

    def __init__(self, bus: Bus, answer: Callable[[Message, int], None]) -> None:
        self._bus, self._answer = bus, answer
        self.requests: list[Message] = []

    async def open(self) -> None:
        await self._bus.subscribe(f"{self._bus.subjects.rpc}.echo", self._heard, "servers")

    def _heard(self, message: Message) -> None:
        self.requests.append(message)
        self._answer(message, len(self.requests))


async def test_a_request_that_died_with_its_server_is_answered_by_another(bus: Bus) -> None:
    def answer(message: Message, number: int) -> None:
        if number > 1:
            bus.publish(message.reply, message.data)

    server = Server(bus, answer)
    await server.open()
    started = time.monotonic()
    assert (await rpc.ask(bus, "echo", b"first", 10, again=lambda: b"copy")).data == b"copy"
    assert time.monotonic() - started < rpc.AGAIN_S + 0.5
    assert [one.data for one in server.requests] == [b"first", b"copy"]
    assert len({one.reply for one in server.requests}) == 1


async def test_a_slow_server_is_heard_and_not_given_more_than_a_few_copies(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "AGAIN_S", 0.05)

    def answer(message: Message, number: int) -> None:
        if number == 1:
            asyncio.get_running_loop().call_later(1.0, bus.publish, message.reply, b"late")

    server = Server(bus, answer)
    await server.open()
    assert (await rpc.ask(bus, "echo", b"", 10)).data == b"late"
    assert len(server.requests) <= 6, "after 0.05, 0.15, 0.35, 0.75 s"
    asked = len(server.requests)
    await asyncio.sleep(0.2)
    assert len(server.requests) == asked, "none is sent after the answer"


async def test_nobody_is_there(bus: Bus) -> None:
    started = time.monotonic()
    with pytest.raises(NoResponders):
        await rpc.ask(bus, "echo", b"", 10)
    assert time.monotonic() - started < 1


async def test_no_answer_in_time(bus: Bus) -> None:
    server = Server(bus, lambda *_: None)
    await server.open()
    with pytest.raises(Unavailable, match=r"no answer on .*rpc.echo within 0.2 s"):
        await rpc.ask(bus, "echo", b"", 0.2)
