"""The answers to the questions of a graph. Its nodes cannot wait where they ask: they end, and begin again when the
answer is at hand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ...topics.messages import Answer as Given
from ...topics.messages import Payload
from ..answer import Answer
from ..graph.ground import Question, Unanswered, names_of
from . import asking
from .dialogue import asked, read
from .errors import JournalMismatch
from .place import apart

if TYPE_CHECKING:
    from .parts import Parts

log = logging.getLogger(__name__)

T = TypeVar("T")
_decode = msgspec.json.Decoder(Given).decode


class Answers:
    """Those that are at hand in this attempt, by the places of their questions; and the questions that are open."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._at_hand: dict[str, Answer] = {}
        self._open: dict[str, asking.Question] = {}
        self._edits: dict[str, dict[str, Any]] = {}
        self._jobs: dict[str, asyncio.Task[Given]] = {}
        """By place: what waits for the answers to open questions."""

    async def begin(self) -> None:
        """Gets at hand what earlier attempts have taken, and takes what the record has brought."""
        for step in list(self._parts.journal.steps.values()):
            if step.kind == "interrupt":
                raw = await self._parts.blobs.value(step.value or Payload())
                await self._have(step.at, _decode(raw))
        for place, given in await self._parts.asking.adopt():
            await self._have(place, given)

    async def _have(self, place: str, given: Given) -> None:
        answer = await read(self._parts, given, Any)
        self._at_hand[place] = answer
        if answer.update:
            self._edits[place] = answer.update

    def get(self, place: str, question: Question) -> Answer:
        """The answer to the question at this place. Raises Unanswered while there is none; JournalMismatch when another
        question was answered there, InvalidInput for what cannot be asked."""
        found, names = self._at_hand.get(place), names_of(question, place)
        if found is None:
            name = self._parts.asking.free(place, names)
            self._open[place] = asked(question.payload, id=None if name == place else name, **question.options)
            raise Unanswered(question)
        if found.id not in names:
            raise JournalMismatch(place, f"interrupt {found.id!r}", f"interrupt {names[0]!r}")
        return found

    def edits(self, prefix: str, done: int) -> list[dict[str, Any]]:
        """The edits that came with answers to questions below `prefix` which are asked when `done` supersteps are
        behind, in the order of the answers; each once. Those of earlier questions are in the state."""
        below = {place: place[len(prefix) :] for place in self._edits if place.startswith(prefix)}
        due = [place for place, rest in below.items() if "|" not in rest and _asked_behind(rest) == done]
        return [self._edits.pop(place) for place in due]

    async def carried_out(self, call: Callable[[], Awaitable[T]]) -> T:
        """What `call`, which has asked, returns: it is called again as answers come; the attempt may end meanwhile."""
        while True:
            await self._wait()
            self._open.clear()
            try:
                return await call()
            except Unanswered as more:
                log.debug("run %s asks %d questions", self._parts.record.id, len(more.questions))

    async def _wait(self) -> None:
        """Waits until one of the open questions is answered, and takes every answer that is there by then."""
        self.ask()
        jobs, self._jobs = self._jobs, {}
        try:
            await asyncio.wait(jobs.values(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            done = {place: job for place, job in jobs.items() if job.done() and not job.cancelled()}
            for job in jobs.values():
                job.cancel()
            await asyncio.gather(*jobs.values(), return_exceptions=True)
        for place, job in done.items():
            await self._have(place, job.result())

    def ask(self) -> None:
        """Asks what is open, whatever else is under way."""
        for place, question in self._open.items():
            if place not in self._jobs:
                self._jobs[place] = apart(self._parts.asking.ask(place, question))

    def close(self) -> None:
        """Nobody waits for answers any more."""
        for job in self._jobs.values():
            job.cancel()


def _asked_behind(place: str) -> int:
    """How many supersteps are done where a question is asked: `3/node?0`, `3/node!before` or `3/node!after`."""
    return int(place.partition("/")[0]) - (not place.endswith("!after"))


async def carried_out(parts: Parts, call: Callable[[], Awaitable[T]]) -> T:
    """What the function of an agent returns. That of a graph is called again as answers come to what it has asked."""
    try:
        return await call()
    except Unanswered:
        root = parts.memory.root
        if root is None:
            raise
        return await root.answers.carried_out(call)
    finally:
        if parts.memory.root is not None:
            parts.memory.root.answers.close()
