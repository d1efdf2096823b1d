"""What graphs may raise.

CallboardError
└── GraphError
    ├── InvalidGraph            the graph cannot be compiled; several problems at once
    │   ├── UnknownNode, UnknownChannel, DuplicateName, NoEntry, Unreachable, MissingEdge, Endless, InvalidState,
    │   │   InvalidNode
    ├── ChannelConflict         two tasks of a superstep wrote a channel that takes one value
    ├── InvalidUpdate           what a node returned, or an input, does not fit the state
    ├── UndeclaredRoute         a node or branch went where it had not said it might go
    ├── StepLimit               more supersteps than the graph allows
    ├── NodeTimeout             a node took longer than its timeout
    └── GraphInterrupted        in process: the execution waits for answers
"""

from __future__ import annotations

from typing import Any

from ...store.errors import UnknownNode as NodeUnknown
from ...topics.errors import CallboardError, InvalidInput


class GraphError(CallboardError):
    """Something about a graph."""

    code = "graph_error"


class InvalidGraph(GraphError, InvalidInput):
    """The graph cannot be compiled. Facts: `graph`, `problems` (their codes) if there are several."""

    code = "graph_invalid"


class UnknownNode(NodeUnknown, InvalidGraph):
    """A node is named that the graph does not have. Facts: `graph`, `node`."""


class UnknownChannel(InvalidGraph):
    """A channel is named that the state does not have. Facts: `channel`."""

    code = "unknown_channel"


class DuplicateName(InvalidGraph):
    """Two nodes, joins or channels have one name, or a name is none that is allowed. Facts: `graph`, `node`."""

    code = "graph_name"


class NoEntry(InvalidGraph):
    """Nothing leads away from START. Facts: `graph`."""

    code = "graph_no_entry"


class Unreachable(InvalidGraph):
    """A node that nothing leads to. Facts: `graph`, `node`."""

    code = "graph_unreachable"


class MissingEdge(InvalidGraph):
    """A node that nothing leads away from. Facts: `graph`, `node`."""

    code = "graph_missing_edge"


class Endless(InvalidGraph):
    """A node from which no path leads to END. Facts: `graph`, `node`."""

    code = "graph_endless"


class InvalidState(InvalidGraph):
    """The class of the state, or one of its fields, cannot be used."""

    code = "graph_state"


class InvalidNode(InvalidGraph):
    """A node's function or options cannot be used. Facts: `node`."""

    code = "graph_node"


class ChannelConflict(GraphError):
    """Two tasks of one superstep wrote a channel without a reducer. Facts: `channel`, `nodes`, `step`."""

    code = "channel_conflict"


class InvalidUpdate(GraphError, InvalidInput):
    """A value does not fit its channel. Facts: `channel`, `source`."""

    code = "invalid_update"


class UndeclaredRoute(GraphError):
    """A node or a branch went to a node that it had not declared. Facts: `node`, `to`."""

    code = "graph_route"


class StepLimit(GraphError):
    """The execution took as many supersteps as its graph allows. Facts: `graph`, `limit`."""

    code = "step_limit"


class NodeTimeout(GraphError, TimeoutError):
    """A node took longer than its timeout. Facts: `node`."""

    code = "node_timeout"
    retryable = True


class GraphInterrupted(GraphError):
    """In process: the execution waits for answers. `execution` goes on by `await execution.resume(...)`."""

    code = "graph_interrupted"

    def __init__(self, message: str, execution: Any, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.execution = execution
