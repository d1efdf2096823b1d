"""Graphs for the tests of their durable ground, and agents that carry them out."""

from __future__ import annotations

from typing import Any

from callboard.actors.agent import DEFAULT_RETRY, Agent, Retry
from callboard.actors.graph import Graph
from callboard.actors.graph.ground import Durability


def serve(graph: Graph[Any], name: str, durability: Durability = "sync", retries: Retry = DEFAULT_RETRY) -> Agent[Any]:
    """The graph as an agent whose result is the last state."""
    return graph.agent(name, durability=durability, retries=retries)
