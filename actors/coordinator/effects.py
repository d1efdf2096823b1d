"""What the outside owes a run, derived from its record alone, so that it can be done again after any crash."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from ...store.attention import FAILED_BY_HAND, parks
from ...topics.ids import is_run_id
from ...topics.messages import Command, RunRecord, Status
from .answering import agents_asked, next_due
from .deadlines import waits_for_worker


class Dispatch(Struct, frozen=True):
    """Publish the work message. Twice is harmless: only the newest dispatch can be claimed, and only once."""

    queue: str
    """The agent, with its version if the run is pinned; `@topic` while no agent serves the topic."""
    run: str
    dispatch: int


class Timer(Struct, frozen=True):
    """Schedule the command `verb` at `at`. A second one replaces the first; an early or late one is harmless."""

    run: str
    verb: str
    at: datetime
    dispatch: int = 0
    epoch: int = 0

    @property
    def command(self) -> Command:
        """What it says when it fires. The clocks of broker and coordinator may differ: what is due is told."""
        due = self.at if self.verb == "interrupt_due" else None
        return Command(dispatch=self.dispatch, epoch=self.epoch, due=due)


class DropTimers(Struct, frozen=True):
    """Take the timers away that the run has not come to: they would fire, and change nothing."""

    run: str


class CheckChildren(Struct, frozen=True):
    """See whether what the run waits for has happened already."""

    run: str


class CheckWords(Struct, frozen=True):
    """See whether something was said to the run, or answered, while its last attempt ended."""

    run: str


class AskAgents(Struct, frozen=True):
    """Start the agents that an interrupt was passed on to, and see whether they have answered."""

    run: str


class TellParent(Struct, frozen=True):
    """Tell the parent, durably, that this child has ended."""

    parent: str
    child: str


class Notify(Struct, frozen=True):
    """Tell the worker that its run is to stop. May be lost: the fence and the cancel deadline make up for it."""

    worker: str
    run: str
    epoch: int


class CancelBelow(Struct, frozen=True):
    """Cancel all that the run has started if that was asked for, and end the run once all of it has ended; before that,
    see whether it has effects that are to be undone."""

    run: str


class AskTurn(Struct, frozen=True):
    """Ask the thread whether the run may work, and see to it that the thread goes on."""

    run: str


class LeaveTurn(Struct, frozen=True):
    """Tell the thread that the run has ended, or one that belongs to its turn: the next one may work."""

    thread: str
    run: str


class MarkThread(Struct, frozen=True):
    """Mark in the thread that what this run said was rolled back."""

    thread: str
    run: str


class Park(Struct, frozen=True):
    """Note that the run waits for a person."""

    record: RunRecord


class StartAnew(Struct, frozen=True):
    """Start the run that comes in the place of this one, from its input."""

    record: RunRecord


class Retried(Struct, frozen=True):
    """Note that a run which waited for a person is retried."""

    run: str
    by: str


Effect = (
    Dispatch
    | Timer
    | DropTimers
    | CheckChildren
    | CheckWords
    | AskAgents
    | TellParent
    | Notify
    | CancelBelow
    | MarkThread
    | AskTurn
    | LeaveTurn
    | Park
    | Retried
    | StartAnew
)


def owed(record: RunRecord, cancel_grace_s: float = 30.0) -> tuple[Effect, ...]:
    """The effects that the run's present status asks for. Idempotent: each may be carried out any number of times."""
    run = record.id
    retried = (Retried(record.retry_of, run),) if record.retry_of else ()
    match record.status:
        case Status.QUEUED if record.wake_at is None and record.turn is not None and record.turn.held:
            return (*_deadlines(record), AskTurn(run), *retried)
        case Status.QUEUED if record.wake_at is None and record.lease:  # its work message is there already
            return (*_deadlines(record), *retried)
        case Status.QUEUED if record.wake_at is None:
            dispatch = Dispatch(record.queue, run, record.dispatch)
            return (*_deadlines(record), dispatch, *retried)
        case Status.QUEUED:
            assert record.wake_at is not None
            return (*_deadlines(record), Timer(run, "due", record.wake_at, dispatch=record.dispatch))
        case Status.WAITING:
            return _awaited(record)
        case Status.CANCEL_REQUESTED:
            return _owed_while_canceled(record, cancel_grace_s)
        case _ if record.terminal:
            return (*_owed_at_the_end(record), *retried)
        case Status.INPUT_REQUIRED | Status.AUTH_REQUIRED:
            return _asked(record)
        case _:
            return ()


def _awaited(record: RunRecord) -> tuple[Effect, ...]:
    """Of a run that no worker holds: the clock, the children and the messages that it waits for."""
    found: list[Effect] = [] if record.wake_at is None else [Timer(record.id, "wake", record.wake_at)]
    if record.waits:
        found.append(CheckChildren(record.id))
    if record.hears or record.interrupts:
        found.append(CheckWords(record.id))
    return tuple(found)


def _asked(record: RunRecord) -> tuple[Effect, ...]:
    found: list[Effect] = [Park(record)]
    due = next_due(record)
    if due is not None:
        found.append(Timer(record.id, "interrupt_due", due))
    if agents_asked(record):
        found.append(AskAgents(record.id))
    return (*found, *_awaited(record))


def _deadlines(record: RunRecord) -> tuple[Timer, ...]:
    """Before the work message: no attempt begins whose deadline has no timer, so that a queued run alone owes it."""
    if record.deadline_at is None and record.wait_until is None:
        return ()
    found = []
    if record.deadline_at is not None:
        found.append(Timer(record.id, "deadline", record.deadline_at))
    if record.wait_until is not None and waits_for_worker(record):
        found.append(Timer(record.id, "starved", record.wait_until, dispatch=record.dispatch))
    return tuple(found)


def _owed_while_canceled(record: RunRecord, cancel_grace_s: float) -> tuple[Effect, ...]:
    found: list[Effect] = []
    if record.undo == "due":  # all below has ended; once claimed, the work message's lease brings it on
        return () if record.worker else (Dispatch(record.queue, record.id, record.dispatch),)
    if record.worker is not None:
        deadline = record.updated_at + timedelta(seconds=cancel_grace_s)
        found.append(Notify(record.worker, record.id, record.epoch))
        found.append(Timer(record.id, "cancel_deadline", deadline, epoch=record.epoch))
    if (record.cancel is not None and record.cancel.scope == "tree") or record.undo:
        found.append(CancelBelow(record.id))
    return tuple(found)


def _owed_at_the_end(record: RunRecord) -> tuple[Effect, ...]:
    found: list[Effect] = []
    if record.status is Status.ROLLED_BACK and record.thread is not None:
        found.append(MarkThread((record.turn and record.turn.branch) or record.thread, record.id))
    if record.turn is not None and record.thread is not None and record.status is not Status.REJECTED:
        found.append(LeaveTurn(record.thread, record.turn.holder or record.id))
    if record.parent is not None:
        found.append(TellParent(record.parent, record.id))
    if record.cancel is not None and record.cancel.by != record.parent and is_run_id(record.cancel.by):
        found.append(TellParent(record.cancel.by, record.id))
    if parks(record):
        found.append(Park(record))
    if record.successor is not None:
        found.append(StartAnew(record))
    if _may_have_timers(record):
        found.append(DropTimers(record.id))
    return tuple(found)


def _may_have_timers(record: RunRecord) -> bool:
    """Whether it was to end by a clock, or has ended before what it waited for: by somebody's word, or a person's
    answer. A clock that has come has no timer any more."""
    by_hand = record.error is not None and record.error.code == FAILED_BY_HAND
    timed = record.deadline_at is not None or record.wait_timeout_s is not None
    return timed or by_hand or record.cancel is not None or record.answered is not None
