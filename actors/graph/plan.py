"""The plan: which tasks the next superstep has, from what ended, what was written, and the graph's edges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...topics.codec import DecodeError, EncodeError
from ...topics.errors import did_you_mean
from .command import END, START
from .compiled import Branch, Compiled
from .errors import InvalidUpdate, UndeclaredRoute, UnknownNode
from .ground import Send, Task, Writes

Route = str | Send


class Planned(NamedTuple):
    """The next tasks in their fixed order, the joins that wait, the deferred tasks that wait."""

    next: tuple[Task, ...]
    joins: Mapping[str, tuple[str, ...]]
    deferred: tuple[Task, ...] = ()


class Plan:
    """Collects where to go after one superstep."""

    def __init__(self, graph: Compiled, view: Callable[[], Any], joins: Mapping[str, tuple[str, ...]]) -> None:
        self._graph, self._view = graph, view
        self._joins = {name: set(arrived) for name, arrived in joins.items()}
        self._plain: set[str] = set()
        self._sent: list[Send] = []

    async def follow(self, ended: Sequence[tuple[str, Writes]]) -> None:
        """Goes where the tasks that ended lead: by their own word, or along the edges of their node, once a node."""
        done: set[str] = set()
        for node, writes in ended:
            if writes.goto is not None:
                self._go(node, writes.goto, self._graph.nodes[node].goes)
            elif node not in done:
                done.add(node)
                await self._along_edges(node)

    async def _along_edges(self, node: str) -> None:
        graph = self._graph
        self._plain.update(graph.edges.get(node, ()))
        for branch in graph.branches.get(node, ()):
            self._go(node, await self._chosen(branch), set(branch.to.values()))
        for join in graph.joins_of.get(node, ()):
            arrived = self._joins.setdefault(join.name, set())
            arrived.add(node)
            if arrived.issuperset(join.sources):
                del self._joins[join.name]
                self._plain.add(join.target)

    async def _chosen(self, branch: Branch) -> list[Route]:
        try:
            chosen = branch.choose(self._view())
            if branch.is_async:
                chosen = await chosen
        except Exception as error:
            error.add_note(f"in the branch after {branch.source!r} of graph {self._graph.name!r}")
            raise
        routes = chosen if isinstance(chosen, (list, tuple)) else [chosen]
        return [self._target(branch, one) for one in routes]

    def _target(self, branch: Branch, chosen: Any) -> Route:
        if isinstance(chosen, Send):
            return chosen
        try:
            return branch.to[chosen]
        except (KeyError, TypeError):
            keys = ", ".join(map(repr, branch.to))
            raise UndeclaredRoute(
                f"the branch after {branch.source!r} chose {chosen!r}; it knows {keys}: add it to the branch's `to`",
                node=branch.source,
                to=str(chosen),
            ) from None

    def _go(self, node: str, routes: Iterable[Route], allowed: Iterable[str]) -> None:
        for route in routes:
            target = route.node if isinstance(route, Send) else route
            known = target in self._graph.nodes and target in allowed
            if not known and not (target == END and isinstance(route, str)):
                self._refuse(node, target)
            if isinstance(route, Send):
                self._sent.append(route)
            else:
                self._plain.add(target)

    def _refuse(self, node: str, target: str) -> None:
        graph = self._graph
        if target not in graph.nodes:
            hint = did_you_mean(target, graph.nodes)
            raise UnknownNode(
                f"{node!r} goes to {target!r}, which graph {graph.name!r} does not have{hint}",
                graph=graph.name,
                node=target,
            )
        raise UndeclaredRoute(
            f"{node!r} goes to {target!r} without having said that it may: write node(..., goes=[{target!r}]), or name "
            "it in the branch's `to`",
            node=node,
            to=target,
        )

    def changed(self, channels: Iterable[str]) -> None:
        """Nodes that look at these channels run."""
        for channel in channels:
            self._plain.update(self._graph.triggers.get(channel, ()))

    def made(self, deferred: Sequence[Task] = ()) -> Planned:
        """The plan, with the deferred tasks that wait from before."""
        nodes, order = self._graph.nodes, self._graph.order
        self._plain.discard(END)
        tasks = [Task(name) for name in self._plain]
        counts: dict[str, int] = {task.node: 0 for task in deferred}
        for task in deferred:
            if task.number is not None:
                counts[task.node] = max(counts[task.node], task.number + 1)
        for send in self._sent:
            number = counts.get(send.node, 0)
            counts[send.node] = number + 1
            tasks.append(Task(send.node, number, fit_input(self._graph, send)))
        waiting = {task.key: task for task in deferred} | {
            task.key: task for task in tasks if nodes[task.node].deferred
        }
        now = [task for task in tasks if not nodes[task.node].deferred]
        if not now:
            now, waiting = list(waiting.values()), {}
        joins = {name: tuple(sorted(arrived)) for name, arrived in sorted(self._joins.items()) if arrived}
        return Planned(_sorted(now, order), joins, _sorted(waiting.values(), order))


def _sorted(tasks: Iterable[Task], order: Mapping[str, int]) -> tuple[Task, ...]:
    return tuple(sorted(tasks, key=lambda task: (order[task.node], -1 if task.number is None else task.number)))


def fit_input(graph: Compiled, send: Send) -> Any:
    """The input of a sent task, of the type that its node takes. Raises InvalidUpdate, UnknownChannel."""
    node = graph.nodes[send.node]
    source = f"the input sent to node {send.node!r}"
    try:
        if not node.takes_state:
            return node.fit_input(send.input)
        if isinstance(send.input, dict):
            channel = graph.schema.channel
            return {name: channel(name, source).whole(value) for name, value in send.input.items()}
    except (DecodeError, EncodeError) as error:
        raise InvalidUpdate(f"{source} does not fit: {error.message}", source=source) from error
    raise InvalidUpdate(
        f"{source} is no dict of channels: the node takes the state; annotate its parameter with the input's type",
        source=source,
    )


async def first(graph: Compiled, view: Callable[[], Any], channels: Iterable[str]) -> Planned:
    """The plan after the input."""
    plan = Plan(graph, view, {})
    await plan.follow([(START, Writes())])
    plan.changed(channels)
    return plan.made()
