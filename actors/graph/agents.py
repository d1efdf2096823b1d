"""A graph as an agent: the function that drives the engine on the ground that an attempt provides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from textwrap import shorten
from typing import Any, TypedDict

from ..agent import Agent, OnMissing, Retry, agent
from ..limit import Limit, Rate
from .command import START
from .compiled import Compiled
from .engine import Engine
from .form import Form
from .given import Given
from .ground import Durability, Host

_NODES_CHARS = 100


class AgentOptions(TypedDict, total=False):
    """What `@agent` takes besides the name."""

    topics: Sequence[str]
    retries: Retry
    timeout: timedelta | None
    deadline: timedelta | None
    wait_timeout: timedelta | None
    limit: Limit | None
    rate: Rate | None
    version: str
    pin: bool
    on_missing: OnMissing
    description: str | None


def graph_agent(graph: Compiled, name: str, durability: Durability, options: AgentOptions) -> Agent[Any]:
    """The agent that executes this graph. Its input is a part of the state, its result the final one."""
    form = Form(graph, name, options.get("version", ""))

    async def drive(ctx: Host, input: Any) -> Any:
        engine = Engine(graph, ctx.ground(form, durability), threads=ctx.threads)
        final = await engine.run(input)
        return graph.schema.result(final.values, graph.output_type)

    drive.__annotations__ = {
        "ctx": Any,
        "input": graph.input_type or _some(f"{name}_input", graph),
        "return": graph.output_type or _some(f"{name}_state", graph),
    }
    drive.__doc__ = f"Graph of {shorten(', '.join(graph.nodes), _NODES_CHARS, placeholder=' …')}"
    made = agent(name, state=_some(f"{name}_state", graph), **options)(drive)
    nodes = (START, *graph.nodes, *graph.former)
    return replace(made, reads=lambda data: Given(data, made.input_type), nodes=nodes)


def _some(title: str, graph: Compiled) -> Any:
    """Some channels of the state, as a class: the ends of a graph need not have a value in each."""
    fields = {name: channel.type_ for name, channel in graph.schema.channels.items()}
    return TypedDict(title, fields, total=False)  # type: ignore[operator]  # the names are known at run time only
