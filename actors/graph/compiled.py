"""`Compiled`: a graph that was checked, in the form in which the engine reads it."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .command import END
from .errors import UnknownNode
from .ground import Snapshot, Task
from .node import Node
from .schema import Schema


@dataclass(frozen=True)
class Branch:
    """A conditional edge: `choose(state)` gives a key of `to`, a `Send`, or several."""

    source: str
    choose: Callable[[Any], Any]
    to: Mapping[Any, str]

    @functools.cached_property
    def is_async(self) -> bool:
        """Whether `choose` is awaited."""
        return inspect.iscoroutinefunction(self.choose)


@dataclass(frozen=True)
class Join:
    """An edge from several nodes: the target runs once all of them have ended."""

    sources: tuple[str, ...]
    target: str

    @functools.cached_property
    def name(self) -> str:
        """What names it in snapshots."""
        return f"{'+'.join(sorted(self.sources))}>{self.target}"


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """What the engine needs of a graph."""

    name: str
    schema: Schema
    nodes: Mapping[str, Node]
    edges: Mapping[str, tuple[str, ...]]
    """By source, in the order of their declaration."""
    branches: Mapping[str, tuple[Branch, ...]]
    joins: tuple[Join, ...]
    step_limit: int
    schema_version: int = 1
    inbox: str | None = None
    hear: Callable[[Any], Any] | None = None
    input_type: Any = None
    output_type: Any = None
    former: Mapping[str, str] = field(default_factory=dict)
    """Today's name of a node by a former one."""

    @functools.cached_property
    def order(self) -> dict[str, int]:
        """The place of each node in the fixed order: that of the declarations."""
        return {name: at for at, name in enumerate(self.nodes)}

    @functools.cached_property
    def joins_of(self) -> dict[str, list[Join]]:
        """The joins that a node is a source of."""
        return {name: [join for join in self.joins if name in join.sources] for name in self.nodes}

    @functools.cached_property
    def triggers(self) -> dict[str, list[str]]:
        """The nodes that run when a channel was written to."""
        channels = {channel for node in self.nodes.values() for channel in node.on}
        return {one: [name for name, node in self.nodes.items() if one in node.on] for one in channels}

    @functools.cached_property
    def pauses(self) -> bool:
        """Whether any node stops before or after itself."""
        return any(node.before or node.after for node in self.nodes.values())

    @functools.cached_property
    def follow(self) -> dict[str, tuple[Task, ...]]:
        """The next tasks after a node that ran alone and has plain edges only; for all others the plan is made."""
        if self.triggers:
            return {}
        found = {}
        for name in self.nodes:
            targets = [one for one in self.edges.get(name, ()) if one != END]
            if not self.branches.get(name) and not self.joins_of[name] and not self._deferred(targets):
                found[name] = tuple(Task(one) for one in sorted(set(targets), key=self.order.__getitem__))
        return found

    def _deferred(self, names: list[str]) -> bool:
        return any(self.nodes[name].deferred for name in names)

    @functools.cached_property
    def fingerprint(self) -> str:
        """16 hex digits that change with nodes, edges and channels; not with the code inside the nodes."""
        lines = [channel.signature for channel in self.schema.channels.values()]
        for name, node in self.nodes.items():
            inner = node.part.fingerprint if node.kind == "graph" else getattr(node.part, "name", "")
            lines.append(f"{name} {node.kind} {inner} {node.deferred} {node.on} {node.goes}")
        lines += [f"{source}>{target}" for source, targets in self.edges.items() for target in targets]
        lines += [join.name for join in self.joins]
        lines += [
            f"{source}?{key}:{target}"
            for source, found in self.branches.items()
            for branch in found
            for key, target in branch.to.items()
        ]
        return hashlib.blake2b("\n".join(sorted(lines)).encode(), digest_size=8).hexdigest()

    # -- former names -------------------------------------------------------------------------------------------

    def node_now(self, name: str) -> str | None:
        """Today's name of a node that may have been renamed."""
        return name if name in self.nodes else self.former.get(name)

    def key_now(self, key: str) -> str:
        """A task key under the node's name of today."""
        name, mark, number = key.partition("#")
        return f"{self.node_now(name) or name}{mark}{number}"

    def adopted(self, snapshot: Snapshot) -> Snapshot:
        """A loaded snapshot, with nodes and channels under their names of today; `replaced` holds the channels that
        have come since. Raises UnknownNode for a node that is planned and gone, UnknownChannel."""
        values = self._values_now(snapshot.values)
        known = all(task.node in self.nodes for task in (*snapshot.next, *snapshot.deferred))
        if known and not self.former and values is snapshot.values:
            return snapshot
        return Snapshot(
            step=snapshot.step,
            source=snapshot.source,
            values=values,
            replaced=tuple(sorted(values.keys() - snapshot.values.keys())),
            next=tuple(self._task_now(task) for task in snapshot.next),
            ran=tuple(self.key_now(key) for key in snapshot.ran),
            joins=self._joins_now(snapshot.joins),
            deferred=tuple(self._task_now(task) for task in snapshot.deferred),
            heard=snapshot.heard,
            id=snapshot.id,
            parent=snapshot.parent,
        )

    def _values_now(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values under the names of today, with what channels begin with that have come since."""
        schema = self.schema
        begun = schema.initial()
        if values.keys() >= begun.keys() and values.keys() <= schema.channels.keys():
            return values
        names = {name: name if name in schema.channels else schema.former.get(name, name) for name in values}
        named = {names[name]: one for name, one in values.items()}
        gone = sorted(named.keys() - schema.channels.keys())
        if gone:
            schema.channel(gone[0], f"the checkpoint of graph {self.name!r}")
        return {**begun, **named}

    def _task_now(self, task: Task) -> Task:
        now = self.node_now(task.node)
        if now is None:
            raise UnknownNode(
                f"the checkpoint plans node {task.node!r}, which graph {self.name!r} has no more: say which node it is "
                f"now, node(..., was=[{task.node!r}]), or plan another one by update_state",
                graph=self.name,
                node=task.node,
            )
        return Task(now, task.number, task.input)

    def _joins_now(self, joins: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """Joins that still exist, under the names of today."""
        names = {join.name for join in self.joins}
        found = {}
        for name, arrived in joins.items():
            sources, _, target = name.rpartition(">")
            renamed = Join(tuple(map(self.key_now, sources.split("+"))), self.key_now(target)).name
            if renamed in names:
                found[renamed] = tuple(sorted(map(self.key_now, arrived)))
        return found
