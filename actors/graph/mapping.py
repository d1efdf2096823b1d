"""What goes into the subgraph or agent behind a node, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .channel import Channel
from .compiled import Compiled
from .errors import InvalidNode
from .ground import Snapshot
from .messages import Remove, id_of, messages
from .reducers import add, append, maximum, merge, union
from .schema import Schema

Takes = str | Mapping[str, str] | Callable[[Any], Any] | None
Gives = str | Mapping[str, str] | Callable[[Any], Any] | None

_REPEATABLE = (add, append, merge, maximum, union, messages)
"""Reducers of which it is known what to hand up, so that what was handed in does not count twice."""


def field(state: Any, name: str) -> Any:
    """A channel of a node's view of the state."""
    return state[name] if isinstance(state, dict) else getattr(state, name)


def has(state: Any, name: str) -> bool:
    """Whether the channel has a value."""
    return name in state if isinstance(state, dict) else hasattr(state, name)


@dataclass(frozen=True)
class AgentMapping:
    """`takes`: a channel, `{input field: channel}`, or a function of the state. `gives`: a channel, `{channel: result
    field}`, or a function of the result."""

    takes: Takes = None
    gives: Gives = None

    def into(self, state: Any) -> Any:
        """The agent's input; without `takes` all channels."""
        if callable(self.takes):
            return self.takes(state)
        if isinstance(self.takes, str):
            return field(state, self.takes)
        if self.takes is None:
            return dict(state) if isinstance(state, dict) else state
        return {inner: field(state, outer) for inner, outer in self.takes.items() if has(state, outer)}

    def out(self, result: Any) -> Any:
        """The update of the state; without `gives` the result is one."""
        if callable(self.gives):
            return self.gives(result)
        if isinstance(self.gives, str):
            return {self.gives: result}
        if self.gives is None:
            return result
        return {outer: field(result, inner) for outer, inner in self.gives.items() if has(result, inner)}


@dataclass(frozen=True)
class GraphMapping:
    """`takes`: `{its channel: ours}`, or a function of our state. `gives`: `{our channel: its}`, or a function of its
    state. Without them channels of the same name."""

    takes: Mapping[str, str] | Callable[[Any], Any]
    gives: Mapping[str, str] | Callable[[Any], Any]
    outer: Schema

    def into(self, state: Any) -> Any:
        """The subgraph's input."""
        if callable(self.takes):
            return self.takes(state)
        return {inner: field(state, outer) for inner, outer in self.takes.items() if has(state, outer)}

    def out(self, graph: Compiled, given: Any, final: Snapshot) -> Any:
        """The update of our state: what the subgraph made of what it was given."""
        if callable(self.gives):
            return self.gives(graph.schema.view(final.values))
        begun = given if isinstance(given, dict) else {}
        update = {}
        for outer, inner in self.gives.items():
            if inner not in final.values:
                continue
            value = graph.schema.channels[inner].read(final.values[inner])
            if inner in begun:
                value = _news(self.outer.channels[outer], begun[inner], value)
            if value is not _SAME:
                update[outer] = value
        return update


_SAME: Any = object()


def _news(channel: Channel, before: Any, after: Any) -> Any:
    """What has come about between both, as an update of our channel."""
    if before == after:
        return _SAME
    if channel.reducer is add:
        return after - before if isinstance(after, (int, float)) else after[len(before) :]
    if not channel.grows or not isinstance(before, list):
        return after
    if after[: len(before)] == before:
        return after[len(before) :]
    if channel.reducer is not messages:
        return after
    left, known = {id_of(one) for one in after}, {id_of(one): one for one in before}
    return [Remove(one) for one in known if one is not None and one not in left] + [
        one for one in after if known.get(id_of(one)) != one
    ]


def graph_mapping(name: str, outer: Schema, inner: Schema, takes: Any, gives: Any) -> GraphMapping:
    """The mapping of a node that runs a subgraph. Raises InvalidNode, UnknownChannel."""
    shared = [one for one in inner.channels if one in outer.channels]
    if isinstance(takes, str) or isinstance(gives, str):
        raise InvalidNode(f"node {name!r}: takes and gives of a subgraph are dicts or functions", node=name)
    if gives is None:
        for one in shared:
            reducer = outer.channels[one].reducer
            if reducer is not None and reducer not in _REPEATABLE:
                raise InvalidNode(
                    f"node {name!r}: channel {one!r} is in both states, and reducer {reducer.name} would count "
                    "twice what was handed in: say what the subgraph gives, as a dict or a function of its state",
                    node=name,
                )
    source = f"node {name!r}"
    for wanted, (here, there) in ((takes, (inner, outer)), (gives, (outer, inner))):
        if isinstance(wanted, Mapping):
            for left, right in wanted.items():
                here.channel(left, source)
                there.channel(right, source)
    both = {one: one for one in shared}
    return GraphMapping(both if takes is None else takes, both if gives is None else gives, outer)
