"""What somebody who watches an execution in process is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

Kind = Literal["started", "node_started", "node", "superstep", "custom", "interrupted", "ended"]


@dataclass(frozen=True, slots=True)
class GraphEvent:
    """One thing that happened in an execution."""

    kind: Kind
    """`started`: a superstep begins, `data` names its tasks. `node_started`, `node`: a task began, or ended with the
    writes in `data`. `superstep`: it is reconciled, `data` is the Snapshot. `custom`: `ctx.emit`, with the type in
    `type`. `interrupted`: `data` holds the open questions. `ended`: `data` is the result."""
    step: int = 0
    task: str = ""
    data: Any = None
    type: str = ""
    checkpoint: str = ""
    namespace: str = ""
    """Empty for the root graph; for a subgraph the step and task that runs it: `2/research`."""


class Watch:
    """Hands events to a function, with the namespace of the graph that they come from."""

    def __init__(self, tell: Callable[[GraphEvent], None], namespace: str = "") -> None:
        self._tell, self._namespace = tell, namespace

    def __call__(self, one: GraphEvent) -> None:  # noqa: D102  # the class says it
        self._tell(replace(one, namespace=self._namespace) if self._namespace else one)

    def below(self, step: int, task: str) -> Watch:
        """For the subgraph that this task runs."""
        return Watch(self._tell, below(self._namespace, step, task))


def event(
    kind: Kind, step: int = 0, task: str = "", data: Any = None, *, type: str = "", checkpoint: str = ""
) -> GraphEvent:
    """An event of the graph at hand."""
    return GraphEvent(kind, step, task, data, type, checkpoint)


def below(namespace: str, step: int, task: str) -> str:
    """The namespace of the subgraph that a task runs: `2/research`, `2/research|1/read`."""
    inner = f"{step}/{task}"
    return f"{namespace}|{inner}" if namespace else inner
