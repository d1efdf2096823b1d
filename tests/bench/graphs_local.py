"""Graphs in process, without a store: supersteps a second beside LangGraph in the same run, and the cost of a wide
superstep."""

from __future__ import annotations

import importlib
import operator
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

from callboard import END, START, Graph, Send, add, append
from tests.bench.figure import Figure, at_least, at_most, reported

STEPS = 200
TEXT = "x" * 200
WIDTHS = (10, 100, 1000)
Run = Callable[[], Awaitable[Any]]


class State(TypedDict):
    """What our loop carries: it grows by 200 bytes a step."""

    n: int
    log: Annotated[list[str], append]


class Theirs(TypedDict):
    """The same for LangGraph."""

    n: int
    log: Annotated[list[str], operator.add]


async def work(state: Any) -> dict[str, Any]:
    """The node of both."""
    return {"n": state["n"] + 1, "log": [TEXT]}


def loop(steps: int) -> Run:
    """Our graph of so many supersteps."""
    graph = Graph(State, step_limit=steps)
    graph.node("work", work).edge(START, "work")
    graph.branch("work", lambda state: "work" if state["n"] < steps else END, ["work", END])
    return lambda: graph.run({"n": 0})


def their_loop(steps: int) -> Run | None:
    """LangGraph's, if it is installed."""
    try:
        library = importlib.import_module("langgraph.graph")
    except ImportError:
        return None
    graph = library.StateGraph(Theirs)
    graph.add_node("work", work)
    graph.add_edge(library.START, "work")
    graph.add_conditional_edges(
        "work", lambda state: "work" if state["n"] < steps else library.END, ["work", library.END]
    )
    compiled = graph.compile()
    return lambda: compiled.ainvoke({"n": 0, "log": []}, {"recursion_limit": steps + 10})


class Wide(TypedDict, total=False):
    """What a wide superstep writes."""

    total: Annotated[int, add]


async def one(item: int) -> dict[str, int]:
    """One of many parallel nodes."""
    return {"total": item}


def fan(width: int) -> Run:
    """One superstep of so many parallel nodes."""
    graph = Graph(Wide)
    graph.node("one", one).edge("one", END)
    graph.branch(START, lambda state: [Send("one", 1)] * width, ["one"])
    return graph.run


async def _seconds(run: Run) -> float:
    began = time.perf_counter()
    await run()
    return time.perf_counter() - began


async def graphs_local(rounds: int) -> list[Figure]:
    """Three figures; that beside LangGraph only where it can be imported."""
    ours, theirs = loop(STEPS), their_loop(STEPS)
    await ours()
    rates, ratios, others = [], [], []
    for _ in range(rounds):
        rates.append(STEPS / await _seconds(ours))
        if theirs is not None:
            others.append(STEPS / await _seconds(theirs))
            ratios.append(rates[-1] / others[-1])
    figures = [reported("graph_steps_per_s", rates, "supersteps/s, in process, no store")]
    if ratios:
        note = f"LangGraph in the same run: {min(others):.0f} to {max(others):.0f} supersteps/s"
        figures.append(at_least("graph_steps_ratio", ratios, "× LangGraph's supersteps/s", 5, note))
    return [*figures, *await _longer(rounds), *await _wide(rounds)]


async def _longer(rounds: int) -> list[Figure]:
    """Whether a step costs more when the state has grown."""
    short, long = loop(STEPS // 4), loop(STEPS * 10)
    ratios = []
    for _ in range(rounds):
        first = min([await _seconds(short) for _ in range(3)]) / (STEPS // 4)
        ratios.append(await _seconds(long) / (STEPS * 10) / first)
    return [reported("graph_long_ratio", ratios, f"× the time a step, {STEPS * 10} steps against {STEPS // 4}")]


async def _wide(rounds: int) -> list[Figure]:
    costs: dict[int, list[float]] = {width: [] for width in WIDTHS}
    for _ in range(rounds):
        for width in WIDTHS:
            costs[width].append(await _seconds(fan(width)) / width)
    micros = [cost * 1e6 for cost in costs[100]]
    growth = [wide / hundred for wide, hundred in zip(costs[1000], costs[100], strict=True)]
    return [
        reported("graph_parallel_us", micros, "µs a node, 100 parallel nodes in a superstep"),
        at_most("graph_parallel_growth", growth, "× the cost a node, 1,000 parallel nodes against 100", 1.5),
    ]
