"""What one node of a graph may ask of the run that carries it out."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from ..answer import Answer
from ..graph.ground import Question
from .place import Scope, Tries

if TYPE_CHECKING:
    from .answers import Answers
    from .context import Context
    from .parts import Parts


class NodeDesk:
    """The scope of one execution of a node: what it asks of its context is remembered under its superstep and name."""

    __slots__ = ("_answers", "_context", "_parts", "_place", "_places", "_scope", "_tries")

    def __init__(self, parts: Parts, context: Context, answers: Answers, place: str, tries: int) -> None:
        self._parts, self._context, self._answers, self._place = parts, context, answers, place
        self._tries = Tries(place, tries, parts.finished) if tries > 1 else None
        self._places: Scope | None = None
        self._scope = ExitStack()

    def __enter__(self) -> Self:
        self._parts.check()
        self._places = self._scope.enter_context(self._parts.places.within(self._place, self._tries))
        if self._tries is not None:
            self._scope.enter_context(self._parts.writer.remembering(f"{self._place}:", self._parts.journal.add))
        self._scope.enter_context(self._parts.hold.unit())
        return self

    def __exit__(self, *error: object) -> None:
        self._scope.close()

    @property
    def context(self) -> Context:
        """The node's `ctx`."""
        return self._context

    def again(self) -> None:
        """A try begins: what an earlier one has finished is remembered."""
        if self._tries is not None and self._places is not None:
            self._tries.again()
            self._places.again()

    def answer(self, question: Question) -> Answer:
        """The answer to a question of this task. Raises Unanswered."""
        return self._answers.get(f"{self._place}?{question.index}", question)
