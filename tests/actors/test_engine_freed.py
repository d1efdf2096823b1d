"""A run that has ended leaves nothing that only the garbage collector would find: that costs more than the run."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from callboard.actors.agent import agent
from callboard.actors.engine import Attempt, Context
from callboard.actors.engine.parts import Parts
from callboard.actors.engine.place import Scope
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from tests.actors.company import company, eventually, result_of


def double(number: int) -> int:
    return number * 2


async def triple(number: int) -> int:
    return number * 3


@agent("freed")
async def freed(ctx: Context, number: int) -> int:
    await ctx.emit("seen", number)
    return sum(await asyncio.gather(ctx.step(double, number), ctx.step(triple, number)))


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def left() -> list[Any]:
    """What is there of attempts. By `type`: `isinstance` would ask what stands for others."""
    return [one for one in gc.get_objects() if type(one) in (Attempt, Context, Parts, Scope)]


async def test_what_an_attempt_is_made_of_is_freed_when_it_ends(
    settings: BrokerSettings, bus: Bus, no_collection: None
) -> None:
    async with company(settings, bus, [freed]) as found:
        before = len(left())
        records = await asyncio.gather(*(found.run("freed", number) for number in range(10)))
        assert [result_of(record) for record in records] == [number * 5 for number in range(10)]
        await eventually(lambda: len(left()) <= before, what=lambda: f"all is freed but {left()}")
