"""Graphs on workers whose nodes and fields were renamed while a run of theirs was interrupted."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, TypedDict

import msgspec

from callboard.actors.engine import Context
from callboard.actors.graph import END, START, Graph, Was, append, interrupt
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import Answer, Payload, Status
from tests.actors.company import company, result_of


class Old(TypedDict, total=False):
    text: str
    log: Annotated[list[str], append]


class New(TypedDict, total=False):
    body: Annotated[str, Was("text")]
    log: Annotated[list[str], append]
    more: Annotated[list[str], append]


def stepped(done: Counter[str]) -> str:
    done["step"] += 1
    return "stepped"


def inner(done: Counter[str], name: str, was: list[str]) -> Graph[Any]:
    """A subgraph that works, and then asks in a node of this name."""
    graph = Graph(Old, name="inner")

    @graph.node
    def work(state: Old) -> dict[str, Any]:
        done["inner work"] += 1
        return {"log": "worked"}

    graph.node(name, lambda state: {"log": interrupt("inner?", id="inner")}, was=was, inline=True)
    return graph.chain(START, "work", name, END)


def before(done: Counter[str]) -> Graph[Any]:
    """Three nodes beside each other: one ends, one asks after a step, one is a subgraph that asks."""
    graph = Graph(Old)

    @graph.node
    def ends(state: Old) -> dict[str, Any]:
        done["ends"] += 1
        return {"log": "ended"}

    @graph.node
    async def asks(state: Old, ctx: Context) -> dict[str, Any]:
        step = await ctx.step(stepped, done, name="step")
        return {"log": [step, interrupt("outer?", id="outer")]}

    graph.node("part", inner(done, "ask", []), takes={}, gives={"log": "log"})
    for name in ("ends", "asks", "part"):
        graph.edge(START, name).edge(name, END)
    return graph


def after(done: Counter[str]) -> Graph[Any]:
    """The same with every name changed."""
    graph = Graph(New)

    @graph.node(was=["ends"])
    def ended(state: New) -> dict[str, Any]:
        done["ends"] += 1
        return {"log": "ended again"}

    @graph.node(was=["asks"])
    async def question(state: New, ctx: Context) -> dict[str, Any]:
        step = await ctx.step(lambda: "stepped again", name="step", returns=str)
        return {"log": [step, interrupt("outer?", id="outer"), state["body"]], "more": "new"}

    graph.node("section", inner(done, "query", ["ask"]), takes={}, gives={"log": "log"}, was=["part"])
    for name in ("ended", "question", "section"):
        graph.edge(START, name).edge(name, END)
    return graph


async def test_an_interrupted_run_goes_on_under_the_new_names(settings: BrokerSettings, bus: Bus) -> None:
    done: Counter[str] = Counter()
    async with company(settings, bus, [before(done).agent("graph")]) as all_:
        run = await all_.submit("graph", {"text": "kept"})
        record = await all_.reaches(run, Status.INPUT_REQUIRED)
        assert sorted(one.id for one in record.interrupts or ()) == ["inner", "outer"]
    async with company(settings, bus, [after(done).agent("graph")]) as all_:
        yes = Payload(json=msgspec.Raw(b'"yes"'))
        await all_.submitter.resume(run, [Answer(id="inner", value=yes), Answer(id="outer", value=yes)])
        result = result_of(await all_.ended(run))
    assert result == {
        "body": "kept",
        "log": ["ended", "stepped", "yes", "kept", "worked", "yes"],
        "more": ["new"],
    }
    assert done == {"ends": 1, "step": 1, "inner work": 1}
