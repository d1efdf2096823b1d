"""An answer that was taken before a checkpoint is not taken again by the attempt that goes on from there."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from callboard.actors.agent import Agent, agent
from callboard.actors.audit import audit
from callboard.actors.engine import Context
from callboard.actors.graph import END, START, Graph, append, interrupt
from callboard.actors.graph.ground import Durability
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import Answer, Payload, RunRecord, Status
from tests.actors.company import Company, company, eventually, result_of


class Talk(TypedDict, total=False):
    text: str
    log: Annotated[list[str], append]


def inline(value: Any) -> Payload:
    return Payload(json=msgspec.Raw(msgspec.json.encode(value)))


async def _crashed(all_: Company, agent_: Agent[Any], there: asyncio.Event, bus: Bus) -> RunRecord:
    """The run, whose first question is answered, with an edit; whose worker dies behind the next checkpoint."""
    worker = await all_.worker(agent_)
    run = await all_.submit(agent_.name, {})
    await all_.reaches(run, Status.INPUT_REQUIRED)
    answer = Answer(id="ok?", value=inline("yes"), update=inline({"text": "edited"}))
    await all_.submitter.resume(run, [answer])
    await asyncio.wait_for(there.wait(), 10)
    await worker.kill()
    await all_.worker(agent_)
    record = await all_.ended(run, 20)
    taken = [step.name for step in await all_.steps(run) if step.kind == "interrupt"]
    assert taken == ["ok?"], "it is in the journal once"
    report = await audit(bus, wait_s=1.0, blobs=True)
    assert report.clean, report.findings
    return record


async def test_of_a_graph_with_the_edit_that_came_with_it(settings: BrokerSettings, bus: Bus) -> None:
    there, graph = asyncio.Event(), Graph(Talk)

    @graph.node
    async def ask(state: Talk) -> dict[str, Any]:
        return {"log": [interrupt("?", id="ok?")]}

    @graph.node
    async def write(state: Talk) -> dict[str, Any]:
        return {"text": f"{state['text']}, and rewritten"}

    @graph.node
    async def hang(state: Talk) -> dict[str, Any]:
        if not there.is_set():
            there.set()
            await asyncio.sleep(60)
        return {"log": ["on"]}

    graph.chain(START, "ask", "write", "hang", END)
    async with company(settings, bus, []) as all_:
        record = await _crashed(all_, graph.agent("asks"), there, bus)
        assert result_of(record) == {"text": "edited, and rewritten", "log": ["yes", "on"]}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_an_edit_is_written_where_its_question_stood_and_once(
    settings: BrokerSettings, bus: Bus, durability: Durability
) -> None:
    """The attempt that asked ended while another node slept: with "exit" all that it did is done again."""
    graph = Graph(Talk)

    @graph.node
    async def first(state: Talk) -> dict[str, Any]:
        return {"text": "first"}

    @graph.node
    async def ask(state: Talk) -> dict[str, Any]:
        return {"log": [interrupt("?", id="ok?")]}

    @graph.node
    async def nap(state: Talk, ctx: Context) -> None:
        await ctx.sleep(2.5)

    @graph.node
    async def write(state: Talk) -> dict[str, Any]:
        return {"text": f"{state['text']}, and rewritten"}

    @graph.node
    async def again(state: Talk) -> dict[str, Any]:
        return {"log": [interrupt("?", id="fine?")]}

    graph.chain(START, "first", "ask").edge("first", "nap").join(["ask", "nap"], "write").chain("write", "again", END)
    async with company(settings, bus, [graph.agent("asks", durability=durability)], patience_s=0.1) as all_:
        run = await all_.submit("asks", {})
        await all_.reaches(run, Status.INPUT_REQUIRED)
        edit = inline({"text": "edited", "log": ["noted"]})
        await all_.submitter.resume(run, [Answer(id="ok?", value=inline("yes"), update=edit)])
        await eventually(lambda: _asks(all_, run, "fine?"))
        await all_.submitter.resume(run, [Answer(id="fine?", value=inline("fine"))])
        assert result_of(await all_.ended(run)) == {"text": "edited, and rewritten", "log": ["noted", "yes", "fine"]}


async def _asks(all_: Company, run: str, name: str) -> bool:
    record = (await all_.log.require(run)).record
    return record.status is Status.INPUT_REQUIRED and [one.id for one in record.interrupts or ()] == [name]


async def test_of_a_function(settings: BrokerSettings, bus: Bus) -> None:
    there = asyncio.Event()

    @agent("asks")
    async def asks(ctx: Context, _: Any) -> list[str]:
        if "answer" not in ctx.state:
            ctx.state["answer"] = await ctx.interrupt("?", id="ok?")
            await ctx.checkpoint()
        if not there.is_set():
            there.set()
            await asyncio.sleep(60)
        return [ctx.state["answer"]]

    async with company(settings, bus, []) as all_:
        assert result_of(await _crashed(all_, asks, there, bus)) == ["yes"]
