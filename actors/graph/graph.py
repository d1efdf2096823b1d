"""`Graph`: how an author declares a graph agent. The engine knows only what `compile()` makes of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar, Unpack, overload

from ..agent import Agent, Retry
from .agents import AgentOptions, graph_agent
from .cache import Cache
from .compiled import Compiled, Join
from .compiling import Draft, compiled
from .errors import InvalidGraph, InvalidNode
from .ground import Durability
from .local import Execution
from .mapping import AgentMapping, Gives, Takes, graph_mapping
from .memory import Memory
from .mermaid import mermaid
from .node import NO_RETRY, Node, NodeOptions, made_node
from .schema import Schema
from .svg import svg
from .watching import GraphEvent

S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])


class Graph(Generic[S]):
    """Nodes and edges over a shared state.

        graph = Graph(State)
        graph.node("draft", draft)
        graph.edge(START, "draft").edge("draft", END)

    `state` is a TypedDict, dataclass, pydantic model or msgspec Struct: each field is a channel, with a reducer if it
    is annotated with one. `input` and `output` are classes with some of its fields (default: the state). `inbox` names
    the channel that takes what is said to the run, each message passed through `hear` first. `schema_version` is the
    number of the state's form, for migrations. Nodes run in supersteps; those of one superstep do not see each other's
    writes."""

    def __init__(
        self,
        state: type[S],
        *,
        name: str = "graph",
        input: Any = None,
        output: Any = None,
        step_limit: int = 1000,
        inbox: str | None = None,
        hear: Callable[[Any], Any] | None = None,
        schema_version: int = 1,
    ) -> None:
        self.schema = Schema(state)
        self.name = name
        if step_limit < 1:
            raise InvalidGraph(f"step_limit of graph {name!r} must be 1 or more, not {step_limit}", graph=name)
        self._draft = Draft(
            name=name,
            schema=self.schema,
            step_limit=step_limit,
            inbox=inbox,
            hear=hear,
            schema_version=schema_version,
            input_type=input,
            output_type=output,
        )
        self._compiled: Compiled | None = None

    # -- building -----------------------------------------------------------------------------------------------

    @overload
    def node(self, name: F, /) -> F: ...
    @overload
    def node(self, name: str | None = None, fn: None = None, **options: Unpack[NodeOptions]) -> Callable[[F], F]: ...
    @overload
    def node(
        self, name: str, fn: Callable[..., Any] | Agent[Any] | Graph[Any] | Compiled, **options: Unpack[NodeOptions]
    ) -> Graph[S]: ...
    def node(self, name: Any = None, fn: Any = None, **options: Any) -> Any:
        """Adds a node: a function `(state)` or `(state, ctx)`, sync or async, an `Agent` (a child run), or a `Graph`.

        Also a decorator, `@graph.node` or `@graph.node("name", ...)`. A function returns a dict of the channels that
        change, a `Command`, or None. Options: see `NodeOptions`."""
        if callable(name) and not isinstance(name, str) and fn is None:
            self._add(name.__name__, name, **options)
            return name
        if fn is None:
            return self._decorator(name, options)
        self._add(name, fn, **options)
        return self

    def _decorator(self, name: str | None, options: dict[str, Any]) -> Callable[[F], F]:
        def declare(fn: F) -> F:
            self._add(name or fn.__name__, fn, **options)
            return fn

        return declare

    def _add(
        self,
        name: str,
        fn: Any,
        *,
        retries: Retry = NO_RETRY,
        timeout: timedelta | None = None,
        cache: Cache | Callable[[Any], str] | None = None,
        deferred: bool = False,
        interrupt_before: bool = False,
        interrupt_after: bool = False,
        on: Sequence[str] = (),
        goes: Sequence[str] | None = None,
        was: Sequence[str] = (),
        inline: bool = False,
        takes: Takes = None,
        gives: Gives = None,
    ) -> None:
        self._compiled = None
        self._draft.require_free(name)
        if timeout is not None and timeout <= timedelta(0):
            raise InvalidNode(f"timeout of node {name!r} must be positive, not {timeout}", node=name)
        for what, names in (("on", on), ("goes", goes), ("was", was)):
            if isinstance(names, str):
                raise InvalidNode(
                    f"{what} of node {name!r} must be a list of names: write {what}=[{names!r}]", node=name
                )
        options: dict[str, Any] = {
            "retries": retries,
            "timeout": timeout,
            "cache": Cache(cache) if callable(cache) else cache,
            "deferred": deferred,
            "before": interrupt_before,
            "after": interrupt_after,
            "on": tuple(on),
            "was": tuple(was),
            "inline": inline,
        }
        node = self._draft.nodes[name] = self._made(name, fn, takes, gives, goes, options)
        if inline and timeout is not None and not node.is_async:
            del self._draft.nodes[name]
            raise InvalidNode(
                f"node {name!r} is called in the loop, where no timeout can end it: leave inline or timeout out",
                node=name,
            )

    def _made(self, name: str, fn: Any, takes: Any, gives: Any, goes: Sequence[str] | None, options: Any) -> Node:
        if isinstance(fn, (Agent, Graph, Compiled)):
            return self._part(name, fn.compile() if isinstance(fn, Graph) else fn, takes, gives, goes, options)
        if takes is not None or gives is not None:
            raise InvalidNode(f"node {name!r} is a function: takes and gives are for agents and subgraphs", node=name)
        return made_node(name, fn, self.schema.cls, goes, **options)

    def _part(
        self, name: str, part: Agent[Any] | Compiled, takes: Any, gives: Any, goes: Sequence[str] | None, options: Any
    ) -> Node:
        kind: Literal["agent", "graph"] = "agent" if isinstance(part, Agent) else "graph"
        mapping: Any
        if isinstance(part, Agent):
            mapping = AgentMapping(takes, gives)
        else:
            mapping = graph_mapping(name, self.schema, part.schema, takes, gives)
        return Node(
            name=name,
            fn=_called_by_engine,
            takes_context=True,
            is_async=True,
            kind=kind,
            part=part,
            mapping=mapping,
            goes=tuple(goes or ()),
            **options,
        )

    def edge(self, source: str, target: str) -> Graph[S]:
        """After `source` (a node or START) comes `target` (a node or END). Several edges: all of their targets."""
        self._compiled = None
        self._draft.edges.setdefault(source, []).append(target)
        return self

    def chain(self, *names: str) -> Graph[S]:
        """An edge from each to the next: `chain(START, "a", "b", END)`."""
        for source, target in itertools.pairwise(names):
            self.edge(source, target)
        return self

    def branch(
        self, source: str, choose: Callable[[Any], Any], to: Mapping[Any, str] | Iterable[str] | None = None
    ) -> Graph[S]:
        """After `source` comes what `choose(state)` says: a key of `to`, a `Send`, or a list of them.

        `to` maps keys to nodes (or END), or lists the nodes; without it the nodes are read from the annotation
        `-> Literal["a", "b"]`. `choose` sees the state after the superstep, and should follow from it alone."""
        self._compiled = None
        self._draft.add_branch(source, choose, to)
        return self

    def join(self, sources: Sequence[str], target: str) -> Graph[S]:
        """`target` comes once all of `sources` have ended since it last came this way."""
        self._compiled = None
        self._draft.joins.append(Join(tuple(sources), target))
        return self

    def compile(self) -> Compiled:
        """Checks the graph, once. Raises InvalidGraph or one of its kinds, which say what to do; see docs/graphs.md."""
        if self._compiled is None:
            self._compiled = compiled(self._draft)
        return self._compiled

    @property
    def fingerprint(self) -> str:
        """16 hex digits that change with nodes, edges and channels."""
        return self.compile().fingerprint

    # -- running in process -------------------------------------------------------------------------------------

    async def run(self, input: Any = None, *, threads: Executor | None = None) -> S:
        """Runs the graph in this process and gives its final state (or `output`). Sync nodes run in `threads`.

        Raises what a node raised; GraphInterrupted, whose `execution` goes on by `resume`; StepLimit; InvalidUpdate."""
        execution: Execution[S] = Execution(self.compile(), Memory(keep=False), threads=threads)
        return await execution.run(input)

    def run_sync(self, input: Any = None) -> S:
        """`run` for code without a loop."""
        return asyncio.run(self.run(input))

    def execution(self, *, after: Execution[S] | None = None, threads: Executor | None = None) -> Execution[S]:
        """An execution in this process that keeps its history. `after`: its input is added to the last state of that
        one, as the next run of a thread does."""
        base = after.snapshot() if after is not None else None
        return Execution(self.compile(), Memory(base=base), threads=threads)

    def stream(self, input: Any = None) -> AsyncGenerator[GraphEvent, None]:
        """What happens while the graph runs in this process; see `GraphEvent`."""
        execution: Execution[S] = self.execution()
        return execution.stream(input)

    # -- running on workers -------------------------------------------------------------------------------------

    def agent(self, name: str, *, durability: Durability = "sync", **options: Unpack[AgentOptions]) -> Agent[Any]:
        """The graph as an agent that workers carry out: each superstep is a checkpoint in the log of its run.

        `durability`: "sync" (a superstep begins when the one before it is durable), "async" (a few may be lost by a
        crash), "exit" (only the end and questions are kept). The options are those of `@agent`. Input: some channels;
        result: the final state, or `output`."""
        return graph_agent(self.compile(), name, durability, options)

    # -- drawing ------------------------------------------------------------------------------------------------

    def mermaid(self) -> str:
        """The graph as Mermaid text."""
        return mermaid(self.compile())

    def svg(self) -> str:
        """The graph as an SVG image."""
        return svg(self.compile())


async def _called_by_engine() -> None:
    raise AssertionError("agents and subgraphs are called by the engine")
