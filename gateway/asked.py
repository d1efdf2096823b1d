"""Interrupts, their answers, and what is said to runs, as it goes in and out over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ..topics import messages as wire
from . import translate
from .models import Asked, BlobRefOut, Model, Run, Token

InterruptId = Annotated[str, Field(min_length=1, max_length=512)]
Name = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]
Comment = Annotated[str, Field(max_length=4000)]
Action = Literal["respond", "approve", "edit", "reject"]


class EscalationOut(Model):
    """Somebody else who is asked: later, or already."""

    at: datetime
    to: str | None = None
    agent: str | None = None
    run: str | None = None
    """Of an agent that was asked: its run."""
    by: str | None = None
    """Who has passed it on; `clock` when nobody had answered in time."""
    comment: str | None = None
    error: str | None = None
    """Why that agent has no answer."""


class InterruptOut(Model):
    """An open interrupt."""

    run: str
    """The run that asks."""
    agent: str
    id: str
    place: str
    """Where it stands in the code."""
    kind: Literal["input", "auth"]
    payload: Any = None
    payload_ref: BlobRefOut | None = None
    answer_schema: dict[str, Any] | None = None
    """JSON Schema (2020-12) of the answer's value."""
    actions: list[Action]
    """The answers that are taken."""
    to: str | None = None
    """Whose task it is to answer."""
    created_at: datetime
    expires_at: datetime | None = None
    has_default: bool = False
    """Whether there is an answer for the case that nobody gives one in time."""
    default: Any = None
    escalations: list[EscalationOut]
    """Who is asked next, if nobody answers."""
    escalated: list[EscalationOut]
    """Who was asked besides."""


class InterruptList(Model):
    """The open interrupts of a run and of all below it."""

    run: str
    interrupts: list[InterruptOut]


class InterruptPage(Model):
    """The open interrupts of a page of runs that wait for an answer, the youngest run first."""

    interrupts: list[InterruptOut]
    next: str | None
    """Cursor of the following page."""
    applied: int
    """The list reflects at least the log up to this stream sequence."""


class AnswerIn(Asked):
    """An answer to an open interrupt."""

    id: InterruptId | None = None
    """The interrupt; need not be given if only one is open."""
    action: Action = "respond"
    value: Any = None
    """Of `respond` and `edit`."""
    update: dict[str, Any] | None = None
    """A partial edit of the run's state."""
    comment: Comment | None = None
    by: Name | None = None
    """Who answers."""


class ResumeRequest(AnswerIn):
    """One answer, or several in `answers`: all of them are accepted, or none."""

    answers: Annotated[list[AnswerIn], Field(min_length=1, max_length=1000)] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> ResumeRequest:
        if self.answers is not None and self.model_fields_set != {"answers"}:
            raise ValueError("give either one answer, or answers alone")
        return self


class RunResumed(Run):
    """The run after the answers, and what is still open in it and below it."""

    interrupts: list[InterruptOut]


class EscalateRequest(Asked):
    """Who is asked now: a person, or an agent whose result is the answer."""

    interrupt: InterruptId | None = None
    """The open interrupt; need not be given if only one is open."""
    to: Name | None = None
    agent: Token | None = None
    comment: Comment | None = None
    by: Name | None = None
    """Who passes it on."""

    @model_validator(mode="after")
    def _one_target(self) -> EscalateRequest:
        if (self.to is None) == (self.agent is None):
            raise ValueError("give either to or agent")
        return self


class SayRequest(Asked):
    """A message to a run."""

    content: Any
    by: Name | None = None
    """Who says it."""
    key: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")] | None = None
    """Names the message: the same one again is not said twice."""


class Said(Model):
    """The message is durable: the run hears it once."""

    run: str
    status: wire.Status
    key: str


def interrupt(record: wire.RunRecord, found: wire.Interrupt) -> InterruptOut:
    """An open interrupt of a run."""
    return InterruptOut(
        run=record.id, agent=record.agent, id=found.id, place=found.at, kind=found.kind,
        payload=translate.value(found.payload), payload_ref=translate.ref(found.payload), answer_schema=found.schema,
        actions=list(found.actions), to=found.to, created_at=found.created_at, expires_at=found.expires_at,
        has_default=found.default is not None, default=translate.value(found.default),
        escalations=[EscalationOut(at=one.at, to=one.to, agent=one.agent) for one in found.escalations or ()],
        escalated=[
            EscalationOut(
                at=one.at, to=one.to, agent=one.agent, run=one.run, by=one.by, comment=one.comment, error=one.error
            )
            for one in found.escalated or ()
        ],
    )  # fmt: skip


def resumed(record: wire.RunRecord, left: list[InterruptOut]) -> RunResumed:
    """A run after answers."""
    return RunResumed(**translate.run(record).model_dump(), interrupts=left)
