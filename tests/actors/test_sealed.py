"""With a key, what states and journals hold is encrypted at rest, whatever an attempt writes on its way."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import msgspec
import pytest
from cryptography.fernet import Fernet
from pydantic import SecretStr

from callboard.actors.agent import Retry, Retryable, agent
from callboard.actors.engine import Context
from callboard.actors.graph import END, START, Graph, append
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import Answer, Payload, Status
from tests.actors.company import Company, company, result_of
from tests.store.test_checkpoints_editing import everything

SOON = Retry(max_attempts=3, initial=timedelta(milliseconds=10), on=(Retryable,))


@pytest.fixture
def keyed(settings: BrokerSettings) -> BrokerSettings:
    return settings.model_copy(update={"checkpoint_keys": SecretStr(Fernet.generate_key().decode())})


def whisper(done: Counter[str], size: int = 1) -> str:
    done["whisper"] += 1
    return "a secret, " * size


class Noted(TypedDict, total=False):
    notes: Annotated[list[str], append]


class Nothing(TypedDict, total=False):
    pass


def graph_of(done: Counter[str]) -> Graph[Any]:
    """Two nodes beside each other: one ends, with a step; the other has a step, and fails the first time."""
    graph = Graph(Noted, output=Nothing)

    @graph.node
    async def ends(state: Noted, ctx: Context) -> dict[str, Any]:
        return {"notes": await ctx.step(whisper, done)}

    @graph.node
    async def fails(state: Noted, ctx: Context) -> dict[str, Any]:
        note = await ctx.step(whisper, done, 20_000)
        done["fails"] += 1
        if done["fails"] == 1:
            raise Retryable("not yet")
        return {"notes": [note]}

    return graph.edge(START, "ends").edge(START, "fails").edge("ends", END).edge("fails", END)


async def sealed(all_: Company, run: str) -> list[bool]:
    """Whether the results of its steps and the writes of its nodes are encrypted."""
    return [one.value.sealed for one in await all_.steps(run) if one.value is not None and one.kind == "step"]


async def test_steps_states_and_writes_of_nodes_are_encrypted(keyed: BrokerSettings, bus: Bus) -> None:
    done: Counter[str] = Counter()

    @agent("code", retries=SOON)
    async def code(ctx: Context) -> int:
        if "first" not in ctx.state:
            ctx.state["first"] = await ctx.step(whisper, done)
            await ctx.checkpoint()
        large = await ctx.step(whisper, done, 20_000)
        done["code"] += 1
        if done["code"] == 1:
            raise Retryable("not yet")
        return len(large + ctx.state["first"])

    async with company(keyed, bus, [code, graph_of(done).agent("graph", retries=SOON)]) as all_:
        first = await all_.run("code")
        assert (result_of(first), first.attempt) == (10 * 20_001, 2)
        second = await all_.run("graph", {})
        assert (result_of(second), second.attempt) == ({}, 2)
        assert done == {"whisper": 4, "code": 2, "fails": 2}
        assert await sealed(all_, first.id) == [True, True]
        assert await sealed(all_, second.id) == [True, True]
        assert b"a secret, " not in await everything(bus)


async def test_without_the_key_nothing_is_done_again(settings: BrokerSettings, keyed: BrokerSettings, bus: Bus) -> None:
    done: Counter[str] = Counter()

    @agent("asking")
    async def asking(ctx: Context) -> str:
        text = await ctx.step(whisper, done)
        return await ctx.interrupt("?", id="go on", returns=str) + text

    async with company(keyed, bus, [asking]) as all_:
        runs = [await all_.submit("asking") for _ in range(2)]
        for run in runs:
            await all_.reaches(run, Status.INPUT_REQUIRED)
    answer = Answer(id="go on", value=Payload(json=msgspec.Raw(b'"yes "')))
    async with company(settings, bus, [asking]) as all_:
        await all_.submitter.resume(runs[0], [answer])
        error = (await all_.ended(runs[0])).error
        assert error is not None
        assert (error.code, "CALLBOARD_CHECKPOINT_KEYS" in error.message) == ("checkpoint_key_missing", True)
    async with company(keyed, bus, [asking]) as all_:
        await all_.submitter.resume(runs[1], [answer])
        assert result_of(await all_.ended(runs[1])) == "yes a secret, "
    assert done == {"whisper": 2}
