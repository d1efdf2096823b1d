"""Callboard: an actor-model distributed runtime for agents on NATS JetStream. The public names, nothing else.

    from callboard import Context, Retry, agent

Agents are declared with `@agent` and carried out by workers; plain actors derive from `Actor`. See docs/ for the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_WHERE = {
    "END": ".actors.graph",
    "START": ".actors.graph",
    "Actor": ".actors.actor",
    "ActorContext": ".actors.context",
    "Agent": ".actors.agent",
    "Answer": ".actors.answer",
    "AttemptEnded": ".actors.engine",
    "Cache": ".actors.graph",
    "CallboardError": ".topics.errors",
    "Child": ".actors.engine",
    "ChildFailed": ".actors.engine",
    "Command": ".actors.graph",
    "Context": ".actors.engine",
    "DidNotHappen": ".actors.hook",
    "Done": ".actors.hook",
    "Escalate": ".actors.answer",
    "Execution": ".actors.graph",
    "Graph": ".actors.graph",
    "GraphError": ".actors.graph",
    "GraphEvent": ".actors.graph",
    "GraphInterrupted": ".actors.graph",
    "Happened": ".actors.hook",
    "Heard": ".actors.heard",
    "InterruptExpired": ".actors.answer",
    "InterruptRejected": ".actors.answer",
    "InvalidGraph": ".actors.graph",
    "JournalMismatch": ".actors.engine",
    "Limit": ".actors.limit",
    "MigrationFailed": ".actors.migrations",
    "MigrationMissing": ".actors.migrations",
    "Rate": ".actors.limit",
    "Remove": ".actors.graph",
    "Retry": ".actors.agent",
    "Retryable": ".actors.agent",
    "Send": ".actors.graph",
    "Status": ".topics.messages",
    "StepFailed": ".actors.engine",
    "StepProcessFailed": ".actors.engine",
    "StepRaised": ".actors.engine",
    "StepTimeout": ".actors.engine",
    "Terminal": ".actors.agent",
    "Unsure": ".actors.hook",
    "Was": ".actors.graph",
    "add": ".actors.graph",
    "agent": ".actors.agent",
    "append": ".actors.graph",
    "ask": ".actors.handler",
    "hook": ".actors.hook",
    "interrupt": ".actors.graph",
    "maximum": ".actors.graph",
    "merge": ".actors.graph",
    "messages": ".actors.graph",
    "migrate": ".actors.migrations",
    "on": ".actors.handler",
    "union": ".actors.graph",
}
"""Where each name lives. It is loaded when it is first used: the command line must start fast, and hear a signal
while it loads."""


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
