"""Callboard: an actor-model distributed runtime for agents on NATS JetStream. The public names, nothing else.

    from callboard import Context, Retry, agent

Agents are declared with `@agent` and carried out by workers; plain actors derive from `Actor`. See docs/ for the rest.
"""

from .actors.actor import Actor
from .actors.agent import Agent, Retry, Retryable, Terminal, agent
from .actors.context import ActorContext
from .actors.engine import AttemptEnded, Child, ChildFailed, Context, JournalMismatch, StepFailed, StepTimeout
from .actors.handler import ask, on
from .actors.hook import DidNotHappen, Done, Happened, Unsure, hook
from .actors.limit import Limit, Rate
from .topics.errors import CallboardError
from .topics.messages import Status

__version__ = "0.1.0"

__all__ = [
    "Actor",
    "ActorContext",
    "Agent",
    "AttemptEnded",
    "CallboardError",
    "Child",
    "ChildFailed",
    "Context",
    "DidNotHappen",
    "Done",
    "Happened",
    "JournalMismatch",
    "Limit",
    "Rate",
    "Retry",
    "Retryable",
    "Status",
    "StepFailed",
    "StepTimeout",
    "Terminal",
    "Unsure",
    "agent",
    "ask",
    "hook",
    "on",
]
