"""What an agent's code gets for an interrupt, and what it may say about who is asked next. Known to every engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict

from ..topics.errors import CallboardError, InvalidInput
from ..topics.messages import AnswerAction, Asked


@dataclass(frozen=True)
class Answer:
    """An answer as a whole: what `ctx.interrupt(…, returns=Answer)` gives."""

    id: str
    action: AnswerAction
    value: Any = None
    """Plain JSON; None for a rejection without one."""
    by: str | None = None
    comment: str | None = None
    at: datetime | None = None
    update: dict[str, Any] | None = None
    """A partial edit of the run's state that came with it."""

    @property
    def approved(self) -> bool:
        """Whether the payload was approved, as it was or edited."""
        return self.action in ("approve", "edit")


@dataclass(frozen=True)
class Escalate:
    """Who is asked if nobody has answered `after` the interrupt was raised: a person by name, or an agent.

    The agent gets the payload as its input, as a child run; its result is the answer."""

    after: timedelta
    to: str | None = None
    agent: str | None = None

    def __post_init__(self) -> None:
        if (self.to is None) == (self.agent is None):
            raise InvalidInput("an escalation names either a person (to=…) or an agent (agent=…)")
        if self.after.total_seconds() <= 0:
            raise InvalidInput(f"an escalation comes after some time, not after {self.after}")


class InterruptOptions(TypedDict, total=False):
    """What may be said of a question besides its payload, its id, and the type of its answer. See `ctx.interrupt`."""

    schema: dict[str, Any] | None
    """The JSON Schema of the answer, instead of that of its type."""
    auth: bool
    """An authorization is asked for: the run is `auth_required`."""
    actions: Sequence[Asked] | None
    """Which answers are taken; None: all."""
    to: str | None
    """Whose task it is to answer."""
    expires: timedelta | None
    """After this time the default is the answer, or there is none."""
    default: Any
    escalate: Escalate | Sequence[Escalate]
    """Who is asked if nobody has answered."""


def require_known(options: InterruptOptions) -> None:
    """Raises TypeError, as for any function, for an option that there is not."""
    if unknown := options.keys() - InterruptOptions.__annotations__.keys():
        raise TypeError(f"interrupt() got an unexpected keyword argument {min(unknown)!r}")


class InterruptRejected(CallboardError):
    """The interrupt was answered with `reject`. `answer` says by whom, and what was said to it."""

    code = "interrupt_rejected"

    def __init__(self, answer: Answer) -> None:
        by = f" by {answer.by}" if answer.by else ""
        why = f": {answer.comment}" if answer.comment else ""
        super().__init__(f"interrupt {answer.id!r} was rejected{by}{why}", interrupt=answer.id)
        self.answer = answer


class InterruptExpired(CallboardError):
    """Nobody has answered the interrupt in time, and it has no default."""

    code = "interrupt_expired"

    def __init__(self, interrupt: str) -> None:
        super().__init__(f"interrupt {interrupt!r} was not answered in time, and has no default", interrupt=interrupt)
