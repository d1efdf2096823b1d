"""What can happen to a run: the commands that `transitions.decide` takes. Plain data, made outside, applied inside."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from ...topics.messages import AgentInfo, Answer, CancelOrder, ErrorInfo, Outcome, Payload, Turn
from ...topics.messages import Claim as ClaimMessage


class Claim(Struct, frozen=True):
    """A worker wants to carry out a work message."""

    worker: str
    dispatch: int
    lease: int
    delivery: int
    agent: AgentInfo | None = None
    queue: str = ""
    """The queue on which the message was found, the agent's or that of one of its versions; empty: not told."""
    version: str = ""
    """The version of the agent that the worker has; `agent` is the registration of that one."""
    consumer_seq: int = 0
    beside: bool = False
    """The worker carries out a run that may kill it."""
    got_on: int = 0
    """The attempt under way, if it has left a result and one of the run has died before; else 0."""

    @classmethod
    def of(cls, worker: str, said: ClaimMessage, agent: AgentInfo | None, got_on: int) -> Claim:
        """As the worker has said it."""
        return cls(
            worker, said.dispatch, said.lease, said.delivery, agent, said.agent, said.version, said.consumer_seq,
            said.beside, got_on,
        )  # fmt: skip


class End(Struct, frozen=True):
    """A worker says how its attempt ended. `jitter` is a random number of 0 to 1, drawn outside; `successor` the id of
    the run that starts in its place, if it asks for one."""

    outcome: Outcome
    jitter: float = 0.5
    successor: str = ""


class Cancel(Struct, frozen=True):
    """Somebody wants the run to end."""

    reason: str | None = None
    order: CancelOrder = CancelOrder()


class Settled(Struct, frozen=True):
    """All that the run has started has ended. `effects`: its log has effects, which may have to be undone."""

    epoch: int
    effects: bool = False


class Reconcile(Struct, frozen=True):
    """A person says whether an unknown effect, named by its place or its name, has happened."""

    effect: str
    happened: bool
    value: Payload | None = None
    reason: str | None = None


class Fail(Struct, frozen=True):
    """A person ends a run that is not being carried out."""

    reason: str | None = None


class Resume(Struct, frozen=True):
    """Accepted answers to interrupts of the run. `rev`: the state that whoever says so has looked at, with what had
    been said to the run by then; 0: none in particular."""

    answers: list[Answer]
    rev: int = 0


class InterruptDue(Struct, frozen=True):
    """The time of an interrupt is over, or that of an escalation. `due`: which moment the timer was set to. `rev`: as
    of Resume."""

    due: datetime | None = None
    rev: int = 0


class Escalate(Struct, frozen=True):
    """Somebody passes an open interrupt on, to a person or to an agent."""

    interrupt: str
    to: str | None = None
    agent: str | None = None
    by: str | None = None
    comment: str | None = None


class Unanswered(Struct, frozen=True):
    """The agent that was asked, in this run, has no answer."""

    run: str
    error: str


class CancelDeadline(Struct, frozen=True):
    """The worker has had its time to confirm the cancel of this epoch."""

    epoch: int


class Lost(Struct, frozen=True):
    """The worker that held the attempt is gone."""

    worker: str
    attempt: int = 0
    """0: whichever attempt that worker holds."""
    got_on: int = 0
    """As of Claim."""
    why: str = "its worker is gone"


class Wake(Struct, frozen=True):
    """What a waiting run waits for has happened (or its timer fired)."""

    reason: str = "woken"


class Due(Struct, frozen=True):
    """The delay before the next attempt is over."""

    dispatch: int


class Deadline(Struct, frozen=True):
    """The time that the whole run may take is over."""


class Starved(Struct, frozen=True):
    """The time that the run may wait for a worker with this dispatch is over."""

    dispatch: int


class TakeTurn(Struct, frozen=True):
    """The thread's word to a run that asks for its turn there, or waits for it."""

    turn: Turn
    reason: str | None = None
    error: ErrorInfo | None = None


class Redispatch(Struct, frozen=True):
    """A queued run's work message is missing, or its agent has become known: then with its registration."""

    agent: str
    dispatch: int
    reason: str | None = None
    info: AgentInfo | None = None


class Unattended(Struct, frozen=True):
    """Nobody takes the work message of this dispatch: `reason` says who is missing."""

    dispatch: int
    reason: str


RunCommand = (
    Claim
    | End
    | Cancel
    | CancelDeadline
    | Settled
    | Reconcile
    | Fail
    | Resume
    | InterruptDue
    | Escalate
    | Unanswered
    | Lost
    | Wake
    | Due
    | Deadline
    | Starved
    | TakeTurn
    | Redispatch
    | Unattended
)
Verdict = Literal["changed", "applied", "stale", "later", "refused"]
