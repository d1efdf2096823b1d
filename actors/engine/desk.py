"""What one node of a graph may ask of the run that carries it out."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from ..answer import Answer
from ..graph.ground import Question

if TYPE_CHECKING:
    from .answers import Answers
    from .context import Context
    from .parts import Parts


class NodeDesk:
    """The scope of one execution of a node: what it asks of its context is remembered under its superstep and name."""

    __slots__ = ("_answers", "_context", "_parts", "_place", "_scope")

    def __init__(self, parts: Parts, context: Context, answers: Answers, place: str) -> None:
        self._parts, self._context, self._answers, self._place = parts, context, answers, place
        self._scope = ExitStack()

    def __enter__(self) -> Self:
        self._parts.check()
        self._scope.enter_context(self._parts.places.within(self._place))
        self._scope.enter_context(self._parts.hold.unit())
        return self

    def __exit__(self, *error: object) -> None:
        self._scope.close()

    @property
    def context(self) -> Context:
        """The node's `ctx`."""
        return self._context

    def answer(self, question: Question) -> Answer:
        """The answer to a question of this task. Raises Unanswered."""
        return self._answers.get(f"{self._place}?{question.index}", question)
