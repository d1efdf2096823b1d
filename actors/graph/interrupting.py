"""`interrupt(payload)`: a node asks, and is told when somebody has answered, however much later."""

from __future__ import annotations

import contextvars
from collections.abc import Mapping
from typing import Any, Unpack

from ...topics import codec
from ..answer import Answer, InterruptExpired, InterruptOptions, InterruptRejected, require_known
from .errors import GraphError
from .ground import Desk, Question, Unanswered

_UNSAID: tuple[Any, ...] = (None, False, ())
"""What options but the default are when nothing is said."""


class Asking:
    """The questions of one execution of a task, counted."""

    __slots__ = ("count", "desk", "open", "step", "task")

    def __init__(self, desk: Desk, step: int, task: str) -> None:
        self.desk, self.step, self.task, self.count = desk, step, task, 0
        self.open: list[Question] = []

    def again(self) -> None:
        """The node begins, or is tried again: what it asks is counted from the first."""
        self.count = 0
        self.open.clear()
        self.desk.again()

    def require_answers(self) -> None:
        """Raises Unanswered for code that has ended although it asked: it has caught what was to end it."""
        if self.open:
            raise Unanswered(*self.open)

    def ask(self, payload: Any, id: str | None, options: Mapping[str, Any]) -> Any:
        """What the answer gives the node. Raises Unanswered."""
        index, self.count = self.count, self.count + 1
        question = Question(
            step=self.step, task=self.task, index=index, id=id or "", payload=payload, options=options
        )  # fmt: skip
        try:
            answer = self.desk.answer(question)
        except Unanswered:
            self.open.append(question)
            raise
        return taken(question, answer)


asking: contextvars.ContextVar[Asking | None] = contextvars.ContextVar("callboard_asking", default=None)


def interrupt(
    payload: Any = None, *, id: str | None = None, returns: Any = None, **options: Unpack[InterruptOptions]
) -> Any:
    """Stops the run until somebody answers, and returns the answer. For nodes of graphs, sync and async alike.

    The parameters, the result and the errors are those of `ctx.interrupt`. The node starts again from its beginning
    when the answer is there: what it does before the question is done again, except `ctx.step`s, which are remembered.
    The other nodes of the superstep end first, and are not run again. Questions are told apart by their order in the
    node. Raises GraphError outside of a node."""
    task = asking.get()
    if task is None:
        raise GraphError("interrupt() is for nodes of graphs: in an agent's function write `await ctx.interrupt(...)`")
    require_known(options)
    given = {name: value for name, value in options.items() if name == "default" or value not in _UNSAID}
    if returns is not None:
        given["returns"] = returns
    return task.ask(payload, id, given)


def taken(question: Question, answer: Answer) -> Any:
    """What the code gets for an answer: its value as the type that was asked for, or all of it. Raises
    InterruptRejected, InterruptExpired, DecodeError."""
    returns = question.options.get("returns")
    if answer.action == "expire":
        raise InterruptExpired(answer.id)
    if returns is Answer:
        return answer
    if answer.action == "reject":
        raise InterruptRejected(answer)
    return answer.value if returns is None else codec.decode(codec.encode(answer.value), returns)
