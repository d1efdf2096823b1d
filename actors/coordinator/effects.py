"""What the outside owes a run, derived from its record alone, so that it can be done again after any crash."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from ...topics.messages import RunRecord, Status


class Dispatch(Struct, frozen=True):
    """Publish the work message. Twice is harmless: only the newest dispatch can be claimed, and only once."""

    queue: str
    """The agent, or `@topic` while no agent serves the topic."""
    run: str
    dispatch: int


class Timer(Struct, frozen=True):
    """Schedule the command `verb` at `at`. A second one replaces the first; an early or late one is harmless."""

    run: str
    verb: str
    at: datetime
    dispatch: int = 0
    epoch: int = 0


class CheckChildren(Struct, frozen=True):
    """See whether what the run waits for has happened already."""

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


Effect = Dispatch | Timer | CheckChildren | TellParent | Notify


def owed(record: RunRecord, cancel_grace_s: float = 30.0) -> tuple[Effect, ...]:
    """The effects that the run's present status asks for. Idempotent: each may be carried out any number of times."""
    run = record.id
    match record.status:
        case Status.QUEUED if record.wake_at is None:
            return (Dispatch(record.agent or f"@{record.topic}", run, record.dispatch),)
        case Status.QUEUED:
            assert record.wake_at is not None
            return (Timer(run, "due", record.wake_at, dispatch=record.dispatch),)
        case Status.WAITING:
            clock = (Timer(run, "wake", record.wake_at),) if record.wake_at is not None else ()
            return (*clock, CheckChildren(run)) if record.waits else clock
        case Status.CANCEL_REQUESTED:
            deadline = record.updated_at + timedelta(seconds=cancel_grace_s)
            timer = Timer(run, "cancel_deadline", deadline, epoch=record.epoch)
            return (Notify(record.worker, run, record.epoch), timer) if record.worker else (timer,)
        case _ if record.terminal and record.parent is not None and not record.detached:
            return (TellParent(record.parent, run),)
        case _:
            return ()
