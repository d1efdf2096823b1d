"""What a graph takes as its input is the same in process and on a worker."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field

from callboard.actors.agent import Agent
from callboard.actors.graph import END, START, Graph, Was, interrupt
from callboard.actors.graph.errors import UnknownChannel
from callboard.topics.bus import Bus
from callboard.topics.codec import DecodeError
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import Answer, Payload, Status
from tests.actors.company import company, result_of


class State(TypedDict, total=False):
    topic: str
    size: int
    heading: Annotated[str, Was("title")]


class Named(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    topic: str = Field(alias="theme")


class Loose(BaseModel):
    model_config = ConfigDict(extra="ignore")
    topic: str


class Tagged(msgspec.Struct, tag="task", rename={"topic": "about"}):
    topic: str


def graph_of(input: Any) -> Graph[Any]:
    graph = Graph(State, name="article", input=input)
    graph.node("done", lambda state: {"size": len(state.get("topic", ""))}, inline=True)
    return graph.chain(START, "done", END)


KINDS: dict[str, Any] = {"any": None, "named": Named, "loose": Loose, "tagged": Tagged}
TAKEN: list[tuple[str, Any, Any]] = [
    ("any", {"topic": "hats"}, {"topic": "hats", "size": 4}),
    ("any", {"title": "Hats"}, {"heading": "Hats", "size": 0}),
    ("any", {}, {"size": 0}),
    ("named", {"theme": "hats"}, {"topic": "hats", "size": 4}),
    ("named", {"topic": "hats"}, {"topic": "hats", "size": 4}),
    ("loose", {"topic": "hats", "more": 1}, {"topic": "hats", "size": 4}),
    ("tagged", {"type": "task", "about": "hats"}, {"topic": "hats", "size": 4}),
]
REFUSED: list[tuple[str, Any, str, str]] = [
    ("any", {"topic": "hats", "tpoic": "x"}, "unknown_channel", "did you mean 'topic'"),
    ("any", {"title": "old", "heading": "new"}, "unknown_channel", "'title'"),
    ("any", {"topic": 5}, "decode_error", "topic"),
    ("any", [1], "decode_error", "object"),
    ("named", {"theme": "hats", "size": 1}, "unknown_channel", "Named does not have"),
    ("tagged", {"type": "task", "about": "hats", "size": 1}, "unknown_channel", "'size'"),
]


async def test_what_a_worker_takes_and_refuses(settings: BrokerSettings, bus: Bus) -> None:
    agents = [graph_of(cls).agent(name) for name, cls in KINDS.items()]
    async with company(settings, bus, agents) as all_:
        good = [(await all_.submit(kind, given), result) for kind, given, result in TAKEN]
        bad = [(await all_.submit(kind, given), code, said) for kind, given, code, said in REFUSED]
        for run, result in good:
            assert result_of(await all_.ended(run)) == result
        for run, code, said in bad:
            error = (await all_.ended(run)).error
            assert error is not None
            assert (error.code, said in error.message) == (code, True), error


class Calls(TypedDict, total=False):
    given: Any
    got: Any


async def called(agent: Agent[Any], given: Any) -> Any:
    """What an agent gives that is a node of another graph, in process."""
    graph = Graph(Calls)
    graph.node("call", agent, takes="given", gives="got").chain(START, "call", END)
    return (await graph.run({"given": given}))["got"]


async def test_in_process_it_is_the_same() -> None:
    for kind, given, result in TAKEN:
        graph = graph_of(KINDS[kind])
        assert await called(graph.agent(kind), given) == result
        if KINDS[kind] is None:
            assert await graph.run(given) == result
    for kind, given, code, said in REFUSED:
        with pytest.raises((UnknownChannel, DecodeError), match=said) as caught:
            await called(graph_of(KINDS[kind]).agent(kind), given)
        assert caught.value.code == code
    with pytest.raises(UnknownChannel, match="did you mean 'topic'"):
        await graph_of(None).run({"tpoic": "hats"})
    with pytest.raises(UnknownChannel, match="Loose does not have"):
        await graph_of(Loose).run({"topic": "hats", "size": 1})


class Bare(TypedDict):
    topic: str


class Sized(TypedDict):
    size: int


async def test_an_input_is_not_held_against_the_version_that_takes_the_run_up(
    settings: BrokerSettings, bus: Bus
) -> None:
    def asking(input: Any) -> Graph[Any]:
        graph = Graph(State, name="asking", input=input)
        graph.node("ask", lambda state: {"topic": state["topic"] + interrupt("?", id="ask")}, inline=True)
        return graph.chain(START, "ask", END)

    async with company(settings, bus, [asking(Bare).agent("asking")]) as all_:
        run = await all_.submit("asking", {"topic": "hats"})
        await all_.reaches(run, Status.INPUT_REQUIRED)
    async with company(settings, bus, [asking(Sized).agent("asking")]) as all_:
        refused = await all_.run("asking", {"topic": "hats"})
        assert refused.error is not None
        assert refused.error.code == "unknown_channel"
        await all_.submitter.resume(run, [Answer(id="ask", value=Payload(json=msgspec.Raw(b'"!"')))])
        assert result_of(await all_.ended(run)) == {"topic": "hats!"}
