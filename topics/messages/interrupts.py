"""What a run asks of a person (or of another agent), what it is answered, and what is said to it meanwhile."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from .values import NOTHING, Payload

AnswerAction: TypeAlias = Literal["respond", "approve", "edit", "reject", "expire"]
"""`respond` with a value; `approve` the payload as it is; `edit` it: a value in its place; `reject` it; `expire` is
what the clock answers where nobody has and there is no default."""
Asked: TypeAlias = Literal["respond", "approve", "edit", "reject"]
ASKED: tuple[Asked, ...] = ("respond", "approve", "edit", "reject")
"""The answers that a person can give."""


class Escalation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who is asked next, and when, if nobody has answered by then: a person by name, or an agent."""

    at: datetime
    to: str | None = None
    agent: str | None = None


class Escalated(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody else was asked."""

    at: datetime
    to: str | None = None
    agent: str | None = None
    run: str | None = None
    """Of an agent: its run, a child of the run that asks."""
    by: str | None = None
    """Who has passed the question on; `clock` when nobody had answered in time."""
    comment: str | None = None
    error: str | None = None
    """Of an agent: why it has no answer."""


class Interrupt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question that stands open in the record of its run."""

    id: str
    """Unique within the run."""
    at: str
    """The place in the code where it is asked."""
    payload: Payload = NOTHING
    """What the person is shown."""
    schema: dict[str, Any] | None = None
    """JSON Schema (2020-12) of the answer's value; anything is taken without one."""
    kind: Literal["input", "auth"] = "input"
    actions: tuple[Asked, ...] = ASKED
    """The answers that are taken."""
    to: str | None = None
    """Whose task it is to answer."""
    created_at: datetime
    expires_at: datetime | None = None
    """When `default` is taken for the answer."""
    default: Payload | None = None
    """Without it, the code gets an error when nobody has answered in time."""
    escalations: list[Escalation] | None = None
    """What is still to come, the next one first."""
    escalated: list[Escalated] | None = None
    """What has been."""

    @property
    def due_at(self) -> datetime | None:
        """When a clock has to do something about it: the next escalation, or the end."""
        moments = [one.at for one in (self.escalations or ())[:1]]
        return min([*moments, *([self.expires_at] if self.expires_at else [])], default=None)


class Answer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer, in a command, in the record until the code has taken it, and in the journal after that."""

    id: str = ""
    """Of the interrupt; empty in a command to a run with one open interrupt."""
    action: AnswerAction = "respond"
    value: Payload | None = None
    """Of `respond` and `edit` what was given, of `approve` the interrupt's payload once the answer is accepted."""
    update: Payload | None = None
    """A partial edit of the run's state, by channel or field."""
    by: str | None = None
    comment: str | None = None
    at: datetime | None = None
    """When it was accepted."""
    place: str = ""
    """Where in the code the interrupt was asked; set when the answer is accepted."""
    key: str = ""
    """Names the command that brought it: the same command again changes nothing."""

    @property
    def mark(self) -> Answered:
        """What is remembered of it."""
        text = b"\0".join(
            msgspec.json.encode(part)
            for part in (self.action, None if self.action == "approve" else self.value, self.update)
        )
        return Answered(id=self.id, digest=hashlib.blake2b(text, digest_size=6).hexdigest(), key=self.key)


class Answered(Struct, frozen=True, omit_defaults=True):
    """That an interrupt was answered, and how: kept in the record, so that an answer that comes again is known."""

    id: str
    digest: str
    key: str = ""

    def same(self, other: Answered) -> bool:
        """Whether both are of the same answer."""
        return self.id == other.id and (self.digest == other.digest or (self.key != "" and self.key == other.key))


class Word(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`cb.run.{root}.{run}.said`: a message to a run that has not ended, or an answer to one that a worker holds.

    Written by the coordinator, under the state's fence."""

    key: str
    """Names the message: the same one again is not said twice."""
    at: datetime
    by: str | None = None
    content: Payload | None = None
    answer: Answer | None = None
