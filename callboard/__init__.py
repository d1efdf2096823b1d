"""Callboard: an actor-model distributed runtime for agents on NATS JetStream. The public names, nothing else.

    from callboard import Context, Retry, agent

Agents are declared with `@agent` and carried out by workers; plain actors derive from `Actor`. See docs/ for the rest.
"""

from typing import TYPE_CHECKING

from .topics.lazy import lazy as _lazy

if TYPE_CHECKING:
    from .actors.actor import Actor
    from .actors.agent import Agent, Retry, Retryable, Terminal, agent
    from .actors.answer import Answer, Escalate, InterruptExpired, InterruptRejected
    from .actors.context import ActorContext
    from .actors.engine import (
        AttemptEnded,
        Child,
        ChildFailed,
        Context,
        JournalMismatch,
        StepFailed,
        StepProcessFailed,
        StepRaised,
        StepTimeout,
    )
    from .actors.graph import (
        END,
        START,
        Cache,
        Command,
        Execution,
        Graph,
        GraphError,
        GraphEvent,
        GraphInterrupted,
        InvalidGraph,
        Remove,
        Send,
        Was,
        add,
        append,
        interrupt,
        maximum,
        merge,
        messages,
        union,
    )
    from .actors.handler import ask, on
    from .actors.heard import Heard
    from .actors.hook import DidNotHappen, Done, Happened, Unsure, hook
    from .actors.limit import Limit, Rate
    from .actors.migrations import MigrationFailed, MigrationMissing, migrate
    from .topics.errors import CallboardError
    from .topics.messages import Status

__version__ = "0.1.0"

__all__ = [
    "END",
    "START",
    "Actor",
    "ActorContext",
    "Agent",
    "Answer",
    "AttemptEnded",
    "Cache",
    "CallboardError",
    "Child",
    "ChildFailed",
    "Command",
    "Context",
    "DidNotHappen",
    "Done",
    "Escalate",
    "Execution",
    "Graph",
    "GraphError",
    "GraphEvent",
    "GraphInterrupted",
    "Happened",
    "Heard",
    "InterruptExpired",
    "InterruptRejected",
    "InvalidGraph",
    "JournalMismatch",
    "Limit",
    "MigrationFailed",
    "MigrationMissing",
    "Rate",
    "Remove",
    "Retry",
    "Retryable",
    "Send",
    "Status",
    "StepFailed",
    "StepProcessFailed",
    "StepRaised",
    "StepTimeout",
    "Terminal",
    "Unsure",
    "Was",
    "add",
    "agent",
    "append",
    "ask",
    "hook",
    "interrupt",
    "maximum",
    "merge",
    "messages",
    "migrate",
    "on",
    "union",
]

__getattr__, __dir__ = _lazy(
    __name__,
    {
        ".actors.graph": (
            "END START Cache Command Execution Graph GraphError GraphEvent GraphInterrupted InvalidGraph Remove "
            "Send Was add append interrupt maximum merge messages union"
        ),
        ".actors.actor": "Actor",
        ".actors.context": "ActorContext",
        ".actors.agent": "Agent Retry Retryable Terminal agent",
        ".actors.answer": "Answer Escalate InterruptExpired InterruptRejected",
        ".actors.engine": (
            "AttemptEnded Child ChildFailed Context JournalMismatch StepFailed StepProcessFailed StepRaised StepTimeout"
        ),
        ".topics.errors": "CallboardError",
        ".actors.hook": "DidNotHappen Done Happened Unsure hook",
        ".actors.heard": "Heard",
        ".actors.limit": "Limit Rate",
        ".actors.migrations": "MigrationFailed MigrationMissing migrate",
        ".topics.messages": "Status",
        ".actors.handler": "ask on",
    },
)
