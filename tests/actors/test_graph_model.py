"""The engine against a plain sequential model: any graph, any timing, the same snapshots.

The model knows nothing of tasks, copies or grounds: it walks the nodes one after the other, with the state in a dict.
"""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from hypothesis import given, settings
from hypothesis import strategies as st

from callboard import END, START, Command, Graph, Send, add, append, maximum, merge
from callboard.actors.graph.errors import ChannelConflict, StepLimit

LIMIT = 8


class State(TypedDict, total=False):
    log: Annotated[list[str], append]
    total: Annotated[int, add]
    top: Annotated[int, maximum]
    by: Annotated[dict[str, int], merge]
    last: str


@dataclass(frozen=True)
class Plan:
    """What one node of a random graph does: everything follows from the state that it sees."""

    name: str
    edges: tuple[str, ...]
    branch: tuple[str, ...]
    sends: tuple[str, ...]
    goto: bool
    deferred: bool
    writes_last: bool

    def update(self, seen: dict[str, Any], item: int | None) -> dict[str, Any]:
        number = seen["total"] + (0 if item is None else item)
        update: dict[str, Any] = {
            "log": [f"{self.name}{'' if item is None else item}@{len(seen['log'])}"],
            "total": 1 + number % 3,
            "top": number,
            "by": {self.name: number},
        }
        return update | ({"last": self.name} if self.writes_last else {})

    def routes(self, seen: dict[str, Any]) -> list[tuple[str, int | None]]:
        """Where the branch goes."""
        chosen = self.branch[seen["total"] % len(self.branch)]
        return [(chosen, None), *((target, seen["total"] + at) for at, target in enumerate(self.sends))]


@dataclass(frozen=True)
class Shape:
    nodes: tuple[Plan, ...]
    first: tuple[str, ...]
    join: tuple[tuple[str, ...], str] | None


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    names = [f"n{at}" for at in range(draw(st.integers(1, 5)))]
    some = st.lists(st.sampled_from(names), max_size=2, unique=True).map(tuple)
    nodes = tuple(
        Plan(
            name=name,
            edges=draw(some),
            branch=(*draw(some), END),
            sends=draw(some),
            goto=draw(st.booleans()),
            deferred=draw(st.integers(0, 3)) == 0,
            writes_last=draw(st.integers(0, 2)) == 0,
        )
        for name in names
    )
    join = None
    if len(names) > 1 and draw(st.booleans()):
        join = (
            tuple(draw(st.lists(st.sampled_from(names), min_size=2, max_size=3, unique=True))),
            draw(st.sampled_from(names)),
        )
    return Shape(nodes, tuple(names), join)


def empty() -> dict[str, Any]:
    """The state before any write, and all that a task sees besides the input that was sent to it."""
    return {"log": [], "total": 0, "by": {}}


# -- the model --------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """Walks a graph with one loop."""

    shape: Shape
    state: dict[str, Any] = field(default_factory=lambda: empty())
    arrived: set[str] = field(default_factory=set)
    waiting: list[tuple[str, int, Any]] = field(default_factory=list)
    history: list[Any] = field(default_factory=list)

    def walk(self) -> str:
        plans = {plan.name: plan for plan in self.shape.nodes}
        order = list(plans)
        due = self.planned([], [(name, None) for name in self.shape.first], plans, order)
        while due:
            if len(self.history) >= LIMIT:
                return "limit"
            before = {**self.state, "log": list(self.state["log"]), "by": dict(self.state["by"])}
            writers = [name for name, _, _ in due if plans[name].writes_last]
            for name, _, item in due:
                update = plans[name].update(before if item is None else empty(), item)
                self.state["log"] = self.state["log"] + update["log"]
                self.state["total"] += update["total"]
                self.state["top"] = max(self.state.get("top", update["top"]), update["top"])
                self.state["by"] = {**self.state["by"], **update["by"]}
                if "last" in update:
                    self.state["last"] = update["last"]
            if len(writers) > 1:
                return "conflict"
            ran = [key(*one[:2]) for one in due]
            due = self.after(before, due, plans, order)
            self.history.append((ran, {**self.state}, [key(*one[:2]) for one in due]))
        return "end"

    def after(self, before: dict[str, Any], due: Any, plans: dict[str, Plan], order: list[str]) -> Any:
        targets: list[tuple[str, int | None]] = []
        done = set()
        for name, _, item in due:
            plan = plans[name]
            if plan.goto:
                targets += plan.routes(before if item is None else empty())  # decides on what it saw
            elif name not in done:
                done.add(name)
                targets += [(target, None) for target in plan.edges]
                targets += plan.routes(self.state)
                if self.shape.join and name in self.shape.join[0]:
                    self.arrived.add(name)
                    if self.arrived >= set(self.shape.join[0]):
                        self.arrived = set()
                        targets.append((self.shape.join[1], None))
        return self.planned(self.waiting, targets, plans, order)

    def planned(self, waiting: Any, targets: Any, plans: dict[str, Plan], order: list[str]) -> Any:
        numbers = {name: max([n for w, n, _ in waiting if w == name], default=-1) for name in order}
        tasks = {(name, -1): (name, -1, None) for name, item in targets if item is None and name != END}
        for name, item in targets:
            if item is not None and name != END:
                numbers[name] += 1
                tasks[name, numbers[name]] = (name, numbers[name], item)
        held = {(name, number): (name, number, item) for name, number, item in waiting}
        held |= {one: task for one, task in tasks.items() if plans[task[0]].deferred}
        now = [task for task in tasks.values() if not plans[task[0]].deferred]
        if not now:
            now, held = list(held.values()), {}
        self.waiting = list(held.values())
        return sorted(now, key=lambda task: (order.index(task[0]), task[1]))


def key(name: str, number: int) -> str:
    return name if number < 0 else f"{name}#{number}"


# -- the engine -------------------------------------------------------------------------------------------------------


def built(shape: Shape, delays: random.Random) -> Graph[State]:
    graph = Graph(State, step_limit=LIMIT)
    for plan in shape.nodes:

        async def node(given: Any, plan: Plan = plan) -> Any:
            for _ in range(delays.randrange(4)):
                await asyncio.sleep(0)
            if delays.random() < 0.05:
                await asyncio.sleep(0.001)
            seen, item = (empty(), given) if isinstance(given, int) else (given, None)
            update = plan.update(seen, item)
            routes = plan.routes(seen)
            seen["log"].append("spoiled")  # its own copy
            seen["by"].clear()
            return Command(update, goto=[sent(*route) for route in routes]) if plan.goto else update

        goes = (*plan.branch, *plan.sends) if plan.goto else ()
        graph.node(plan.name, node, deferred=plan.deferred, goes=[one for one in goes if one != END])
        for target in plan.edges:
            graph.edge(plan.name, target)

        def choose(state: Any, plan: Plan = plan) -> Any:
            return [sent(*route) for route in plan.routes(state)]

        graph.branch(plan.name, choose, [*plan.branch, *plan.sends])
    for name in shape.first:
        graph.edge(START, name)
    if shape.join:
        graph.join(*shape.join)
    return graph


def sent(target: str, item: int | None) -> str | Send:
    return target if item is None else Send(target, item)


async def walked(shape: Shape, delays: random.Random) -> tuple[str, list[Any]]:
    execution = built(shape, delays).execution()
    try:
        await execution.run()
        end = "end"
    except StepLimit:
        end = "limit"
    except ChannelConflict:
        end = "conflict"
    found = []
    for one in execution.history()[::-1][1:]:
        values = {name: value.items() if name == "log" else value for name, value in one.values.items()}
        found.append((list(one.ran), values, [task.key for task in one.next]))
    return end, found


@settings(max_examples=60, deadline=None)
@given(shapes(), st.integers(0, 2**32))
def test_any_graph_and_any_timing_gives_the_snapshots_of_the_model(shape: Shape, seed: int) -> None:
    model = Model(shape)
    expected = model.walk()
    for each in (seed, seed + 1):
        end, history = asyncio.run(walked(shape, random.Random(each)))
        assert (end, history) == (expected, model.history)
