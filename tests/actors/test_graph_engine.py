"""Supersteps: what runs when, what each node sees, and what becomes of what it writes."""

import asyncio
import operator
import threading
import time
from datetime import timedelta
from typing import Annotated, Any, Literal, TypedDict

import pytest

from callboard import END, START, Cache, Command, Graph, Retry, Send, add, append
from callboard.actors.graph.errors import (
    ChannelConflict,
    InvalidUpdate,
    NodeTimeout,
    StepLimit,
    UndeclaredRoute,
    UnknownChannel,
    UnknownNode,
)


class State(TypedDict, total=False):
    n: int
    other: int
    total: Annotated[int, add]
    log: Annotated[list[str], append]
    notes: list[str]
    boxes: dict[str, list[int]]


def noted(name: str) -> Any:
    async def node(state: State) -> dict[str, Any]:
        return {"log": name}

    return node


async def test_nodes_run_along_the_edges() -> None:
    graph = Graph(State)
    graph.node("a", noted("a")).node("b", noted("b")).chain(START, "a", "b", END)
    assert await graph.run({"n": 1}) == {"n": 1, "total": 0, "log": ["a", "b"]}


async def test_parallel_nodes_do_not_see_each_others_writes() -> None:
    graph = Graph(State)
    seen: dict[str, Any] = {}

    @graph.node
    async def left(state: State) -> dict[str, Any]:
        state["notes"].append("left")  # on its own copy
        state["boxes"]["x"].append(1)
        await asyncio.sleep(0.01)
        return {"log": "left"}

    @graph.node
    async def right(state: State) -> dict[str, Any]:
        await asyncio.sleep(0.02)
        seen["right"] = (state["notes"], state["boxes"], state["log"])
        return {"log": "right"}

    graph.edge(START, "left").edge(START, "right").edge("left", END).edge("right", END)
    result = await graph.run({"notes": ["start"], "boxes": {"x": []}})
    assert seen["right"] == (["start"], {"x": []}, [])
    assert result["notes"] == ["start"]
    assert result["boxes"] == {"x": []}
    assert result["log"] == ["left", "right"]


async def test_writes_are_reconciled_in_the_order_of_the_declarations_whatever_the_timing() -> None:
    for slow in ("a", "b", "c"):
        graph = Graph(State)
        for name in ("a", "b", "c"):

            async def node(state: State, name: str = name, slow: str = slow) -> dict[str, Any]:
                await asyncio.sleep(0.02 if name == slow else 0)
                return {"log": name}

            graph.node(name, node).edge(START, name).edge(name, END)
        assert (await graph.run())["log"] == ["a", "b", "c"]


async def test_two_writers_of_a_channel_without_a_reducer_are_an_error_that_names_both() -> None:
    graph = Graph(State)
    graph.node("one", lambda state: {"n": 1}, inline=True).node("two", lambda state: {"n": 2}, inline=True)
    graph.edge(START, "one").edge(START, "two").edge("one", END).edge("two", END)
    with pytest.raises(ChannelConflict, match=r"'one' and 'two' both wrote channel 'n' in superstep 1") as caught:
        await graph.run()
    assert (caught.value.channel, caught.value.nodes) == ("n", ["one", "two"])


async def test_two_writers_in_different_supersteps_are_none() -> None:
    graph = Graph(State)
    graph.node("one", lambda state: {"n": 1}).node("two", lambda state: {"n": state["n"] + 1})
    graph.chain(START, "one", "two", END)
    assert (await graph.run())["n"] == 2


async def test_a_cycle_ends_by_its_branch() -> None:
    graph = Graph(State)
    graph.node("count", lambda state: {"n": state["n"] + 1, "total": state["n"]}, inline=True)

    def more(state: State) -> Literal["count", "__end__"]:
        return "count" if state["n"] < 5 else "__end__"

    graph.edge(START, "count").branch("count", more)
    result = await graph.run({"n": 0})
    assert (result["n"], result["total"]) == (5, 0 + 1 + 2 + 3 + 4)


async def test_the_step_limit_stops_a_cycle_and_names_what_would_come() -> None:
    graph = Graph(State, step_limit=7)
    graph.node("spin", noted("x")).edge(START, "spin").branch("spin", lambda state: "spin", ["spin", END])
    with pytest.raises(StepLimit, match=r"7 supersteps.*next: spin"):
        await graph.run()


async def test_a_join_waits_for_all() -> None:
    graph = Graph(State)
    for name in ("a", "slow", "slower", "end"):
        graph.node(name, noted(name))
    graph.edge(START, "a").edge(START, "slow").edge("slow", "slower")
    graph.join(["a", "slower"], "end").edge("end", END)
    assert (await graph.run())["log"] == ["a", "slow", "slower", "end"]


async def test_a_join_in_a_cycle_waits_anew_each_time() -> None:
    graph = Graph(State)
    for name in ("split", "a", "b"):
        graph.node(name, noted(name))
    graph.node("end", lambda state: {"log": "end", "total": 1}, inline=True)
    graph.edge(START, "split").edge("split", "a").edge("split", "b").join(["a", "b"], "end")
    graph.branch("end", lambda state: "split" if state["total"] < 2 else END, ["split", END])
    assert (await graph.run())["log"] == ["split", "a", "b", "end"] * 2


async def test_a_plain_edge_to_one_target_runs_it_once_a_superstep() -> None:
    graph = Graph(State)
    for name in ("a", "b", "end"):
        graph.node(name, noted(name))
    graph.edge(START, "a").edge(START, "b").edge("a", "end").edge("b", "end").edge("end", END)
    assert (await graph.run())["log"] == ["a", "b", "end"]


async def test_fan_out_gives_each_task_its_own_input() -> None:
    graph = Graph(State)

    async def square(item: int) -> dict[str, Any]:
        await asyncio.sleep(0.001 * (5 - item))
        return {"log": f"{item}²={item * item}"}

    graph.node("plan", noted("plan")).node("square", square).node("end", noted("end"))
    graph.edge(START, "plan").branch("plan", lambda state: [Send("square", i) for i in range(5)], ["square"])
    graph.edge("square", "end").edge("end", END)
    assert (await graph.run())["log"] == ["plan", "0²=0", "1²=1", "2²=4", "3²=9", "4²=16", "end"]


async def test_a_send_to_a_node_that_takes_the_state_replaces_channels() -> None:
    graph = Graph(State)

    @graph.node
    async def write(state: State) -> dict[str, Any]:
        return {"log": f"{state['n']} {state['other']} {state['log']}"}

    graph.branch(START, lambda state: [Send("write", {"n": i, "log": ["own"]}) for i in (1, 2)], ["write"])
    graph.edge("write", END)
    assert (await graph.run({"n": 0, "other": 9}))["log"] == ["1 9 ['own']", "2 9 ['own']"]


async def test_a_sent_input_is_of_the_type_that_the_node_declares() -> None:
    graph = Graph(State)

    def strict(item: int) -> dict[str, Any]:
        return {"total": item}

    graph.node("strict", strict).branch(START, lambda state: Send("strict", "five"), ["strict"]).edge("strict", END)
    with pytest.raises(InvalidUpdate, match=r"sent to node 'strict'.*[Ee]xpected"):
        await graph.run()


async def test_a_command_updates_and_goes_instead_of_the_edges() -> None:
    graph = Graph(State)

    @graph.node
    async def choose(state: State) -> Command[Literal["left", "right"]]:
        return Command({"log": "choose"}, goto="right" if state["n"] else "left")

    graph.node("left", noted("left")).node("right", noted("right")).node("usual", noted("usual"))
    graph.edge(START, "choose").edge("choose", "usual")
    for name in ("left", "right", "usual"):
        graph.edge(name, END)
    assert (await graph.run({"n": 1}))["log"] == ["choose", "right"]
    assert (await graph.run({"n": 0}))["log"] == ["choose", "left"]


async def test_a_command_without_goto_follows_the_edges_and_may_send() -> None:
    graph = Graph(State)
    graph.node("a", lambda state: Command({"log": "a"}), inline=True)
    graph.node("b", lambda state: Command(goto=[Send("c", "x"), Send("c", "y"), END]), goes=["c"], inline=True)
    graph.node("c", lambda item: {"log": item}, inline=True)
    graph.chain(START, "a", "b").edge("c", END)
    assert (await graph.run())["log"] == ["a", "x", "y"]


async def test_a_route_that_was_not_declared_is_refused_with_what_to_write() -> None:
    graph = Graph(State)
    graph.node("a", lambda state: Command(goto="b"), inline=True).node("b", noted("b"))
    graph.edge(START, "a").edge("a", END).edge(START, "b").edge("b", END)
    with pytest.raises(UndeclaredRoute, match=r"goes=\['b'\]"):
        await graph.run()


async def test_a_route_to_no_node_says_which_there_are() -> None:
    graph = Graph(State)
    graph.node("a", lambda state: Command(goto="bee"), inline=True).edge(START, "a").edge("a", END)
    with pytest.raises(UnknownNode, match=r"goes to 'bee'.*there are a"):
        await graph.run()


async def test_a_branch_that_chooses_what_it_did_not_name_is_refused() -> None:
    graph = Graph(State)
    graph.node("a", noted("a")).edge(START, "a").branch("a", lambda state: "maybe", {"yes": "a", "no": END})
    with pytest.raises(UndeclaredRoute, match=r"chose 'maybe'; it knows 'yes', 'no'"):
        await graph.run()


async def test_an_async_branch_with_a_mapping_may_go_to_several() -> None:
    graph = Graph(State)

    async def choose(state: State) -> list[bool]:
        return [True, False]

    graph.node("yes", noted("yes")).node("no", noted("no"))
    graph.branch(START, choose, {True: "yes", False: "no"}).edge("yes", END).edge("no", END)
    assert (await graph.run())["log"] == ["yes", "no"]


async def test_a_node_runs_when_a_channel_that_it_looks_at_was_written() -> None:
    graph = Graph(State)
    graph.node("a", lambda state: {"n": 1}, inline=True).node("quiet", noted("quiet"), on=["other"])
    graph.node("watcher", noted("watcher"), on=["n"])
    graph.chain(START, "a", END)
    result = await graph.run()
    assert result["log"] == ["watcher"]


async def test_a_deferred_node_waits_until_nothing_else_is_planned() -> None:
    graph = Graph(State)
    for name in ("a", "b", "c"):
        graph.node(name, noted(name))
    graph.node("last", noted("last"), deferred=True)
    graph.edge(START, "a").edge(START, "last").chain("a", "b", "c", END).edge("a", "last").edge("last", END)
    assert (await graph.run())["log"] == ["a", "b", "c", "last"]


async def test_a_node_is_tried_again_with_a_fresh_copy_of_the_state() -> None:
    graph = Graph(State)
    tries: list[list[str]] = []

    def flaky(state: State) -> dict[str, Any]:
        state["notes"].append("mine")
        tries.append(state["notes"])
        if len(tries) < 3:
            raise OSError("not yet")
        return {"log": "done"}

    graph.node("flaky", flaky, retries=Retry(max_attempts=3, initial=timedelta(0), jitter=0)).chain(START, "flaky", END)
    assert (await graph.run({"notes": []}))["log"] == ["done"]
    assert tries == [["mine"]] * 3


async def test_a_failed_node_lets_the_others_end_and_says_where_it_failed() -> None:
    graph = Graph(State)
    ended = []

    @graph.node
    async def fails(state: State) -> None:
        raise ValueError("broken")

    @graph.node
    async def works(state: State) -> None:
        await asyncio.sleep(0.01)
        ended.append("works")

    graph.edge(START, "fails").edge(START, "works").edge("fails", END).edge("works", END)
    with pytest.raises(ValueError, match="broken") as caught:
        await graph.run()
    assert ended == ["works"]
    assert caught.value.__notes__ == ["in node 'fails', superstep 1 of graph 'graph'"]


async def test_several_failed_nodes_are_a_group() -> None:
    graph = Graph(State)

    def fails(state: State) -> None:
        raise ValueError("broken")

    graph.node("a", fails).node("b", fails).edge(START, "a").edge(START, "b").edge("a", END).edge("b", END)
    with pytest.raises(ExceptionGroup, match="2 nodes failed"):
        await graph.run()


async def test_after_a_failure_only_what_failed_runs_again() -> None:
    graph = Graph(State)
    calls: list[str] = []

    @graph.node
    async def good(state: State) -> dict[str, Any]:
        calls.append("good")
        return {"log": "good"}

    @graph.node
    async def bad(state: State) -> dict[str, Any]:
        calls.append("bad")
        if calls.count("bad") == 1:
            raise OSError("once")
        return {"log": "bad"}

    graph.edge(START, "good").edge(START, "bad").edge("good", END).edge("bad", END)
    execution = graph.execution()
    with pytest.raises(OSError, match="once"):
        await execution.run()
    assert (await execution.run())["log"] == ["good", "bad"]
    assert sorted(calls) == ["bad", "bad", "good"]


async def test_a_timeout_names_the_node() -> None:
    graph = Graph(State)

    @graph.node("slow", timeout=timedelta(milliseconds=10))
    async def slow(state: State) -> None:
        await asyncio.sleep(5)

    graph.chain(START, "slow", END)
    with pytest.raises(NodeTimeout, match=r"node 'slow' took longer than 0:00:00\.01"):
        await graph.run()


async def test_a_sync_node_runs_in_a_thread_and_sync_nodes_run_in_parallel() -> None:
    graph = Graph(State)
    barrier = threading.Barrier(2, timeout=5)

    def node(state: State) -> dict[str, Any]:
        barrier.wait()
        return {"log": str(threading.current_thread() is threading.main_thread())}

    graph.node("a", node).node("b", node).edge(START, "a").edge(START, "b").edge("a", END).edge("b", END)
    assert (await graph.run())["log"] == ["False", "False"]


async def test_a_cached_node_is_called_once_a_key() -> None:
    graph = Graph(State)
    calls = []

    def node(state: State) -> dict[str, Any]:
        calls.append(state["n"])
        return {"log": f"{state['n']}"}

    graph.node("a", node, cache=lambda state: str(state["n"]), inline=True)
    graph.node("b", node, cache=Cache(lambda state: str(state["n"]), ttl=timedelta(0)), inline=True)
    graph.chain(START, "a", "b", END)
    for n in (1, 1, 2):
        assert (await graph.run({"n": n}))["log"] == [str(n), str(n)]
    assert calls == [1, 1, 1, 2, 2]  # `b` keeps nothing for longer than no time


@pytest.mark.parametrize(
    ("returned", "error", "text"),
    [
        ({"totl": 1}, UnknownChannel, r"node 'a' names channel 'totl'.*did you mean 'total'"),
        ({"n": "one"}, InvalidUpdate, r"node 'a' wrote to channel 'n' does not fit: .*[Ee]xpected `int`"),
        ({"log": [1]}, InvalidUpdate, r"channel 'log'.*\$\[0\]"),
        ([1], InvalidUpdate, r"node 'a' returned list: return a dict"),
        ({"notes": [object()]}, InvalidUpdate, r"channel 'notes'"),
    ],
)
async def test_what_a_node_returns_is_checked(returned: Any, error: type[Exception], text: str) -> None:
    graph = Graph(State)
    graph.node("a", lambda state: returned, inline=True).chain(START, "a", END)
    with pytest.raises(error, match=text):
        await graph.run()


async def test_the_input_is_checked() -> None:
    graph = Graph(State)
    graph.node("a", noted("a")).chain(START, "a", END)
    with pytest.raises(InvalidUpdate, match=r"the input wrote to channel 'n'"):
        await graph.run({"n": "x"})
    with pytest.raises(UnknownChannel, match=r"the input names channel 'x'"):
        await graph.run({"x": 1})


async def test_a_canceled_execution_cancels_its_nodes() -> None:
    graph = Graph(State)
    ended: list[str] = []

    for name in ("a", "b"):

        async def node(state: State, name: str = name) -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(name)

        graph.node(name, node).edge(START, name).edge(name, END)
    task = asyncio.create_task(graph.run())
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == ["a", "b"]


def test_the_sync_convenience_runs_a_graph() -> None:
    graph = Graph(State)
    graph.node("a", noted("a")).chain(START, "a", END)
    assert graph.run_sync()["log"] == ["a"]


async def test_a_thousand_parallel_nodes_cost_no_more_each_than_a_hundred() -> None:
    async def each(count: int) -> float:
        graph = Graph(State)
        graph.node("one", lambda item: {"total": item}, inline=True).edge("one", END)
        graph.branch(START, lambda state: [Send("one", 1)] * count, ["one"])
        began = time.perf_counter()
        assert (await graph.run())["total"] == count
        return (time.perf_counter() - began) / count

    hundred = min([await each(100) for _ in range(3)])
    assert min([await each(1000) for _ in range(3)]) < 4 * hundred


async def test_a_reducer_of_the_standard_library_is_one() -> None:
    class Numbers(TypedDict):
        numbers: Annotated[list[int], operator.add]

    graph = Graph(Numbers)
    graph.node("a", lambda state: {"numbers": [len(state["numbers"])]}).node("b", lambda state: {"numbers": [9]})
    graph.chain(START, "a", "b", END)
    assert await graph.run({"numbers": [1, 2]}) == {"numbers": [1, 2, 2, 9]}
