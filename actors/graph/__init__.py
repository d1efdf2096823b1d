"""The graph engine: carries out agents that are nodes and edges over a shared state, one superstep after the other.

graph (how authors declare) ── compiling ── compiled ─┐
schema ── channel ── reducers, messages ──────────────┤
engine ── superstep ── plan ── reconcile ─────────────┴─ ground (what the engine stands on)
local ── memory ── local_context: the ground in process; a worker's is `actors/engine`'s.

Knows no broker and no disk.
"""

from .cache import Cache
from .channel import Was
from .command import END, START, Command
from .compiled import Compiled
from .editing import edited
from .engine import Engine
from .errors import GraphError, GraphInterrupted, InvalidGraph
from .form import Form
from .graph import Graph
from .ground import (
    Desk,
    Durability,
    Ground,
    Host,
    Question,
    Said,
    Send,
    Shape,
    Snapshot,
    Task,
    Unanswered,
    Writes,
)
from .interrupting import interrupt
from .local import Execution
from .messages import Remove, messages
from .reducers import add, append, maximum, merge, union
from .watching import GraphEvent

__all__ = [
    "END",
    "START",
    "Cache",
    "Command",
    "Compiled",
    "Desk",
    "Durability",
    "Engine",
    "Execution",
    "Form",
    "Graph",
    "GraphError",
    "GraphEvent",
    "GraphInterrupted",
    "Ground",
    "Host",
    "InvalidGraph",
    "Question",
    "Remove",
    "Said",
    "Send",
    "Shape",
    "Snapshot",
    "Task",
    "Unanswered",
    "Was",
    "Writes",
    "add",
    "append",
    "edited",
    "interrupt",
    "maximum",
    "merge",
    "messages",
    "union",
]
