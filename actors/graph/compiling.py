"""Compiling: the checks that a graph passes before it runs."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...topics.errors import did_you_mean
from .command import END, START
from .compiled import Branch, Compiled, Join
from .errors import (
    DuplicateName,
    Endless,
    InvalidGraph,
    InvalidState,
    MissingEdge,
    NoEntry,
    UnknownChannel,
    UnknownNode,
    Unreachable,
)
from .messages import messages
from .node import Node
from .schema import Schema, fields_of

_NAME = re.compile(r"[^\s#+>/|@.:]{1,64}\Z")


@dataclass(kw_only=True)
class Draft:
    """A graph as it is being declared."""

    name: str
    schema: Schema
    step_limit: int
    inbox: str | None
    hear: Callable[[Any], Any] | None
    schema_version: int
    input_type: Any
    output_type: Any
    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[str, list[str]] = field(default_factory=dict)
    branches: list[Branch] = field(default_factory=list)
    joins: list[Join] = field(default_factory=list)

    def require_free(self, name: str) -> None:
        """Raises DuplicateName for a name that is taken or not allowed."""
        if not _NAME.match(str(name)) or name in (START, END):
            raise DuplicateName(
                f"{name!r} is no name for a node: 1 to 64 characters, no spaces and none of # + > / | @ . :",
                graph=self.name,
                node=name,
            )
        if name in self.nodes:
            raise DuplicateName(f"graph {self.name!r} has a node {name!r} already", graph=self.name, node=name)

    def add_branch(self, source: str, choose: Callable[[Any], Any], to: Any) -> None:
        """Keeps a conditional edge. Raises MissingEdge if nobody says where it leads."""
        if to is None:
            to = _literals(choose)
        if to is None or isinstance(to, str):
            raise MissingEdge(
                f"the branch after {source!r} does not say where it leads: write branch({source!r}, …, to=['a', 'b']), "
                "or annotate its function with -> Literal['a', 'b']",
                graph=self.name,
                node=source,
            )
        keys = dict(to) if isinstance(to, Mapping) else {name: name for name in to}
        self.branches.append(Branch(source, choose, keys))

    def ways(self, name: str) -> set[str]:
        """Where a node, or START, may lead."""
        found = set(self.edges.get(name, ()))
        found.update(target for branch in self.branches if branch.source == name for target in branch.to.values())
        found.update(join.target for join in self.joins if name in join.sources)
        return found | set(self.nodes[name].goes if name in self.nodes else ())


def _literals(choose: Callable[[Any], Any]) -> list[str] | None:
    try:
        hint = typing.get_type_hints(choose).get("return")
    except Exception:  # noqa: BLE001  # lambdas, callable objects, names for type checkers alone
        return None
    for one in (hint, *typing.get_args(hint)):
        if typing.get_origin(one) is Literal:
            return list(typing.get_args(one))
    return None


def compiled(draft: Draft) -> Compiled:
    """The checked graph. Raises the problem that it has, or InvalidGraph that lists several."""
    problems = list(_problems(draft))
    if len(problems) == 1:
        raise problems[0]
    if problems:
        lines = "\n".join(f"- {one.message}" for one in problems)
        raise InvalidGraph(
            f"graph {draft.name!r} has {len(problems)} problems:\n{lines}",
            graph=draft.name,
            problems=[one.code for one in problems],
        )
    sources = {branch.source for branch in draft.branches}
    return Compiled(
        name=draft.name,
        schema=draft.schema,
        nodes=dict(draft.nodes),
        edges={source: tuple(dict.fromkeys(targets)) for source, targets in draft.edges.items()},
        branches={one: tuple(branch for branch in draft.branches if branch.source == one) for one in sources},
        joins=tuple(dict.fromkeys(draft.joins)),
        step_limit=draft.step_limit,
        schema_version=draft.schema_version,
        inbox=draft.inbox,
        hear=draft.hear or _hear(draft),
        input_type=draft.input_type,
        output_type=draft.output_type,
        former={old: name for name, node in draft.nodes.items() for old in node.was},
    )


def _hear(draft: Draft) -> Callable[[Any], Any] | None:
    """Into a channel of messages a text comes as what a user has said."""
    channel = draft.schema.channels.get(draft.inbox or "")
    if channel is None or channel.reducer is not messages:
        return None
    return lambda said: {"role": "user", "content": said} if isinstance(said, str) else said


def _problems(draft: Draft) -> Iterator[InvalidGraph]:
    unknown = [*_unknown_nodes(draft), *_unknown_channels(draft), *_former_names(draft), *_empty_joins(draft)]
    yield from unknown
    if not any(isinstance(one, UnknownNode) for one in unknown):
        yield from _dead_ends(draft)


def _empty_joins(draft: Draft) -> Iterator[InvalidGraph]:
    for join in draft.joins:
        if not join.sources:
            yield MissingEdge(
                f"the join before node {join.target!r} waits for no node: name those that it waits for",
                graph=draft.name,
                node=join.target,
            )


def _unknown_nodes(draft: Draft) -> Iterator[InvalidGraph]:
    for name, where in _named(draft):
        if name not in draft.nodes:
            hint = did_you_mean(name, draft.nodes)
            yield UnknownNode(
                f"{where} names {name!r}, which graph {draft.name!r} does not have{hint}", graph=draft.name, node=name
            )


def _named(draft: Draft) -> Iterator[tuple[str, str]]:
    """Every name that should be a node's, and where it stands."""
    for source, targets in draft.edges.items():
        for target in targets:
            yield from _ends(f"edge {source!r} → {target!r}", [source], [target])
    for branch in draft.branches:
        yield from _ends(f"the branch after {branch.source!r}", [branch.source], branch.to.values())
    for join in draft.joins:
        yield from ((name, f"the join of {', '.join(join.sources)}") for name in (*join.sources, join.target))
    for name, node in draft.nodes.items():
        yield from _ends(f"goes of node {name!r}", [], node.goes)


def _ends(where: str, sources: Iterable[str], targets: Iterable[str]) -> Iterator[tuple[str, str]]:
    yield from ((name, where) for name in sources if name != START)
    yield from ((name, where) for name in targets if name != END)


def _unknown_channels(draft: Draft) -> Iterator[InvalidGraph]:
    wanted = [(channel, f"on of node {name!r}") for name, node in draft.nodes.items() for channel in node.on]
    if draft.inbox is not None:
        wanted.append((draft.inbox, f"inbox of graph {draft.name!r}"))
    for what, cls in (("input", draft.input_type), ("output", draft.output_type)):
        if cls is not None:
            wanted += [(name, f"{what} of graph {draft.name!r}") for name in fields_of(cls)]
    for channel, where in wanted:
        try:
            draft.schema.channel(channel, where)
        except UnknownChannel as error:
            yield error
    if draft.inbox in draft.schema.channels and draft.schema.channels[draft.inbox].reducer is None:
        yield InvalidState(
            f"inbox {draft.inbox!r} of graph {draft.name!r} takes one value: give it a reducer, as append or messages",
            graph=draft.name,
        )


def _former_names(draft: Draft) -> Iterator[InvalidGraph]:
    for name, node in draft.nodes.items():
        for old in node.was:
            if old in draft.nodes:
                yield DuplicateName(
                    f"node {name!r} was {old!r}, which is a node of graph {draft.name!r} today",
                    graph=draft.name,
                    node=old,
                )


def _dead_ends(draft: Draft) -> Iterator[InvalidGraph]:
    """Nodes that nothing leads to, or from which nothing leads on."""
    entries = {name for name, node in draft.nodes.items() if node.on}
    if not draft.ways(START):
        yield NoEntry(
            f"nothing leads away from START in graph {draft.name!r}: add edge(START, 'first node')", graph=draft.name
        )
        return
    reached = _closure({START, *entries}, draft.ways)
    ends = _closure(
        {END}, lambda target: {name for name in draft.nodes if target in draft.ways(name)} | _open(draft, target)
    )
    for name, node in draft.nodes.items():
        facts = {"graph": draft.name, "node": name}
        if name not in reached:
            yield Unreachable(
                f"nothing leads to node {name!r} of graph {draft.name!r}: add an edge to it, name it in `goes` of the "
                "node that goes there, or take it out",
                **facts,
            )
        elif not draft.ways(name) and not node.on:
            yield MissingEdge(
                f"nothing leads away from node {name!r} of graph {draft.name!r}: add edge({name!r}, END), or say where "
                "it goes",
                **facts,
            )
        elif name not in ends:
            yield Endless(
                f"no path leads from node {name!r} of graph {draft.name!r} to END: give the cycle a branch that ends "
                "it",
                **facts,
            )


def _open(draft: Draft, target: str) -> set[str]:
    """Nodes that may end without an edge: those that look at channels."""
    return {name for name, node in draft.nodes.items() if node.on and not draft.ways(name)} if target == END else set()


def _closure(start: set[str], step: Callable[[str], set[str]]) -> set[str]:
    found, todo = set(start), list(start)
    while todo:
        for name in step(todo.pop()) - found:
            found.add(name)
            todo.append(name)
    return found
