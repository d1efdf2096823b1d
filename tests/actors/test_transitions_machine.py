"""A run under fire: commands of every kind, twice, late and in any order, and what must hold all the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from callboard.actors.coordinator.effects import (
    AskAgents,
    CancelBelow,
    CheckChildren,
    CheckWords,
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
    Deadline,
    Due,
    End,
    Escalate,
    InterruptDue,
    Lost,
    Reconcile,
    Redispatch,
    Resume,
    RunCommand,
    Settled,
    Starved,
    Unanswered,
    Wake,
)
from callboard.actors.coordinator.transitions import LEGAL, MAX_LOSSES, decide
from callboard.topics.messages import (
    ASKING,
    NOTHING,
    Answer,
    CancelOrder,
    ErrorInfo,
    Escalation,
    Interrupt,
    Outcome,
    Payload,
    RetryPolicy,
    RunRecord,
    Status,
    UnknownEffect,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
WORKERS = st.sampled_from(["w1", "w2", "w3"])
KINDS = st.sampled_from(["completed", "failed", "suspended", "input_required", "released", "stopped", "timed_out"])
RUN = "run"
IDS = ("i1", "i2", "i3")
SAID = [Payload(json=msgspec.Raw(text)) for text in (b"1", b"2")]


class Life(RuleBasedStateMachine):
    """One run, a queue that may deliver anything again, late workers, a coordinator that repeats itself."""

    @initialize(
        topic=st.booleans(), child=st.booleans(), attempts=st.integers(1, 3), effects=st.booleans(), timed=st.booleans()
    )
    def begin(self, topic: bool, child: bool, attempts: int, effects: bool, timed: bool) -> None:
        self.now, self.effects = START, effects
        self.record = RunRecord(
            id=RUN, root=RUN, agent="" if topic else "a", topic="t" if topic else None, status=Status.QUEUED,
            input=NOTHING, created_at=START, updated_at=START, dispatch=1, parent="p" if child else None,
            retry=RetryPolicy(max_attempts=attempts),
            deadline_at=START + timedelta(hours=1) if timed else None, wait_timeout_s=60 if timed else None,
            wait_until=START + timedelta(seconds=60) if timed else None,
        )  # fmt: skip
        self.history = [self.record]
        self.messages: list[list[Any]] = []  # queue, dispatch, stream sequence, deliveries
        self.given: list[RunCommand] = []
        self.granted: list[tuple[str, int]] = []
        self.accepted: dict[str, Answer] = {}
        """What was accepted, by interrupt."""
        self.journal: set[str] = set()
        """The interrupts whose answers the code has."""
        self.carry_out()

    # -- the world around the run ---------------------------------------------------------------------------------

    def give(self, command: RunCommand) -> None:
        """Applies a command as the ledger does, and checks this one transition."""
        self.now += timedelta(seconds=1)
        before = self.record
        decision = decide(before, command, self.now)
        self.given.append(command)
        assert (decision.verdict == "changed") == (decision.record is not None)
        if decision.record is None:
            return
        after = self.record = decision.record
        self.history.append(after)
        assert after.status in LEGAL[before.status]
        assert after.rev == before.rev + 1
        for name in ("attempt", "dispatch", "epoch"):
            assert getattr(after, name) - getattr(before, name) in (0, 1)
        assert (after.id, after.root, after.input, after.parent) == (
            before.id,
            before.root,
            before.input,
            before.parent,
        )
        for answer in after.answers or ():
            assert self.accepted.setdefault(answer.id, answer) == answer, "an answer was replaced"
        if isinstance(command, End):
            assert command.outcome.attempt == before.attempt
            assert before.status in (Status.RUNNING, Status.CANCEL_REQUESTED)
        if isinstance(command, Claim) and after.attempt > before.attempt:
            assert after.attempt == before.attempt + 1
            self.granted.append((command.worker, after.attempt))
        again = decide(after, command, self.now)
        assert again.record is None, f"{command} changed the run twice"

    @rule()
    def carry_out(self) -> None:
        """What is owed is carried out, any number of times."""
        for effect in owed(self.record):
            match effect:
                case Dispatch(queue=queue, dispatch=dispatch):
                    self.messages.append([queue, dispatch, 100 + len(self.messages), 0])
                case Timer(verb="due", dispatch=dispatch):
                    self.given.append(Due(dispatch))
                case Timer(verb="deadline"):
                    self.given.append(Deadline())
                case Timer(verb="starved", dispatch=dispatch):
                    self.given.append(Starved(dispatch))
                case Timer(verb="wake"):
                    self.given.append(Wake("timer"))
                case Timer(verb="interrupt_due", at=at):
                    self.given.append(InterruptDue(at))
                case Timer(epoch=epoch):
                    self.given.append(CancelDeadline(epoch))
                case CancelBelow():
                    self.given.append(Settled(self.record.epoch, self.effects))
                case CheckChildren() | CheckWords() | AskAgents() | Park() | TellParent() | Notify():
                    pass

    @precondition(lambda self: self.messages)
    @rule(data=st.data(), worker=WORKERS, told=st.booleans())
    def deliver(self, data: Any, worker: str, told: bool) -> None:
        """A work message comes to a worker, which may tell which delivery it is: the first time, or again."""
        message = data.draw(st.sampled_from(self.messages))
        queue, dispatch, sequence, _ = message
        message[3] += 1
        if queue.startswith("@"):
            self.give(Redispatch("a", dispatch))
        else:
            self.give(Claim(worker, dispatch, sequence, message[3], queue=queue, consumer_seq=7 if told else 0))

    @precondition(lambda self: self.granted)
    @rule(data=st.data(), kind=KINDS, retryable=st.booleans(), waits=st.booleans(), sleeps=st.booleans())
    def end(self, data: Any, kind: Any, retryable: bool, waits: bool, sleeps: bool) -> None:
        """A worker, perhaps one that lost the run long ago, hands its outcome in."""
        worker, attempt = data.draw(st.sampled_from(self.granted))
        if attempt == self.record.attempt:  # the code of this attempt has come past what was answered
            self.journal |= {answer.id for answer in self.record.answers or () if data.draw(st.booleans())}
        asked = data.draw(st.lists(st.sampled_from(IDS), unique=True))
        outcome = Outcome(
            run=RUN, attempt=attempt, kind=kind, worker=worker, waits=[["c1"], ["c2"]] if waits else None,
            interrupts=[self.interrupt(data, one) for one in asked if one not in self.journal] or None,
            taken=[self.accepted[one].mark for one in sorted(self.journal)] or None, hears=data.draw(st.booleans()),
            wake_at=self.now + timedelta(hours=1) if sleeps else None,
            error=ErrorInfo(code="exception", message="m", retryable=retryable), undone=retryable,
            unknown=[UnknownEffect(at=at, name="e", key="k", attempt=attempt, n=1) for at in ("1", "2")]
            if data.draw(st.booleans()) else None,
        )  # fmt: skip
        self.give(End(outcome))

    def interrupt(self, data: Any, name: str) -> Interrupt:
        """A question that the code asks."""
        hours = data.draw(st.sampled_from([None, 1, 2]))
        moment = None if hours is None else self.now + timedelta(hours=hours)
        return Interrupt(
            id=name, at=f"at {name}", created_at=self.now, kind=data.draw(st.sampled_from(["input", "auth"])),
            expires_at=moment if data.draw(st.booleans()) else None,
            default=NOTHING if data.draw(st.booleans()) else None,
            escalations=[Escalation(at=moment, agent="b")] if moment and data.draw(st.booleans()) else None,
        )  # fmt: skip

    @rule(names=st.lists(st.sampled_from(IDS), unique=True, min_size=1), value=st.sampled_from(SAID))
    def answer(self, names: list[str], value: Payload) -> None:
        """Answers to some interrupts, open or not."""
        self.give(Resume([Answer(id=name, value=value) for name in names]))

    @rule(hours=st.sampled_from([0, 1, 3]))
    def clock(self, hours: int) -> None:
        self.give(InterruptDue(self.now + timedelta(hours=hours)))

    @rule(name=st.sampled_from(IDS), agent=st.booleans(), error=st.booleans())
    def pass_on(self, name: str, agent: bool, error: bool) -> None:
        """A question is passed on, and perhaps an agent that was asked has no answer."""
        self.give(Escalate(name, None if agent else "boss", "b" if agent else None))
        runs = [one.run for each in self.record.interrupts or () for one in each.escalated or () if one.run]
        if error and runs:
            self.give(Unanswered(runs[0] or "", "failed"))

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def again(self, data: Any) -> None:
        """Any command of the past, or a timer, comes (again)."""
        self.give(data.draw(st.sampled_from(self.given)))

    @rule(worker=WORKERS, attempt=st.integers(0, 3))
    def lost(self, worker: str, attempt: int) -> None:
        self.give(Lost(worker, attempt))

    @rule(
        action=st.sampled_from(["cancel", "interrupt", "rollback"]), scope=st.sampled_from(["run", "tree"]),
        by=st.sampled_from(["", "p"]),
    )  # fmt: skip
    def cancel(self, action: Any, scope: Any, by: str) -> None:
        self.give(Cancel(order=CancelOrder(action=action, scope=scope, by=by)))

    @rule(effect=st.sampled_from(["1", "2", "3"]), happened=st.booleans())
    def reconcile(self, effect: str, happened: bool) -> None:
        self.give(Reconcile(effect, happened))

    @rule()
    def wake(self) -> None:
        self.give(Wake())

    # -- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def something_brings_it_on(self) -> None:
        """A run that has not ended has a message, a timer, a look at its children, a worker under a lease, or waits for
        a person."""
        record = self.record
        if record.status is Status.RUNNING or (record.undo == "due" and record.worker):
            assert record.worker
            assert record.lease
        elif record.status in ASKING:
            assert record.unknown or record.interrupts
            auth = any(one.kind == "auth" for one in record.interrupts or ())
            assert (record.status is Status.AUTH_REQUIRED) == auth
        elif not record.terminal:
            assert owed(record) or (record.status is Status.QUEUED and record.lease)  # the message that is there
        assert record.worker is None or record.status in (Status.RUNNING, Status.CANCEL_REQUESTED)
        assert not record.undo or record.status is Status.CANCEL_REQUESTED

    @invariant()
    def answers_are_kept(self) -> None:
        """What was accepted stands in the record until the code has it, and is remembered then; nothing that was
        answered is open again."""
        record = self.record
        open_ = {one.id for one in record.interrupts or ()}
        answers = {one.id for one in record.answers or ()}
        known = {one.id for one in record.answered or ()}
        assert not open_ & (answers | self.journal)
        if record.terminal or record.status is Status.CANCEL_REQUESTED:
            assert not open_ | answers
        else:
            assert self.accepted.keys() - self.journal <= answers
            assert self.accepted.keys() <= answers | known | self.journal

    @invariant()
    def ends_as_ordered(self) -> None:
        """An interrupted run's effects are kept; one whose effects were being undone does not end as orphaned."""
        record = self.record
        assert record.undo != "due" or self.effects
        if record.status is Status.ORPHANED:
            assert not any(one.undo == "due" for one in self.history)

    @invariant()
    def ends_once(self) -> None:
        """At most one terminal state, and it is the last."""
        terminal = [record for record in self.history if record.terminal]
        assert len(terminal) <= 1
        if terminal:
            assert terminal[0] is self.record
            assert self.record.ended_at is not None
            for command in self.given:
                assert decide(self.record, command, self.now).record is None

    @invariant()
    def losses_are_bounded(self) -> None:
        assert self.record.losses <= MAX_LOSSES
        assert self.record.losses < MAX_LOSSES or self.record.terminal

    @invariant()
    def attempts_have_one_owner(self) -> None:
        """No attempt number was granted to two workers."""
        attempts = [attempt for _, attempt in self.granted]
        assert len(set(attempts)) == len(attempts)

    def teardown(self) -> None:
        """Whatever has happened: if what is owed is carried out once more and the world behaves, the run ends."""
        if not hasattr(self, "record"):
            return
        for _ in range(15):
            if self.record.terminal:
                return
            self.step_on()
        raise AssertionError(f"stuck in {self.record.status}: {self.record}")

    def step_on(self) -> None:
        record = self.record
        match record.status:
            case Status.QUEUED:
                self.carry_out()
                if record.wake_at is not None:
                    self.give(Due(record.dispatch))
                    return
                queue, dispatch, sequence, times = self.messages[-1]
                claim = Claim("last", dispatch, sequence, times + 1, queue=queue)
                self.give(Redispatch("a", dispatch) if queue.startswith("@") else claim)
            case Status.WAITING:
                self.give(Wake())
            case Status.INPUT_REQUIRED | Status.AUTH_REQUIRED:
                if record.interrupts:
                    self.give(Resume([Answer(id=record.interrupts[0].id, value=SAID[0])]))
                else:
                    self.give(Reconcile((record.unknown or [])[0].at, True))
            case Status.CANCEL_REQUESTED if record.worker is None and record.undo == "due":
                self.carry_out()
                queue, dispatch, sequence, _ = self.messages[-1]
                self.give(Claim("last", dispatch, sequence, 1, queue=queue))
            case Status.CANCEL_REQUESTED if record.worker is None:
                self.give(Settled(record.epoch, self.effects))
            case Status.CANCEL_REQUESTED:
                self.give(End(Outcome(run=RUN, attempt=record.attempt, kind="stopped", undone=True)))
            case _:
                self.give(End(Outcome(run=RUN, attempt=record.attempt, kind="completed")))


Life.TestCase.settings = settings(
    max_examples=300, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestLife = Life.TestCase
