"""`interrupt(payload)`: a node asks, and is told when somebody has answered, however much later."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .errors import GraphError
from .ground import Desk, Question


class Asking:
    """The questions of one execution of a task, counted."""

    __slots__ = ("count", "desk", "step", "task")

    def __init__(self, desk: Desk, step: int, task: str) -> None:
        self.desk, self.step, self.task, self.count = desk, step, task, 0

    def ask(self, payload: Any, id: str | None, options: dict[str, Any]) -> Any:
        """The answer. Raises Unanswered."""
        index, self.count = self.count, self.count + 1
        return self.desk.answer(
            Question(step=self.step, task=self.task, index=index, id=id or "", payload=payload, options=options)
        )


asking: contextvars.ContextVar[Asking | None] = contextvars.ContextVar("callboard_asking", default=None)


@contextmanager
def asked_by(task: Asking) -> Iterator[None]:
    """Questions asked inside are this task's."""
    token = asking.set(task)
    try:
        yield
    finally:
        asking.reset(token)


def interrupt(payload: Any = None, *, id: str | None = None, **options: Any) -> Any:
    """Stops the run until somebody answers, and returns the answer. For nodes of graphs, sync and async alike.

    `payload` says what is asked; `id` names the question (default: made from its place). `options` (schema, kind,
    expiry, …) are those of `ctx.interrupt`. The node starts again from its beginning when the answer is there: what it
    does before the question is done again, except `ctx.step`s, which are remembered. Questions are told apart by their
    order in the node. Raises GraphError outside of a node."""
    task = asking.get()
    if task is None:
        raise GraphError("interrupt() is for nodes of graphs: in an agent's function write `await ctx.interrupt(...)`")
    return task.ask(payload, id, options)
