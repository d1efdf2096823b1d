"""Interrupts of a run: asked when an attempt ends, answered, expired, passed on to somebody else. Pure.

    running ─ asks ────────────→ input_required | auth_required ─ answered, expired ─→ queued
            └ was answered before ──────────────────────────────────────────────────→ queued

Any answer brings the run on; what is not answered yet stays open and can be answered meanwhile, also in any order and
several at once. An answer stands in the record until the code has taken it, which is when the journal has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from ...topics.ids import child_run_id
from ...topics.messages import (
    ASKING,
    Answer,
    AnswerAction,
    Answered,
    Escalated,
    Interrupt,
    Outcome,
    RunRecord,
    Status,
)
from .decision import APPLIED, LATER, REFUSED, STALE, Decision, following, queued
from .run_commands import Escalate, InterruptDue, Resume, Unanswered

CLOCK = "clock"
EXPIRY = "expiry"
REMEMBERED = 200
"""Answers of which a record keeps the mark."""


def decide(record: RunRecord, command: Resume | InterruptDue | Escalate | Unanswered, now: datetime) -> Decision:
    """Of the commands of `transitions.decide` those that are about interrupts."""
    match command:
        case Resume():
            return resume(record, command, now)
        case InterruptDue():
            return _due(record, command, now)
        case Escalate():
            return _escalate(record, command, now)
        case Unanswered():
            return _unanswered(record, command, now)


# -- end of an attempt ------------------------------------------------------------------------------------------


def taken(record: RunRecord, outcome: Outcome) -> RunRecord:
    """The record without the answers that the journal has now: they are only remembered."""
    if not outcome.taken:
        return record
    gone = {one.id for one in outcome.taken}
    return replace(
        record,
        interrupts=[one for one in record.interrupts or () if one.id not in gone] or None,
        answers=[one for one in record.answers or () if one.id not in gone] or None,
        answered=_remembered(record.answered, outcome.taken),
    )


def _remembered(before: list[Answered] | None, more: Iterable[Answered]) -> list[Answered] | None:
    known = {one.id for one in before or ()}
    return [*(before or ()), *(one for one in more if one.id not in known)][-REMEMBERED:] or None


def asked(record: RunRecord, outcome: Outcome, now: datetime, reason: str) -> Decision:
    """The attempt has ended because somebody has to answer. What was asked before is not asked anew."""
    before = {one.id: one for one in record.interrupts or ()}
    given = {one.id for one in record.answers or ()}
    open_ = [before.get(one.id, one) for one in outcome.interrupts or () if one.id not in given]
    changes = {"interrupts": open_ or None, "steps": outcome.steps, "failures": 0, "losses": 0, "heard": outcome.heard}
    if len(open_) < len(outcome.interrupts or ()):
        return queued(record, now, "was answered meanwhile", **changes)
    if not (open_ or outcome.unknown):
        return queued(record, now, "has nothing to wait for", **changes)
    return following(
        record, now, status_of(open_), unknown=outcome.unknown or None, waits=outcome.waits, wake_at=outcome.wake_at,
        hears=outcome.hears, worker=None, lease=0, reason=reason, **changes,
    )  # fmt: skip


def status_of(interrupts: Iterable[Interrupt]) -> Status:
    """The status of a run that asks these, or a person's word on an effect."""
    return Status.AUTH_REQUIRED if any(one.kind == "auth" for one in interrupts) else Status.INPUT_REQUIRED


# -- answers ----------------------------------------------------------------------------------------------------


def resume(record: RunRecord, command: Resume, now: datetime) -> Decision:
    """Answers to open interrupts: all of them, or none. `later`: a worker holds the run, which has to be told; or the
    run has moved on since it was looked at, and may have been told something meanwhile."""
    fresh: list[Answer] = []
    for answer in command.answers:
        known = remembered(record, answer.id)
        if known is not None and known.same(answer.mark):
            continue
        if known is not None or not any(one.id == answer.id for one in record.interrupts or ()):
            return REFUSED
        fresh.append(answer)
    if not fresh:
        return APPLIED
    if record.status is Status.RUNNING or command.rev not in (0, record.rev):
        return LATER
    return _answered(record, fresh, now) if record.status in (*ASKING, Status.QUEUED) else REFUSED


def remembered(record: RunRecord, interrupt: str) -> Answered | None:
    """How an interrupt was answered, as far as the record knows."""
    for one in record.answers or ():
        if one.id == interrupt:
            return one.mark
    return next((one for one in record.answered or () if one.id == interrupt), None)


def _answered(record: RunRecord, fresh: Sequence[Answer], now: datetime) -> Decision:
    ids = {one.id for one in fresh}
    changes = {
        "interrupts": [one for one in record.interrupts or () if one.id not in ids] or None,
        "answers": [*(record.answers or ()), *fresh],
    }
    if record.status is Status.QUEUED:
        return following(record, now, Status.QUEUED, **changes)
    return queued(record, now, "answered", unknown=None, **changes)


# -- the clock --------------------------------------------------------------------------------------------------


def next_due(record: RunRecord) -> datetime | None:
    """When a clock has to look at the open interrupts."""
    return min((one.due_at for one in record.interrupts or () if one.due_at), default=None)


def _due(record: RunRecord, command: InterruptDue, now: datetime) -> Decision:
    if record.status not in ASKING or command.rev not in (0, record.rev):
        return STALE
    moment = max(command.due, now) if command.due else now
    expired = [one for one in record.interrupts or () if one.expires_at is not None and one.expires_at <= moment]
    if expired:
        return _answered(record, [_expiry(one, now) for one in expired], now)
    passed_on = [_passed_on(record, one, moment, now) for one in record.interrupts or ()]
    if passed_on == record.interrupts:
        return STALE
    return following(record, now, record.status, interrupts=passed_on)


def _expiry(interrupt: Interrupt, now: datetime) -> Answer:
    action: AnswerAction = "respond" if interrupt.default is not None else "expire"
    return Answer(id=interrupt.id, action=action, value=interrupt.default, by=EXPIRY, at=now, place=interrupt.at)


def _passed_on(record: RunRecord, interrupt: Interrupt, moment: datetime, now: datetime) -> Interrupt:
    """With every escalation made that is due."""
    for one in interrupt.escalations or ():
        if one.at <= moment:
            interrupt = _to_next(record, interrupt, one.to, one.agent, now, by=CLOCK)
    left = [one for one in interrupt.escalations or () if one.at > moment]
    return interrupt if left == (interrupt.escalations or []) else replace(interrupt, escalations=left or None)


def _to_next(
    record: RunRecord, interrupt: Interrupt, to: str | None, agent: str | None, now: datetime, by: str | None,
    comment: str | None = None,
) -> Interrupt:  # fmt: skip
    before = interrupt.escalated or []
    run = child_run_id(record.id, f"escalation/{interrupt.id}/{len(before)}") if agent else None
    step = Escalated(at=now, to=to, agent=agent, run=run, by=by, comment=comment)
    return replace(interrupt, to=to or interrupt.to, escalated=[*before, step])


# -- by hand ----------------------------------------------------------------------------------------------------


def _escalate(record: RunRecord, command: Escalate, now: datetime) -> Decision:
    interrupt = next((one for one in record.interrupts or () if one.id == command.interrupt), None)
    if record.status not in ASKING or interrupt is None:
        return REFUSED
    for last in (interrupt.escalated or [])[-1:]:
        if (last.to, last.agent, last.error) == (command.to, command.agent, None):
            return APPLIED
    after = _to_next(record, interrupt, command.to, command.agent, now, command.by, command.comment)
    return _with(record, after, now)


def _unanswered(record: RunRecord, command: Unanswered, now: datetime) -> Decision:
    """The agent that was asked has no answer: people see it again."""
    for interrupt in record.interrupts or ():
        for number, one in enumerate(interrupt.escalated or ()):
            if one.run == command.run and one.error is None and record.status in ASKING:
                steps = list(interrupt.escalated or ())
                steps[number] = replace(one, error=command.error)
                return _with(record, replace(interrupt, escalated=steps), now)
    return STALE


def _with(record: RunRecord, changed: Interrupt, now: datetime) -> Decision:
    interrupts = [changed if one.id == changed.id else one for one in record.interrupts or ()]
    return following(record, now, record.status, interrupts=interrupts)


def agents_asked(record: RunRecord) -> list[tuple[Interrupt, Escalated]]:
    """The agents that have been asked and are to answer."""
    return [
        (interrupt, one)
        for interrupt in record.interrupts or ()
        for one in interrupt.escalated or ()
        if one.agent is not None and one.error is None
    ]
