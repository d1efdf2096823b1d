"""The life of a run as a pure function: one by one, what each command does to a run in each status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.coordinator.effects import (
    CancelBelow,
    CheckChildren,
    Dispatch,
    Notify,
    Park,
    TellParent,
    Timer,
    owed,
)
from callboard.actors.coordinator.run_commands import (
    Cancel,
    CancelDeadline,
    Claim,
    Due,
    End,
    Fail,
    Lost,
    Reconcile,
    Redispatch,
    RunCommand,
    Settled,
    Wake,
)
from callboard.actors.coordinator.transitions import MAX_LOSSES, Decision, decide
from callboard.store.attention import parks
from callboard.topics.messages import (
    NOTHING,
    SUSPECT_LOSSES,
    AgentInfo,
    CancelOrder,
    ErrorInfo,
    Outcome,
    Payload,
    RetryPolicy,
    RunRecord,
    Status,
    UnknownEffect,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUN = "r1"
TRANSIENT = ErrorInfo(code="exception", message="no route", retryable=True)
FATAL = ErrorInfo(code="exception", message="bad input")


def queued(**fields: Any) -> RunRecord:
    """A run as it begins."""
    base: dict[str, Any] = {"agent": "a", "input": NOTHING, "created_at": NOW, "updated_at": NOW, "dispatch": 1}
    return RunRecord(id=RUN, root=RUN, status=Status.QUEUED, **(base | fields))


def running(**fields: Any) -> RunRecord:
    """A run that worker `w` carries out."""
    base = {"status": Status.RUNNING, "attempt": 1, "worker": "w", "lease": 10, "delivery": 1}
    return msgspec.structs.replace(queued(), **(base | fields))


def outcome(kind: Any = "completed", attempt: int = 1, **fields: Any) -> End:
    return End(Outcome(run=RUN, attempt=attempt, kind=kind, **fields))


def changed(record: RunRecord, command: RunCommand) -> RunRecord:
    decision = decide(record, command, NOW)
    assert decision.verdict == "changed", decision
    assert decision.record is not None
    return decision.record


def refused(record: RunRecord, command: RunCommand) -> str:
    decision = decide(record, command, NOW)
    assert decision == Decision(decision.verdict)
    return decision.verdict


def test_claim_of_the_newest_dispatch_begins_an_attempt() -> None:
    """Attempt counted, worker and lease noted, the agent's present policy taken over."""
    info = AgentInfo(name="a", retry=RetryPolicy(max_attempts=9), timeout_s=5)
    record = changed(queued(), Claim("w", 1, 10, 1, info))
    assert (record.status, record.attempt, record.worker, record.lease) == (Status.RUNNING, 1, "w", 10)
    assert (record.retry, record.timeout_s) == (info.retry, 5)


@pytest.mark.parametrize(
    ("record", "claim", "verdict"),
    [
        (queued(dispatch=2), Claim("w", 1, 10, 1), "stale"),
        (queued(), Claim("w", 2, 10, 1), "later"),
        (queued(wake_at=NOW), Claim("w", 1, 10, 1), "stale"),
        (running(), Claim("x", 1, 11, 1), "stale"),
        (running(), Claim("w", 1, 10, 1), "applied"),
        (running(), Claim("x", 1, 10, 1), "stale"),
        (running(status=Status.COMPLETED), Claim("w", 1, 10, 2), "stale"),
        (queued(), Claim("w", 1, 10, 1, queue="b"), "stale"),
    ],
)
def test_claims_that_are_not_granted(record: RunRecord, claim: Claim, verdict: str) -> None:
    """An old, a second, an early work message, or one on another agent's queue, begins nothing."""
    assert refused(record, claim) == verdict


def test_redelivery_to_another_worker_is_a_takeover_and_counts_a_loss() -> None:
    """The message came to somebody else, so its lease had run out."""
    record = changed(running(), Claim("x", 1, 10, 2))
    assert (record.attempt, record.worker, record.losses, record.delivery) == (2, "x", 1, 2)


def test_redelivery_to_the_same_worker_is_a_new_attempt_without_a_loss() -> None:
    """The answer to its claim was lost, or its record did not fit into the reply: nobody has died."""
    record = running()
    for delivery in range(2, 2 + 3 * MAX_LOSSES):
        record = changed(record, Claim("w", 1, 10, delivery))
    assert (record.status, record.losses) == (Status.RUNNING, 0)


def test_losses_in_a_row_end_as_poison() -> None:
    """MAX_LOSSES dead processes, by any mix of takeovers and words of loss, and the run is parked as failed."""
    record = running()
    for count in range(1, MAX_LOSSES):
        if count % 2:
            record = changed(record, Claim(f"w{count}", record.dispatch, record.lease, record.delivery + 1))
        else:
            assert record.worker is not None
            record = changed(record, Lost(record.worker))
            record = changed(record, Claim(f"w{count}", record.dispatch, 10 + count, 1))
    assert record.status is Status.RUNNING
    assert record.worker is not None
    record = changed(record, Lost(record.worker))
    assert record.status is Status.FAILED
    assert record.error is not None
    assert record.error.code == "worker_lost"
    assert record.losses == MAX_LOSSES


def test_a_lost_attempt_that_had_left_a_result_begins_the_count_anew() -> None:
    record = running(losses=MAX_LOSSES - 1, attempt=7)
    assert changed(record, Lost("w", got_on=record.attempt)).losses == 1
    assert changed(record, Claim("x", 1, 10, 2, got_on=record.attempt)).losses == 1
    assert changed(record, Lost("w", got_on=record.attempt - 1)).status is Status.FAILED, "an earlier one had"
    assert changed(record, Claim("x", 1, 10, 2, got_on=record.attempt - 1)).status is Status.FAILED


@pytest.mark.parametrize("losses", range(MAX_LOSSES))
def test_a_run_that_has_died_often_is_not_granted_beside_another(losses: int) -> None:
    waiting, lost = queued(losses=losses), running(losses=losses)
    for record, late in [(waiting, losses), (lost, losses + 1)]:
        alone, beside = Claim("x", 1, 10, 2), Claim("x", 1, 10, 2, beside=True)
        if late >= MAX_LOSSES:
            assert changed(record, beside).status is Status.FAILED
        elif late >= SUSPECT_LOSSES:
            assert refused(record, beside) == "later"
        else:
            assert changed(record, beside) == changed(record, alone)
        assert late >= MAX_LOSSES or changed(record, alone).worker == "x"


def test_suspension_clears_losses_and_failures() -> None:
    """Progress was made: only failures in a row count."""
    record = changed(running(losses=4, failures=2), outcome("suspended", waits=[["c"]]))
    assert (record.status, record.losses, record.failures, record.worker) == (Status.WAITING, 0, 0, None)


def test_suspension_with_nothing_to_wait_for_goes_back_to_the_queue() -> None:
    """What it waited for came in the same moment: a waiting run that nothing wakes would never end."""
    empty: list[list[str]] = []
    for waits in (None, empty):
        record = changed(running(), outcome("suspended", waits=waits))
        assert (record.status, record.dispatch) == (Status.QUEUED, 2)


def test_completed() -> None:
    """The value is in the record, the end is stamped."""
    record = changed(running(error=FATAL), outcome(value=Payload(json=msgspec.Raw(b"7")), steps=3))
    assert (record.status, record.steps, record.error, record.ended_at) == (Status.COMPLETED, 3, None, NOW)


def test_outcome_of_another_attempt_is_stale() -> None:
    """Neither an earlier nor a made-up later attempt ends a run."""
    for kind in ("completed", "failed", "suspended", "released", "stopped", "timed_out"):
        for attempt in (1, 3):
            assert refused(running(attempt=2), outcome(kind, attempt)) == "stale"


@pytest.mark.parametrize("kind", ["completed", "failed", "suspended", "released", "stopped", "timed_out"])
def test_any_outcome_after_a_cancel_request_is_canceled(kind: str) -> None:
    """The request came first, as the broker's order says."""
    record = changed(changed(running(), Cancel("enough")), outcome(kind, undone=True))
    assert (record.status, record.reason) == (Status.CANCELED, "enough")


def test_retry_with_backoff_then_failed() -> None:
    """Transient failures are repeated after their delay, at most `max_attempts` times in all."""
    record = running(retry=RetryPolicy(max_attempts=3, initial=2, jitter=0))
    for failures, delay in ((1, 2), (2, 4)):
        record = changed(record, outcome("failed", record.attempt, error=TRANSIENT))
        assert (record.status, record.failures) == (Status.QUEUED, failures)
        assert record.wake_at == NOW + timedelta(seconds=delay)
        assert owed(record) == (Timer(RUN, "due", record.wake_at, dispatch=record.dispatch),)
        record = changed(record, Due(record.dispatch))
        record = changed(record, Claim("w", record.dispatch, 10 + failures, 1))
    record = changed(record, outcome("failed", record.attempt, error=TRANSIENT))
    assert (record.status, record.failures) == (Status.FAILED, 3)


def test_failures_that_are_not_retryable_and_timeouts() -> None:
    """A fatal error ends at once; a timeout that is not repeated ends as timed_out."""
    assert changed(running(), outcome("failed", error=FATAL)).status is Status.FAILED
    assert changed(running(), outcome("timed_out", error=FATAL)).status is Status.TIMED_OUT
    assert changed(running(), outcome("timed_out", error=TRANSIENT)).status is Status.QUEUED
    assert changed(running(), outcome("failed")).status is Status.FAILED


def test_cancel_of_a_run_that_no_worker_holds_ends_it_at_once() -> None:
    """Queued, delayed, waiting, interrupted: there is nobody to ask."""
    for record in (queued(), queued(wake_at=NOW), running(status=Status.WAITING, worker=None, waits=[["c"]])):
        ended = changed(record, Cancel())
        if record.attempt:  # its log may have effects
            assert (ended.status, ended.undo, owed(ended)) == (Status.CANCEL_REQUESTED, "check", (CancelBelow(RUN),))
            ended = changed(ended, Settled(1))
        assert (ended.status, ended.epoch, ended.waits, ended.wake_at) == (Status.CANCELED, 1, None, None)
    asleep = running(status=Status.WAITING, worker=None, waits=[["c"]])
    kept = changed(asleep, Cancel(order=CancelOrder(action="interrupt")))
    assert kept.status is Status.INTERRUPTED, "nothing is undone: there is nothing to look for"


def test_the_reason_of_a_canceled_run_is_why_it_was_canceled() -> None:
    """Never what it waited for at that moment."""
    asleep = running(status=Status.WAITING, worker=None, waits=[["c"]], reason="waits for child run c")
    interrupt = CancelOrder(action="interrupt")
    assert changed(asleep, Cancel(order=interrupt)).reason == "interrupted"
    assert changed(asleep, Cancel(order=msgspec.structs.replace(interrupt, by="R"))).reason == "interrupted with run R"
    assert changed(asleep, Cancel("enough", interrupt)).reason == "enough"
    stronger = Cancel("all of it", CancelOrder("rollback"))
    assert changed(changed(running(), Cancel("enough", interrupt)), stronger).reason == "all of it"


def test_an_end_cannot_be_undone_by_a_later_word() -> None:
    """Nothing is promised that does not come: a rollback of what was interrupted is refused, the same again is not."""
    kept = changed(running(status=Status.WAITING, worker=None), Cancel(order=CancelOrder(action="interrupt")))
    assert refused(kept, Cancel(order=CancelOrder(action="interrupt"))) == "applied"
    assert refused(kept, Cancel(order=CancelOrder(action="rollback"))) == "refused"


@pytest.mark.parametrize("word", [Cancel(order=CancelOrder("interrupt", "tree")), Fail()])
def test_what_nobody_knows_about_an_effect_stays_to_be_seen(word: Cancel | Fail) -> None:
    """However a run ends that waited for a word on it."""
    unknown = [UnknownEffect(at="0", name="charge", key="k", attempt=1, n=1)]
    asks = running(status=Status.INPUT_REQUIRED, worker=None, unknown=unknown)
    ended = changed(asks, word)
    if not ended.terminal:
        ended = changed(ended, Settled(1))
    assert ended.terminal
    assert ended.left
    assert Park(ended) in owed(ended)


def test_cancel_of_a_running_run_asks_its_worker_and_sets_a_deadline() -> None:
    """The epoch is counted up; the worker is told; the deadline stays the same however often it is carried out."""
    record = changed(running(), Cancel())
    deadline = NOW + timedelta(seconds=30)
    assert owed(record) == (Notify("w", RUN, 1), Timer(RUN, "cancel_deadline", deadline, epoch=1))
    assert refused(record, Cancel()) == "applied"
    assert refused(record, CancelDeadline(0)) == "stale"
    ended = changed(changed(record, CancelDeadline(1)), Settled(1))
    assert ended.status is Status.CANCELED
    assert refused(ended, Cancel()) == "applied"
    assert refused(changed(running(), outcome()), Cancel()) == "refused"


def test_loss_concerns_the_worker_and_attempt_it_names() -> None:
    """A late word about a worker that lost the run before changes nothing."""
    assert refused(running(), Lost("x")) == "stale"
    assert refused(running(), Lost("w", 2)) == "stale"
    assert changed(running(), Lost("w", 1)).dispatch == 2


def test_the_work_message_of_a_lost_worker_goes_on() -> None:
    """It is owed no second one. Only when it is delivered again does it count: not for the worker that is gone."""
    record = changed(running(consumer_seq=3), Lost("w", 1))
    assert (record.status, record.dispatch, record.lease, record.worker) == (Status.QUEUED, 1, 10, None)
    assert owed(record) == ()
    assert refused(record, Claim("w", 1, 10, 1)) == "later"
    taken = changed(record, Claim("x", 1, 10, 2, consumer_seq=9))
    assert (taken.attempt, taken.losses, taken.delivery, taken.consumer_seq) == (2, 1, 2, 9)
    anew = changed(record, Redispatch("a", 1, "it is not there"))
    assert (anew.dispatch, anew.lease) == (2, 0)
    assert owed(anew) == (Dispatch("a", RUN, 2),)
    pinned = changed(running(consumer_seq=3, version="1", pin=True), Lost("w", 1))
    assert (pinned.dispatch, pinned.queue) == (2, "a@1"), "it may lie on the queue of any version"


def test_a_run_whose_worker_is_lost_while_it_is_canceled_ends() -> None:
    assert changed(changed(changed(running(), Cancel()), Lost("w")), Settled(1)).status is Status.CANCELED


def test_effects_of_a_run_that_nobody_holds_are_undone_by_the_next_worker_before_it_ends() -> None:
    """Dispatched once more; a lost undoing goes to the next worker, and the deadline of the cancel does not apply."""
    record = changed(changed(running(), Cancel("enough")), Lost("w"))
    assert (record.undo, owed(record)) == ("check", (CancelBelow(RUN),))
    record = changed(record, Settled(1, effects=True))
    assert (record.undo, owed(record)) == ("due", (Dispatch("a", RUN, record.dispatch),))
    assert refused(record, Settled(1)) == "stale"
    record = changed(record, Claim("x", record.dispatch, 20, 1))
    assert (record.status, record.attempt, record.worker, owed(record)) == (Status.CANCEL_REQUESTED, 2, "x", ())
    assert refused(record, Claim("x", record.dispatch, 20, 1)) == "applied"
    assert refused(record, CancelDeadline(1)) == "stale"
    again = changed(record, Claim("y", record.dispatch, 20, 2))
    assert (again.attempt, again.worker, again.losses) == (3, "y", 1)
    again = changed(record, Lost("x"))
    assert (again.dispatch, again.worker, again.losses, again.undo) == (record.dispatch + 1, None, 1, "due")
    handed_back = changed(record, outcome("released", 2))
    assert (handed_back.undo, handed_back.losses) == ("due", 0)
    left = ErrorInfo(code="not_undone", message="1 compensation failed")
    ended = changed(record, outcome("stopped", 2, undone=True, error=left))
    assert (ended.status, ended.undo, ended.reason) == (
        Status.CANCELED,
        "",
        "enough; its worker is gone; " + left.message,
    )
    assert ended.left
    assert not changed(record, outcome("stopped", 2, undone=True)).left


def test_what_is_left_undone_is_known_when_the_tree_has_ended() -> None:
    left = ErrorInfo(code="not_undone", message="1 effect is unknown")
    record = changed(running(), Cancel("enough", CancelOrder(scope="tree")))
    record = changed(record, outcome("stopped", undone=True, error=left))
    assert (record.status, record.undo) == (Status.CANCEL_REQUESTED, "")
    ended = changed(record, Settled(1))
    assert (ended.status, ended.left, parks(ended)) == (Status.CANCELED, True, True)
    assert not parks(msgspec.structs.replace(ended, left=False))


def test_undoing_that_kills_its_workers_is_given_up_and_said() -> None:
    record = changed(changed(changed(running(), Cancel("enough")), Lost("w")), Settled(1, effects=True))
    for losses in range(1, MAX_LOSSES):
        record = changed(changed(record, Claim("x", record.dispatch, 20 + losses, 1)), Lost("x"))
        assert record.losses == losses
    record = changed(changed(record, Claim("x", record.dispatch, 99, 1)), Lost("x"))
    assert record.status is Status.CANCELED
    assert "not undone" in (record.reason or "")
    assert record.left


def test_second_cancel_that_undoes_more_has_the_kept_effects_looked_for() -> None:
    """An interrupt keeps effects; a rollback that comes while the tree still ends undoes them."""
    record = changed(running(), Cancel(order=CancelOrder(action="interrupt", scope="tree")))
    record = changed(record, outcome("stopped"))
    assert record.undo == ""
    record = changed(record, Cancel(order=CancelOrder(action="rollback")))
    assert (record.undo, record.epoch) == ("check", 2)
    assert changed(record, Settled(2, effects=True)).undo == "due"
    assert changed(record, Settled(2)).status is Status.ROLLED_BACK


UNKNOWN = [UnknownEffect(at=str(at), name="pay", key=f"k{at}", attempt=1, n=at) for at in (1, 2)]


def test_unknown_effects_are_decided_one_by_one_and_then_the_run_goes_on() -> None:
    record = changed(running(losses=2), outcome("input_required", unknown=UNKNOWN))
    assert (record.status, record.worker, record.losses) == (Status.INPUT_REQUIRED, None, 0)
    assert owed(record) == (Park(record),)
    assert "'pay' (1), 'pay' (2)" in (record.reason or "")
    assert refused(record, outcome("input_required", unknown=UNKNOWN)) == "applied"
    assert refused(record, Reconcile("pay", True)) == "refused", "the name alone does not tell which"
    assert refused(record, Reconcile("3", True)) == "refused"
    record = changed(record, Reconcile("1", True, Payload(json=msgspec.Raw(b"7")), "seen"))
    assert (record.status, record.unknown) == (Status.INPUT_REQUIRED, UNKNOWN[1:])
    assert refused(record, Reconcile("1", True)) == "applied"
    assert refused(record, Reconcile("1", False)) == "refused", "what was said is said"
    record = changed(record, Reconcile("pay", False))
    assert (record.status, record.unknown, record.dispatch) == (Status.QUEUED, None, 2)
    assert [(one.at, one.n, one.happened) for one in record.rulings or ()] == [("1", 1, True), ("2", 2, False)]


def test_a_run_that_waits_for_a_person_can_be_canceled() -> None:
    record = changed(changed(running(), outcome("input_required", unknown=UNKNOWN)), Cancel())
    assert (record.status, record.undo, record.unknown) == (Status.CANCEL_REQUESTED, "check", None)


def test_wake_due_and_redispatch_apply_once() -> None:
    """Each belongs to one moment of the run."""
    waiting = changed(running(), outcome("suspended", waits=[["c"]]))
    woken = changed(waiting, Wake())
    assert refused(woken, Wake()) == "stale"
    assert refused(queued(), Due(1)) == "stale"
    parked = queued(agent="", topic="t")
    assert owed(parked) == (Dispatch("@t", RUN, 1),)
    routed = changed(parked, Redispatch("a", 1))
    assert owed(routed) == (Dispatch("a", RUN, 2),)
    assert refused(routed, Redispatch("a", 1)) == "stale"


def test_owed_by_status() -> None:
    """What the outside owes follows from the record alone."""
    waiting = changed(running(), outcome("suspended", waits=[["c"]], wake_at=NOW))
    assert owed(waiting) == (Timer(RUN, "wake", NOW), CheckChildren(RUN))
    assert owed(running()) == ()
    ended = changed(running(parent="p"), outcome())
    assert owed(ended) == (TellParent("p", RUN),)
    assert owed(msgspec.structs.replace(ended, detached=True)) == (TellParent("p", RUN),), "a parent may wait for it"
    assert owed(changed(running(), outcome())) == ()


@given(
    st.builds(
        RetryPolicy,
        max_attempts=st.integers(-5, 1 << 40),
        initial=st.floats(),
        factor=st.floats(),
        maximum=st.floats(),
        jitter=st.floats(),
    ),
    st.integers(1, 10**6),
    st.floats(0, 1),
)
def test_any_policy_gives_a_usable_delay(policy: RetryPolicy, failures: int, jitter: float) -> None:
    """A registration may say anything: the delay is a number of seconds that a datetime can take."""
    delay = policy.delay_s(failures, jitter)
    assert 0 <= delay <= 366 * 86_400
    assert NOW + timedelta(seconds=delay) >= NOW


@given(
    st.floats(0.001, 1000), st.floats(1, 10), st.floats(0.001, 10_000), st.floats(0, 1),
    st.integers(1, 100), st.floats(0, 1),
)  # fmt: skip
def test_backoff_stays_within_its_bounds(
    initial: float, factor: float, maximum: float, jitter: float, failures: int, random: float
) -> None:
    """At most `maximum`, at least the part that is not random, never shorter than the one before without jitter."""
    policy = RetryPolicy(initial=initial, factor=factor, maximum=maximum, jitter=jitter)
    delay = policy.delay_s(failures, random)
    full = policy.delay_s(failures, 0)
    assert full * (1 - jitter) <= delay * 1.000001
    assert delay <= full <= maximum
    assert full <= policy.delay_s(failures + 1, 0)
