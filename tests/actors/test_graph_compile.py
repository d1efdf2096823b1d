"""What a graph is checked for before it runs, and its fingerprint."""

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, TypedDict, cast

import pytest

from callboard import END, START, Graph, InvalidGraph, add, append
from callboard.actors.graph import errors


class State(TypedDict, total=False):
    n: int
    log: Annotated[list[str], append]
    total: Annotated[int, add]


def node(state: State) -> dict[str, Any]:
    return {"n": 1}


def graph_of(*names: str) -> Graph[State]:
    graph = Graph(State, name="g")
    for name in names:
        graph.node(name, node)
    return graph


CASES: list[tuple[Callable[[], Any], type[InvalidGraph], str]] = [
    (lambda: graph_of("a").edge("a", END), errors.NoEntry, r"nothing leads away from START.*edge\(START"),
    (
        lambda: graph_of("a", "b").chain(START, "a", END).edge("b", END),
        errors.Unreachable,
        r"nothing leads to node 'b'",
    ),
    (lambda: graph_of("a").edge(START, "a"), errors.MissingEdge, r"away from node 'a'.*edge\('a', END\)"),
    (
        lambda: graph_of("a", "b").chain(START, "a", "b", "a"),
        errors.InvalidGraph,
        r"2 problems:\n.*no path leads from node 'a'",
    ),
    (lambda: graph_of("a").chain(START, "a", "a"), errors.Endless, r"no path leads from node 'a' of graph 'g' to END"),
    (lambda: graph_of("draft").chain(START, "draf", END), errors.InvalidGraph, r"did you mean 'draft'"),
    (lambda: graph_of("a").chain(START, "a", END).edge("a", "b"), errors.UnknownNode, r"edge 'a' → 'b' names 'b'"),
    (
        lambda: graph_of("a").edge(START, "a").branch("a", lambda s: "x", ["x", END]),
        errors.UnknownNode,
        r"branch after 'a'",
    ),
    (lambda: graph_of("a").chain(START, "a", END).join(["a", "b"], "a"), errors.UnknownNode, r"join of a, b names 'b'"),
    (
        lambda: graph_of("a").chain(START, "a", END).node("c", node, goes=["d"]),
        errors.InvalidGraph,
        r"goes of node 'c' names 'd'",
    ),
    (
        lambda: graph_of("a").chain(START, "a", END).node("c", node, on=["m"]),
        errors.UnknownChannel,
        r"on of node 'c'.*'m'",
    ),
    (
        lambda: graph_of("a").chain(START, "a", END).node("c", node, was=["a"], on=["n"]),
        errors.DuplicateName,
        r"'c' was 'a'",
    ),
    (lambda: Graph(State, inbox="m").node("a", node).chain(START, "a", END), errors.UnknownChannel, r"inbox of graph"),
    (
        lambda: Graph(State, inbox="n").node("a", node).chain(START, "a", END),
        errors.InvalidState,
        r"inbox 'n'.*reducer",
    ),
    (
        lambda: Graph(State, output=Other).node("a", node).chain(START, "a", END),
        errors.UnknownChannel,
        r"output of graph.*'z'",
    ),
    (lambda: graph_of("a", "a"), errors.DuplicateName, r"has a node 'a' already"),
    (lambda: graph_of("two words"), errors.DuplicateName, r"is no name for a node"),
    (lambda: graph_of("a").branch("a", lambda state: END), errors.MissingEdge, r"does not say where it leads"),
    (lambda: graph_of().node("a", lambda: None), errors.InvalidNode, r"is called with the state"),
    (lambda: graph_of().node("a", lambda a, b, c: None), errors.InvalidNode, r"or with the state and ctx"),
    (lambda: graph_of().node("a", cast(Any, 5)), errors.InvalidNode, r"5 is no function"),
    (
        lambda: graph_of().node("a", node, timeout=timedelta(0)),
        errors.InvalidNode,
        r"timeout of node 'a' must be positive",
    ),
    (lambda: graph_of().node("a", node, on="n"), errors.InvalidNode, r"write on=\['n'\]"),
    (
        lambda: graph_of().node("a", node, takes="n"),
        errors.InvalidNode,
        r"takes and gives are for agents and subgraphs",
    ),
    (lambda: Graph(Own).node("a", owns()), errors.InvalidNode, r"reducer newest would count twice"),
    (lambda: graph_of().node("a", totals(), gives={"x": "total"}), errors.UnknownChannel, r"'x'"),
]


def newest(old: int, new: int) -> int:
    return new


class Own(TypedDict):
    n: Annotated[int, newest]


class Other(TypedDict):
    z: int


def owns() -> Graph[Own]:
    return Graph(Own).node("inner", node).chain(START, "inner", END)


def totals() -> Graph[State]:
    return graph_of("inner").chain(START, "inner", END)


@pytest.mark.parametrize(("make", "error", "text"), CASES)
def test_a_wrong_graph_is_refused_with_what_to_do(
    make: Callable[[], Graph[State]], error: type[InvalidGraph], text: str
) -> None:
    with pytest.raises(error, match=f"(?s){text}"):
        make().compile()


def test_several_problems_are_told_at_once() -> None:
    with pytest.raises(InvalidGraph) as caught:
        graph_of("a", "b", "c").edge(START, "a").compile()
    assert caught.value.problems == ["graph_missing_edge", "graph_unreachable", "graph_unreachable"]


def test_a_graph_is_compiled_once_and_again_after_a_change() -> None:
    graph = graph_of("a").chain(START, "a", END)
    first = graph.compile()
    assert graph.compile() is first
    graph.node("b", node).edge("a", "b").edge("b", END)
    assert graph.compile() is not first


def test_the_fingerprint_changes_with_nodes_edges_and_channels_only() -> None:
    def build(*, state: Any = State, extra: bool = False, deferred: bool = False, fn: Any = node) -> str:
        graph = Graph(state)
        graph.node("a", fn).node("b", node, deferred=deferred).chain(START, "a", "b", END)
        if extra:
            graph.edge("a", END)
        return graph.fingerprint

    class Wider(TypedDict, total=False):
        n: int
        log: Annotated[list[str], append]
        total: int

    same = build()
    assert same == build(fn=lambda state: None) == build()
    assert len({same, build(extra=True), build(deferred=True), build(state=Wider)}) == 4
    assert len(same) == 16
