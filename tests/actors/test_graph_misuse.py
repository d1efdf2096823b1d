"""What goes wrong in the code of a graph's author: it is told with its place, and never hangs or is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import pytest

from callboard.actors.agent import Retry, Terminal
from callboard.actors.engine.caller import Caller
from callboard.actors.engine.threads import StepThreads
from callboard.actors.graph import END, START, Command, Graph, Send, append, interrupt
from callboard.actors.graph.errors import (
    GraphInterrupted,
    InvalidGraph,
    InvalidNode,
    InvalidUpdate,
    MissingEdge,
    UnknownChannel,
    UnknownNode,
)
from callboard.topics.errors import InterruptNotFound, InvalidInput, NotFound


def broken(_old: int, _new: int) -> int:
    raise ValueError("broken")


class State(TypedDict, total=False):
    log: Annotated[list[str], append]
    sum: Annotated[int, broken]


def graph_of(fn: Callable[[Any], Any], **options: Any) -> Graph[Any]:
    graph: Graph[Any] = Graph(State)
    graph.node("n", fn, **options)
    return graph.chain(START, "n", END)


def exhausted(_: Any = None) -> Any:
    return next(iter([]))


async def test_a_stop_iteration_in_a_sync_node_ends_it() -> None:
    async with asyncio.timeout(5):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await graph_of(exhausted).run()


async def test_a_stop_iteration_in_a_sync_step_ends_it() -> None:
    for threads in (None, StepThreads(1)):
        async with asyncio.timeout(5):
            with pytest.raises(RuntimeError, match="StopIteration"):
                await Caller(threads)("exhausted", exhausted, (), {})


async def test_a_node_that_wants_to_end_the_process_fails() -> None:
    def leaves(_: Any) -> None:
        raise SystemExit(3)

    graph = graph_of(leaves)
    graph.node("other", lambda _: {"log": "other"}, inline=True)
    graph.chain(START, "other", END)
    with pytest.raises(Terminal, match=r"node 'n' .* wanted to end the process"):
        await graph.run()


async def test_a_node_that_returns_something_to_await_is_awaited() -> None:
    async def later() -> dict[str, Any]:
        return {"log": "late"}

    assert (await graph_of(lambda _: later()).run())["log"] == ["late"]


@pytest.mark.parametrize(
    ("returned", "kind", "said"),
    [
        (Command(goto=5), InvalidUpdate, "goto=5"),  # type: ignore[arg-type]
        (Command(5), InvalidUpdate, "whose update is int"),  # type: ignore[arg-type]
        (Command(goto=Send(END, 1)), UnknownNode, "goes to '__end__'"),
        ({1: 2}, UnknownChannel, "names channel 1"),
    ],
)
async def test_what_a_node_may_not_return_is_named(returned: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        await graph_of(lambda _: returned, goes=["n"]).run()


async def test_a_command_may_leave_its_update_out() -> None:
    assert (await graph_of(lambda _: Command(update=None, goto=END)).run())["log"] == []  # type: ignore[arg-type]


def raises(_: Any) -> Any:
    raise ValueError("no")


async def test_errors_of_reducers_branches_and_cache_keys_say_where() -> None:
    branched: Graph[Any] = Graph(State)
    branched.node("n", lambda _: None, inline=True)
    branched.edge(START, "n").branch("n", raises, [END])
    for graph, where in (
        (graph_of(lambda _: {"sum": 1}), "in the reducer of channel 'sum', of what 'n' wrote in superstep 1"),
        (branched, "in the branch after 'n'"),
        (graph_of(lambda _: None, cache=raises), "in the cache key of node 'n', superstep 1"),
    ):
        with pytest.raises(ValueError, match=r"broken|no") as caught:
            await graph.run()
        assert where in " ".join(caught.value.__notes__)


async def test_a_cache_key_is_a_string() -> None:
    with pytest.raises(InvalidUpdate, match="cache key of node 'n' is list: give a string"):
        await graph_of(lambda _: None, cache=lambda _: ["k"]).run()


async def test_a_question_is_asked_although_the_node_catches_everything() -> None:
    def ask(_: Any) -> dict[str, Any]:
        try:
            return {"log": interrupt("well?", id="q")}
        except BaseException:  # what an author should not write, and does
            return {"log": "nobody was asked"}

    execution = graph_of(ask).execution()
    with pytest.raises(GraphInterrupted):
        await execution.run()
    assert (await execution.resume("yes"))["log"] == ["yes"]


async def test_a_node_that_is_tried_again_has_the_answer_of_the_first_try() -> None:
    tries = 0

    def ask(_: Any) -> dict[str, Any]:
        nonlocal tries
        tries += 1
        word = interrupt("well?", id="q")
        if tries < 4:
            raise ValueError("not yet")
        return {"log": f"{word} {tries}"}

    execution = graph_of(ask, retries=Retry(max_attempts=5, initial=timedelta(milliseconds=1))).execution()
    with pytest.raises(GraphInterrupted):
        await execution.run()
    assert (await execution.resume("yes"))["log"] == ["yes 4"]


def test_what_cannot_be_meant_is_refused_when_it_is_declared() -> None:
    with pytest.raises(InvalidNode, match="leave inline or timeout out"):
        graph_of(lambda _: None, inline=True, timeout=timedelta(seconds=1))
    with pytest.raises(InvalidGraph, match=r"step_limit .* must be 1 or more"):
        Graph(State, step_limit=0)
    with pytest.raises(MissingEdge, match="waits for no node"):
        graph_of(lambda _: None).join([], "n").compile()


async def test_an_execution_says_what_it_cannot_do_yet() -> None:
    execution = graph_of(lambda _: {"log": interrupt("well?", id="q")}).execution()
    with pytest.raises(NotFound, match="no checkpoint yet"):
        execution.state()
    with pytest.raises(GraphInterrupted):
        await execution.run()
    with pytest.raises(InvalidInput, match="not both"):
        await execution.resume("a", answers={"q": "b"})
    await execution.resume("a")
    with pytest.raises(InterruptNotFound, match="nothing to answer"):
        await execution.resume("b")


async def test_an_option_of_a_question_that_there_is_not_is_an_error() -> None:
    def ask(state: Any) -> Any:
        return {"log": interrupt("?", timeout=5)}  # type: ignore[call-arg]

    with pytest.raises(TypeError, match="unexpected keyword argument 'timeout'"):
        await graph_of(ask).run({})
