"""Interrupts in the life of a run: asked, answered in any order, expired, passed on; nothing is lost or taken twice."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from callboard.actors.coordinator.effects import AskAgents, CheckChildren, CheckWords, Park, Timer, owed
from callboard.actors.coordinator.run_commands import (
    Cancel,
    Claim,
    Escalate,
    Fail,
    InterruptDue,
    Resume,
    Unanswered,
    Wake,
)
from callboard.topics.messages import Answer, Answered, Escalation, Interrupt, Payload, RunRecord, Status
from tests.actors.test_transitions import NOW, RUN, changed, outcome, refused, running

HOUR = timedelta(hours=1)


def asks(*names: str, **fields: Any) -> list[Interrupt]:
    return [Interrupt(id=name, at=f"at {name}", created_at=NOW, **fields) for name in names]


def only(record: RunRecord) -> Interrupt:
    """The open interrupt."""
    assert record.interrupts is not None
    assert len(record.interrupts) == 1
    return record.interrupts[0]


def value(text: str) -> Payload:
    return Payload(json=msgspec.Raw(text.encode()))


def answers(**values: str) -> Resume:
    return Resume([Answer(id=name, value=value(text)) for name, text in values.items()])


def asked(*names: str, **fields: Any) -> RunRecord:
    """A run that asks these."""
    return changed(running(), outcome("input_required", interrupts=asks(*names, **fields)))


def again(record: RunRecord) -> RunRecord:
    """The run in its next attempt."""
    return changed(record, Claim("w", record.dispatch, 20 + record.dispatch, 1))


def test_an_open_interrupt_holds_nothing_and_any_answer_brings_the_run_on() -> None:
    record = asked("a", "b")
    assert (record.status, record.worker, record.lease) == (Status.INPUT_REQUIRED, None, 0)
    assert owed(record) == (Park(record), CheckWords(RUN))
    record = changed(record, answers(b="1"))
    assert (record.status, record.dispatch) == (Status.QUEUED, 2)
    assert ([one.id for one in record.interrupts or ()], [one.id for one in record.answers or ()]) == (["a"], ["b"])


def test_what_is_open_is_answered_while_the_run_goes_on_with_another_answer() -> None:
    """Queued: noted without a second work message. Running: the worker is told instead. At the end of the attempt it
    counts."""
    record = changed(asked("a", "b", "c"), answers(b="1"))
    record = changed(record, answers(a="2"))
    assert (record.status, record.dispatch, [one.id for one in record.answers or ()]) == (Status.QUEUED, 2, ["b", "a"])
    record = again(record)
    assert refused(record, answers(c="3")) == "later"
    assert refused(record, answers(d="3")) == "refused"
    taken = [Answered("b", "x"), Answered("c", "y")]
    record = changed(record, outcome("input_required", attempt=2, interrupts=asks("a"), taken=taken))
    assert (record.status, record.interrupts, [one.id for one in record.answers or ()]) == (Status.QUEUED, None, ["a"])


def test_the_same_answer_again_changes_nothing_and_another_one_is_refused() -> None:
    record = changed(asked("a"), answers(a="1"))
    assert refused(record, answers(a="1")) == "applied"
    assert refused(record, answers(a="2")) == "refused"
    record = again(record)
    assert refused(record, answers(a="1")) == "applied"
    taken = [Answer(id="a", value=value("1")).mark]
    after = changed(record, outcome("suspended", attempt=2, wake_at=NOW, taken=taken))
    assert (after.answers, after.answered) == (None, taken)
    for left in (after, changed(record, outcome("completed", attempt=2))):
        assert refused(left, answers(a="1")) == "applied"
        assert refused(left, answers(a="2")) == "refused"


def test_an_answer_survives_attempts_that_are_lost_or_fail() -> None:
    """Until the journal has it, it stands in the record."""
    record = again(changed(asked("a", "b"), answers(a="1")))
    handed_back = changed(record, outcome("released", attempt=2))
    assert ([one.id for one in handed_back.interrupts or ()], len(handed_back.answers or ())) == (["b"], 1)
    assert changed(again(handed_back), outcome("released", attempt=3, taken=[Answered("a", "x")])).answers is None


def test_all_answers_of_a_command_are_taken_or_none() -> None:
    assert refused(asked("a", "b"), answers(a="1", z="2")) == "refused"
    record = changed(asked("a", "b"), answers(a="1", b="2"))
    assert (record.interrupts, len(record.answers or ())) == (None, 2)


def test_one_that_wants_authorization_makes_the_run_auth_required() -> None:
    record = changed(running(), outcome("input_required", interrupts=[*asks("a"), *asks("b", kind="auth")]))
    assert record.status is Status.AUTH_REQUIRED
    record = again(changed(record, answers(b="1")))
    assert changed(record, outcome("input_required", attempt=2, interrupts=asks("a"))).status is Status.INPUT_REQUIRED


def test_what_was_asked_before_is_not_asked_anew() -> None:
    """Its times are those of the first time."""
    record = again(changed(asked("a", "b", expires_at=NOW + HOUR), answers(a="1")))
    later = asks("b", expires_at=NOW + 9 * HOUR)
    record = changed(record, outcome("input_required", attempt=2, interrupts=later, taken=[Answered("a", "x")]))
    assert [one.expires_at for one in record.interrupts or ()] == [NOW + HOUR]


def test_an_interrupt_beside_a_child_does_not_keep_the_run_from_waking() -> None:
    record = changed(running(), outcome("input_required", interrupts=asks("a"), waits=[["c"]], wake_at=NOW, hears=True))
    assert owed(record) == (Park(record), Timer(RUN, "wake", NOW), CheckChildren(RUN), CheckWords(RUN))
    woken = changed(record, Wake())
    assert (woken.status, [one.id for one in woken.interrupts or ()]) == (Status.QUEUED, ["a"])
    assert refused(asked("a"), Wake()) == "stale", "it waits for a person alone"


@pytest.mark.parametrize("default", [None, "7"])
def test_an_interrupt_expires_with_its_default_or_with_none(default: str | None) -> None:
    record = asked("a", expires_at=NOW + HOUR, default=value(default) if default else None)
    assert Timer(RUN, "interrupt_due", NOW + HOUR) in owed(record)
    assert refused(record, InterruptDue()) == "stale"
    after = changed(record, InterruptDue(NOW + HOUR))
    assert [(one.action, one.value, one.by) for one in after.answers or ()] == [
        ("respond", value(default), "expiry") if default else ("expire", None, "expiry")
    ]
    assert refused(after, InterruptDue(NOW + HOUR)) == "stale"
    assert refused(after, answers(a="1")) == "refused", "too late"


def test_it_is_passed_on_by_the_clock_and_by_hand() -> None:
    steps = [Escalation(at=NOW + HOUR, to="boss"), Escalation(at=NOW + 2 * HOUR, agent="judge")]
    record = asked("a", to="clerk", escalations=steps)
    assert Timer(RUN, "interrupt_due", NOW + HOUR) in owed(record)
    record = changed(record, InterruptDue(NOW + HOUR))
    one = only(record)
    assert (one.to, one.due_at, record.status) == ("boss", NOW + 2 * HOUR, Status.INPUT_REQUIRED)
    record = changed(record, InterruptDue(NOW + 2 * HOUR))
    one = only(record)
    assert [(step.to, step.agent, step.by) for step in one.escalated or ()] == [
        ("boss", None, "clock"), (None, "judge", "clock"),
    ]  # fmt: skip
    assert AskAgents(RUN) in owed(record)
    record = changed(record, Unanswered((one.escalated or [])[1].run or "", "it failed"))
    assert AskAgents(RUN) not in owed(record)
    record = changed(record, Escalate("a", to="queen", by="boss"))
    assert refused(record, Escalate("a", to="queen", by="boss")) == "applied"
    assert refused(record, Escalate("b", to="queen")) == "refused"
    assert [one.to for one in record.interrupts or ()] == ["queen"]


def test_a_run_that_asks_can_be_canceled_or_failed_and_asks_no_more() -> None:
    record = changed(asked("a"), Cancel())
    assert (record.status, record.interrupts) == (Status.CANCEL_REQUESTED, None)
    assert refused(record, answers(a="1")) == "refused"
    record = changed(asked("a"), Fail())
    assert (record.status, record.interrupts) == (Status.FAILED, None)
    assert refused(record, answers(a="1")) == "refused"
