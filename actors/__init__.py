"""What acts: actors, the coordinator, the agent worker, the projector, the engine. Knows `topics` and `store`.

`actor`, `handler` and `context` are what authors of actors see, `agent` and `engine/` what authors of agents see;
`coordinator/`, `worker/` and `projector` are the actors that Callboard itself is made of.
"""

from .actor import Actor, QueueSource, RpcSource, SignalSource, Source
from .agent import Agent, Retry, agent
from .context import ActorContext
from .handler import ask, on
from .limit import Limit, Rate

__all__ = [
    "Actor",
    "ActorContext",
    "Agent",
    "Limit",
    "QueueSource",
    "Rate",
    "Retry",
    "RpcSource",
    "SignalSource",
    "Source",
    "agent",
    "ask",
    "on",
]
