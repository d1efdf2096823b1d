"""Graphs for the tests of their durable ground, and agents that carry them out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from callboard.actors.agent import DEFAULT_RETRY, Agent, Retry, Retryable
from callboard.actors.graph import Graph
from callboard.actors.graph.ground import Durability


def serve(graph: Graph[Any], name: str, durability: Durability = "sync", retries: Retry = DEFAULT_RETRY) -> Agent[Any]:
    """The graph as an agent whose result is the last state."""
    return graph.agent(name, durability=durability, retries=retries)


@dataclass
class World:
    """What nodes do outside, and which of them fails next."""

    done: Counter[str] = field(default_factory=Counter)
    fails: set[str] = field(default_factory=set)

    def act(self, what: str) -> str:
        self.done[what] += 1
        if what in self.fails:
            self.fails.discard(what)
            raise Retryable(f"{what} failed")
        return what
