"""Interrupts: questions that stand in the run's record while nothing of the run stands anywhere else.

asked ─ the attempt ends, the run is input_required ─ answered ─ a new attempt comes here again ─→ journaled, returned
      └ answered while the attempt still lives, for the sake of other branches ──────────────────→ journaled, returned

The journal entry comes before the code gets the answer, so that every later attempt gets the same one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ...store.blobs import Blobs
from ...store.journal import Journal
from ...topics import codec, crash, units
from ...topics.errors import CallboardError, InvalidInput
from ...topics.messages import (
    ASKED,
    Answer,
    Answered,
    Asked,
    Escalation,
    Interrupt,
    Payload,
    RunRecord,
    Step,
    encode,
)
from ..answer import Escalate
from ..graph.ground import task_of
from .errors import JournalMismatch
from .hold import Hold
from .inbox import Inbox
from .place import apart
from .steps import Steps
from .writer import Writer

log = logging.getLogger(__name__)

_ID_CHARS = 128
_NAME_CHARS = 255
_SCHEMA_BYTES = 8192
_LONGEST = timedelta(days=3660)

_answer = msgspec.json.Decoder(Answer).decode


@dataclass(frozen=True, kw_only=True)
class Question:
    """What `ctx.interrupt` was asked to ask. Raises InvalidInput for what cannot be asked."""

    payload: bytes
    """JSON."""
    id: str | None = None
    schema: dict[str, Any] | None = None
    auth: bool = False
    actions: Sequence[Asked] | None = None
    """None: all that the schema lets be."""
    to: str | None = None
    expires: timedelta | None = None
    default: bytes | None = None
    """JSON."""
    escalate: Sequence[Escalate] = ()

    def __post_init__(self) -> None:
        if self.id is not None and (not self.id.isprintable() or not 0 < len(self.id) <= _ID_CHARS or "=" in self.id):
            raise InvalidInput(
                f"interrupt id {self.id[:80]!r} must be 1 to {_ID_CHARS} printable characters without '='"
            )
        if self.to is not None and (not self.to.isprintable() or not 0 < len(self.to) <= _NAME_CHARS):
            raise InvalidInput(f"to={self.to[:80]!r} is no name: use 1 to {_NAME_CHARS} printable characters")
        unknown = [one for one in self.actions or () if one not in ASKED]
        if unknown or (self.actions is not None and not self.actions):
            raise InvalidInput(f"actions of an interrupt are some of {', '.join(ASKED)}, not {unknown or 'none'}")
        if self.expires is not None and not timedelta(0) < self.expires <= _LONGEST:
            raise InvalidInput(f"expires={self.expires} must be above 0 and at most {_LONGEST.days} days")
        if self.default is not None and self.expires is None:
            raise InvalidInput("a default is taken when an interrupt expires: say when (expires=…)")
        self._check_schema()

    def _check_schema(self) -> None:
        if self.schema is None:
            return
        text = self.schema_text
        fault = codec.schema_fault(text)
        if fault or len(text) > _SCHEMA_BYTES:
            raise InvalidInput(f"schema of an interrupt: {fault or f'it has {len(text)} bytes of {_SCHEMA_BYTES}'}")
        if self.default is not None and (wrong := codec.faults(text, self.default)):
            raise InvalidInput(f"the default of an interrupt is no answer by its schema: {wrong[0]}")

    @property
    def schema_text(self) -> bytes:
        """The schema as JSON."""
        return encode(self.schema)

    def allowed(self) -> tuple[Asked, ...]:
        """The answers that can be taken: a payload that is no answer by the schema cannot be approved as it is."""
        if self.actions is not None:
            return tuple(self.actions)
        if self.schema is None or not codec.faults(self.schema_text, self.payload):
            return ASKED
        return tuple(one for one in ASKED if one != "approve")


class Asking:
    """The interrupts of one attempt."""

    def __init__(
        self,
        steps: Steps,
        journal: Journal,
        writer: Writer,
        blobs: Blobs,
        hold: Hold,
        record: RunRecord,
        inbox: Inbox,
        room: int,
    ) -> None:
        self._steps, self._journal, self._writer, self._blobs, self._hold = steps, journal, writer, blobs, hold
        self._record, self._inbox, self._room = record, inbox, room
        self._reader: asyncio.Task[None] | None = None
        known = {one.id for one in record.answered or ()}
        self._taken = {one.id: one for one in journal.took if one.id not in known}
        self._entered = dict(self._taken)
        """With those whose entry is on its way, which stands before whatever is written from here on."""
        self._given = {answer.id: answer for answer in record.answers or () if answer.id not in self._taken}
        self._open = {one.id: one for one in record.interrupts or () if one.id not in self._taken}
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._adopted: dict[str, Answer] = {}
        self._claimed: dict[str, str] = {}
        """By id: the places of what nodes of a graph ask."""
        self._places = {step.name: step.at for step in journal.steps.values() if step.kind == "interrupt"}

    @property
    def taken(self) -> list[Answered]:
        """The answers that the journal holds and the record need not keep."""
        return self._with_those_before(self._taken)

    @property
    def entered(self) -> list[Answered]:
        """Those that a checkpoint which is written now has behind it."""
        return self._with_those_before(self._entered)

    def _with_those_before(self, taken: dict[str, Answered]) -> list[Answered]:
        before = [answer.mark for answer in self._record.answers or () if answer.id in self._places]
        return list({one.id: one for one in [*before, *taken.values()]}.values())

    async def ask(self, place: str, question: Question) -> Answer:
        """The answer: from the journal, or the record, or whenever it comes. Raises JournalMismatch, InvalidInput."""
        name = question.id or place
        found = self._steps.recorded(place, name, "interrupt")
        if found is not None:
            return _answer(await self._blobs.value(found.value or Payload()))
        adopted = self._adopted.get(place)
        if adopted is not None:
            if adopted.id != name:
                raise JournalMismatch(place, f"interrupt {adopted.id!r}", f"interrupt {name!r}")
            return adopted
        self._check(place, name)
        answer = self._given.get(name)
        if answer is None:
            interrupt = self._open.get(name) or await self._made(place, name, question)
            answer = await self._waited(interrupt)
        await self._take(place, name, answer)
        return answer

    def free(self, place: str, names: Sequence[str]) -> str:
        """Under which of these ids the question at `place`, in a node of a graph, is asked: as before, else the first
        that no other one of the run has. The first of all, which `ask` then refuses, when the same execution of the
        node has asked under it."""
        holders = {one.id: one.at for one in self._open.values()} | {one.id: one.place for one in self._given.values()}
        holders |= self._places | self._claimed
        before = next((name for name, at in holders.items() if at == place), None)
        used = {*holders, *self._answered_before()}
        again = task_of(holders.get(names[0], "")) == task_of(place)
        if before is not None or again:
            return before if before is not None and before in names else names[0]
        found = next((one for one in names if one not in used), names[0])
        self._claimed[found] = place
        return found

    async def adopt(self) -> list[tuple[str, Answer]]:
        """Takes the answers that the record has brought before their questions are asked again: for code that cannot
        wait where it asks. With the places of the questions."""
        fresh = [one for one in self._given.values() if one.id not in self._places and one.place]
        for answer in fresh:
            await self._take(answer.place, answer.id, answer)
            self._adopted[answer.place] = answer
        return [(answer.place, answer) for answer in fresh]

    def told(self, sequence: int) -> None:
        """Something was said to the run: perhaps an answer that the code waits for."""
        self._inbox.told(sequence)
        if self._waiting and (self._reader is None or self._reader.done()):
            self._reader = apart(self._read())

    async def _read(self) -> None:
        try:
            for answer in await self._inbox.answers():
                self._answered(answer)
        except CallboardError as error:  # the coordinator looks again when the attempt has ended
            log.info("run %s: answers could not be read: %s", self._record.id, error)

    def close(self) -> None:
        """Nothing is read any more."""
        if self._reader is not None:
            self._reader.cancel()

    def _answered(self, answer: Answer) -> None:
        """The first answer to an interrupt counts."""
        if answer.id not in self._given.keys() | self._places.keys() | self._taken.keys():
            self._given[answer.id] = answer
            waiting = self._waiting.get(answer.id)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)

    def _check(self, place: str, name: str) -> None:
        """Whether this is the interrupt that stands at this place, and the only one of its name."""
        used = self._places.get(name)
        if used is not None or name in self._waiting or name in self._answered_before():
            raise InvalidInput(
                f"interrupt id {name!r} was used at {used or 'another place'} already: each id is asked once in a run; "
                "add what differs, such as a number",
                interrupt=name,
            )
        given = [(one.id, one.place) for one in self._given.values() if one.id not in self._places]
        for other, at in [*((one.id, one.at) for one in self._open.values()), *given]:
            if (at == place) != (other == name):
                raise JournalMismatch(at, f"interrupt {other!r}", f"interrupt {name!r} at {place}")

    def _answered_before(self) -> set[str]:
        """Ids of answered interrupts, as the record and the last checkpoint remember them."""
        return {*self._entered, *(one.id for one in self._record.answered or ())}

    async def _made(self, place: str, name: str, question: Question) -> Interrupt:
        now = units.now()
        with self._hold.working():
            payload = await self._blobs.payload(question.payload, self._room // 8)
            default = None if question.default is None else await self._blobs.payload(question.default, self._room // 8)
        return Interrupt(
            id=name, at=place, payload=payload, schema=question.schema,
            kind="auth" if question.auth else "input", actions=question.allowed(), to=question.to, created_at=now,
            expires_at=now + question.expires if question.expires else None, default=default,
            escalations=_planned(question.escalate, now),
        )  # fmt: skip

    async def _waited(self, interrupt: Interrupt) -> Answer:
        size = sum(len(encode(one)) for one in (interrupt, *self._hold.asked))
        if size > self._room:
            raise InvalidInput(
                f"{len(self._hold.asked) + 1} interrupts that are open at once have {size} bytes, more than "
                f"{self._room}: ask fewer at a time, or with smaller payloads",
                interrupt=interrupt.id,
            )
        waiting = self._waiting[interrupt.id] = asyncio.get_running_loop().create_future()
        try:
            with self._hold.for_answer(interrupt):
                answer: Answer = await waiting
                return answer
        finally:
            del self._waiting[interrupt.id]

    async def _take(self, place: str, name: str, answer: Answer) -> None:
        value = await self._blobs.payload(encode(answer))
        entry = Step(
            at=place, name=name, attempt=self._record.attempt, n=self._writer.number(), kind="interrupt", value=value
        )
        crash.point("worker.before-answer-taken")
        self._entered[name] = answer.mark
        self._adopted[place] = answer  # for whoever asks again, should this be cancelled: the entry is written even so
        with self._hold.working():
            await self._steps.note(entry)
        self._places[name] = place
        self._taken[name] = answer.mark
        crash.point("worker.after-answer-taken")


def _planned(escalate: Sequence[Escalate], now: datetime) -> list[Escalation] | None:
    found = [Escalation(at=now + one.after, to=one.to, agent=one.agent) for one in escalate]
    return sorted(found, key=lambda one: one.at) or None
