"""The graph engine: carries out agents that are nodes and edges over a shared state, one superstep after the other.

`ground` is what the engine stands on. Knows no broker and no disk.
"""

from .ground import Desk, Durability, Ground, Question, Said, Send, Shape, Snapshot, Task, Unanswered, Writes

__all__ = [
    "Desk",
    "Durability",
    "Ground",
    "Question",
    "Said",
    "Send",
    "Shape",
    "Snapshot",
    "Task",
    "Unanswered",
    "Writes",
]
