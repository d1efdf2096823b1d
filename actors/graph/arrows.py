"""The arrows of a graph, for whoever draws it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .compiled import Compiled


@dataclass(frozen=True, slots=True)
class Arrow:
    """A way from a node, or START, to a node, or END."""

    source: str
    target: str
    label: str = ""
    dashed: bool = False
    """It depends on what a branch or a node decides."""


def arrows(graph: Compiled) -> list[Arrow]:
    """All arrows, each once, in the order of the declarations."""
    return list(dict.fromkeys(_arrows(graph)))


def _arrows(graph: Compiled) -> Iterator[Arrow]:
    for source, targets in graph.edges.items():
        yield from (Arrow(source, target) for target in targets)
    for join in graph.joins:
        yield from (Arrow(source, join.target, "join") for source in join.sources)
    for source, branches in graph.branches.items():
        for branch in branches:
            for key, target in branch.to.items():
                yield Arrow(source, target, "" if key == target else str(key), dashed=True)
    for name, node in graph.nodes.items():
        yield from (Arrow(name, target, dashed=True) for target in node.goes)
