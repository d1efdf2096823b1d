"""The messages that mend: each is one that a coordinator or worker publishes itself, and harmless where nothing is
wrong. What they change is decided by the coordinator that takes them. And what is left over is taken away."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from ...topics.bus import Bus
from ...topics.client import head_bytes
from ...topics.messages import Command, Outcome, RunRecord, Work, encode
from ...topics.schedules import Fire, Schedule, due_ms
from ...topics.subjects import Subjects
from ...topics.units import schedule_at
from ..coordinator.effects import Dispatch, Timer


class Remedy(Struct, frozen=True):
    """A message to publish."""

    subject: str
    data: bytes = b""
    headers: dict[str, str] | None = None

    async def apply(self, bus: Bus) -> None:
        """Publishes it durably. Raises as `Bus.store` does."""
        await bus.store(self.subject, self.data, head_bytes(self.headers) if self.headers else None)


class Removal(Struct, frozen=True):
    """Messages to take away: those on `subject`, of a stream."""

    stream: str
    subject: str

    async def apply(self, bus: Bus) -> None:
        """Takes them away. Raises BrokerError."""
        await bus.api(f"STREAM.PURGE.{self.stream}", {"filter": self.subject})


def fire(subjects: Subjects, schedule: Schedule, due: datetime) -> Remedy:
    """The timer of a due time again; when that has passed it fires at once. A due time has one run, however often."""
    headers = {
        "Nats-Schedule": schedule_at(due),
        "Nats-Schedule-Target": subjects.fires,
    }
    body = encode(Fire(schedule.name, schedule.token, due))
    return Remedy(subjects.schedule_timer(schedule.name, str(due_ms(due))), body, headers)


def timers_of(subjects: Subjects, run: str) -> Removal:
    """Takes all timers of a run away: it has ended."""
    return Removal(subjects.inbox, f"{subjects.timer}.{run}.*")


def dispatch(subjects: Subjects, owed: Dispatch) -> Remedy:
    """The work message again: only the newest dispatch can be claimed, and only once. Without the id by which the
    broker would know it: the first one was stored, and is gone."""
    return Remedy(f"{subjects.work}.{owed.queue}", encode(Work(run=owed.run, dispatch=owed.dispatch)))


def timer(subjects: Subjects, owed: Timer) -> Remedy:
    """The timer again: it replaces one that is there, and one that comes late changes nothing."""
    headers = {
        "Nats-Schedule": schedule_at(owed.at),
        "Nats-Schedule-Target": subjects.command(owed.run, owed.verb),
    }
    return Remedy(f"{subjects.timer}.{owed.run}.{owed.verb}", encode(owed.command), headers)


def sweep(subjects: Subjects, run: str) -> Remedy:
    """Has a coordinator compare the run with what it is owed."""
    return Remedy(subjects.command(run, "sweep"))


def child(subjects: Subjects, parent: str) -> Remedy:
    """Has a coordinator look at the children that a run waits for."""
    return Remedy(subjects.command(parent, "child"), encode(Command()))


def wake(subjects: Subjects, run: str, reason: str) -> Remedy:
    """Gives a waiting run to a worker, which finds out what there is to wait for and starts what is missing."""
    return Remedy(subjects.command(run, "wake"), encode(Command(reason=reason)))


def release(subjects: Subjects, record: RunRecord) -> Remedy:
    """Says for a worker that has forgotten an attempt that it is handed back unharmed."""
    outcome = Outcome(
        run=record.id, attempt=record.attempt, kind="released", epoch=record.epoch, worker=record.worker,
        steps=record.steps,
    )  # fmt: skip
    return Remedy(subjects.command(record.id, "outcome"), encode(Command(outcome=outcome)))


def cancel(subjects: Subjects, run: str, by: str) -> Remedy:
    """Cancels a run with all below it."""
    return Remedy(subjects.command(run, "cancel"), encode(Command(reason=f"run {by} above it was canceled", by=by)))
