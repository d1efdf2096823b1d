"""Graphs for the tests of their durable ground, and agents that carry them out."""

from __future__ import annotations

from typing import Any

from callboard.actors.agent import DEFAULT_RETRY, Agent, Retry, agent
from callboard.actors.engine import Context
from callboard.actors.graph import Graph
from callboard.actors.graph.engine import Engine
from callboard.actors.graph.form import Form
from callboard.actors.graph.ground import Durability


def serve(graph: Graph[Any], name: str, durability: Durability = "sync", retries: Retry = DEFAULT_RETRY) -> Agent[Any]:
    """The graph as an agent whose result is the last state."""
    compiled = graph.compile()
    form = Form(compiled)

    @agent(name, retries=retries)
    async def drive(ctx: Context, input: dict[str, Any] | None) -> Any:
        final = await Engine(compiled, ctx.ground(form, durability), threads=ctx.threads).run(input)
        return compiled.schema.result(final.values, None)

    return drive
