"""Whether an edit may be taken to come from a node: what is known of that without the code of the graph."""

from __future__ import annotations

from ...topics.errors import InvalidInput, did_you_mean
from ...topics.messages import AgentInfo, Checkpoint
from ..errors import UnknownNode

_SHOWN = 80


def require_node(made: Checkpoint, info: AgentInfo | None, node: str) -> None:
    """Raises InvalidInput when the checkpoint that is edited is none of a graph, and UnknownNode for a node that the
    registered graph neither has nor had. An agent that is not registered, or does not tell its nodes, is not asked:
    then the worker refuses what is wrong, and the run fails."""
    if not made.fingerprint:
        raise InvalidInput(
            f"as_node names {node[:_SHOWN]!r}, but agent {made.agent!r} is no graph: it has no nodes. Leave as_node out"
        )
    known = None if info is None else info.nodes
    if known is None or node in known:
        return
    raise UnknownNode(
        f"as_node names {node[:_SHOWN]!r}, which agent {made.agent!r} does not have{did_you_mean(node, known)}",
        agent=made.agent,
        node=node[:_SHOWN],
    )
