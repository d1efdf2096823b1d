"""The verdict sees what must not be: histories and executions made up to be wrong."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from callboard.store.log import decode_record
from callboard.topics.messages import NOTHING, Answer, Checkpoint, Fork, Payload, RunRecord, Status, Step, encode
from callboard.topics.reads import Stored
from tests.chaos import report, superstep, talk
from tests.chaos.history import Execution, Executions, read_run
from tests.chaos.models import NOBODY, Unordered, asked_by_looper
from tests.chaos.people import Key, People, Sent
from tests.chaos.run import Outcome
from tests.chaos.verdict import Verdict

RUN = "0s7sj8rrxg04qn3wrfzrb4ag"
BEGAN = 1_800_000_000.0


def stored(sequence: int, at: float, kind: str, body: Any) -> Stored:
    stamp = datetime.fromtimestamp(BEGAN + at, UTC).isoformat().replace("+00:00", "Z")
    return Stored(f"cb.run.{RUN}.{RUN}.{kind}", sequence, encode(body), {}, stamp)


def state(sequence: int, at: float, status: Status, attempt: int, losses: int = 0, agent: str = "task") -> Stored:
    now = datetime.fromtimestamp(BEGAN + at, UTC)
    record = RunRecord(
        id=RUN, root=RUN, agent=agent, status=status, input=NOTHING, created_at=now, updated_at=now, attempt=attempt,
        losses=losses,
    )  # fmt: skip
    return stored(sequence, at, "state", record)


def done(sequence: int, at: float, step: str, attempt: int, n: int) -> Stored:
    return stored(sequence, at, "step", Step(at=step, name=step, attempt=attempt, n=n))


def taken_over() -> list[Stored]:
    """Attempt 1 finishes step 0 and is lost at 2 s; attempt 2 goes on at 3 s and ends at 6 s."""
    return [
        state(1, 0.0, Status.QUEUED, 0),
        state(2, 0.5, Status.RUNNING, 1),
        done(3, 1.0, "0", 1, 1),
        state(4, 2.0, Status.QUEUED, 1, losses=1),
        state(5, 3.0, Status.RUNNING, 2, losses=1),
        done(6, 5.0, "1", 2, 1),
        state(7, 6.0, Status.COMPLETED, 2, losses=1),
    ]


def judged(*executions: tuple[str, int, float]) -> Executions:
    found = [Execution(RUN, step, attempt, BEGAN + began) for step, attempt, began in executions]
    return Executions({RUN: read_run(taken_over())}, found)


def test_a_takeover_that_repeats_what_was_under_way_is_as_it_must_be() -> None:
    executions = judged(("0", 1, 0.6), ("1", 1, 1.1), ("1", 2, 3.1))
    assert list(executions.wrong()) == []
    assert executions.doubled() == 1
    assert executions.late() == {}
    assert executions.runs[RUN].takeovers() == 1


def test_a_finished_step_that_is_executed_again_is_found() -> None:
    (found,) = judged(("0", 1, 0.6), ("0", 2, 3.1), ("1", 2, 4.0)).wrong()
    assert "step 0, finished by attempt 1" in found


def test_an_attempt_that_executes_a_step_twice_is_found() -> None:
    (found,) = judged(("0", 1, 0.6), ("0", 1, 0.7)).wrong()
    assert "attempt 1 executed step 0 2 times" in found


def test_an_attempt_that_was_lost_may_begin_one_step_and_not_two() -> None:
    one = judged(("0", 1, 0.6), ("1", 1, 2.5))
    assert (list(one.wrong()), one.late()) == ([], {(RUN, 1): 1})
    (found,) = judged(("0", 1, 0.6), ("1", 1, 2.5), ("2", 1, 4.5)).wrong()
    assert "began 2 steps after it had lost the run" in found


def test_an_execution_of_a_run_that_is_not_in_the_log_is_found() -> None:
    (found,) = Executions({}, [Execution(RUN, "0", 1, BEGAN)]).wrong()
    assert "not in the log" in found


def test_entries_stored_twice_are_told_once() -> None:
    twice = [state(1, 0.0, Status.QUEUED, 0), state(2, 0.5, Status.RUNNING, 1), done(3, 1.0, "0", 1, 1)]
    both = stored(5, 1.3, "step", [Step(at="0", name="0", attempt=1, n=1), Step(at="1", name="1", attempt=1, n=2)])
    lists = stored(6, 1.4, "step", [Step(at=str(n), name=str(n), attempt=1, n=n + 1) for n in (2, 3)])
    found = read_run([*twice, done(4, 1.2, "0", 1, 1), both, lists])
    assert found.repeated == 2
    assert found.event_ids == ["1", "2", "3", "5", "6.1", "6"]
    assert set(found.finished) == {"0", "1", "2", "3"}


def test_the_report_stands_between_the_marks_of_a_page(tmp_path: Path) -> None:
    verdict = Verdict(
        totals={"runs": 12, "steps executed": 34, "writes stored twice": 2}, statuses={}, violations=["lost: x"],
        counts={"lost": 1}, stragglers=[],
    )  # fmt: skip
    outcome = Outcome(7, 60.0, Counter({"kill worker": 3}), 0, Counter(), verdict)
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{report.BEGIN}\nold\n{report.END}\n\nafter\n")
    for _ in range(2):
        report.write(outcome, page)
    text = page.read_text()
    assert text.startswith("before\n\n" + report.BEGIN)
    assert text.endswith(report.END + "\n\nafter\n")
    assert "old" not in text
    for row in ("kill worker | 3", "acknowledged runs without a record | 1", "writes stored twice | 2"):
        assert text.count(row) == 1
    assert "1 violations" in text


# -- questions, nodes, forks ------------------------------------------------------------------------------------------


def taken(sequence: int, at: float, id_: str, value: str, attempt: int, n: int) -> Stored:
    answer = Answer(id=id_, value=inline(value))
    return stored(
        sequence, at, "step",
        Step(at="0", name=id_, attempt=attempt, n=n, kind="interrupt", value=Payload(json=msgspec.Raw(encode(answer)))),
    )  # fmt: skip


def inline(value: str) -> Payload:
    return Payload(json=msgspec.Raw(encode(value)))


def checkpoint(sequence: int, at: float, step: int, ran: list[str], n: int, scope: str = "") -> Stored:
    kind = "checkpoint@inner" if scope else "checkpoint"
    made = Checkpoint(
        attempt=1, n=n, source="loop", agent="rounds", step=step, ran=ran, scope=scope, ns="inner" if scope else ""
    )
    return stored(sequence, at, kind, made)


def asked(*sent: Sent, journal: tuple[str, ...] = ("a1",)) -> list[str]:
    """What is wrong with these answers to one question, where the journal has these."""
    people = People(None, 0)  # type: ignore[arg-type]  # it is not opened
    people.sent[Key(RUN, "q")] = list(sent)
    entries = [taken(3 + n, 1.0 + n, "q", value, 1, 1 + n) for n, value in enumerate(journal)]
    events = [state(1, 0.0, Status.QUEUED, 0), state(2, 0.5, Status.RUNNING, 1), *entries]
    return list(talk.wrong_answers(people, {RUN: read_run(events)}))


def test_an_answer_that_was_accepted_and_taken_is_as_it_must_be() -> None:
    assert asked(Sent("a1", "accepted")) == []
    assert asked(Sent("a1", "stored"), Sent("a2", "interrupt_answered")) == []
    assert asked(Sent("a2", "stored"), journal=(NOBODY,)) == []


def test_wrong_answers_are_found() -> None:
    assert "were all accepted" in asked(Sent("a1", "accepted"), Sent("a2", "accepted"))[0]
    assert "was accepted, and a1 was taken" in asked(Sent("a2", "accepted"))[0]
    assert "nobody has sent it" in asked(Sent("a2", "stored"))[0]
    assert "refused as another one" in asked(Sent("a1", "interrupt_answered"))[0]
    assert "refused as invalid_answer" in asked(Sent("a1", "accepted"), Sent("a2", "invalid_answer"))[0]
    assert "taken 2 times" in asked(Sent("a1", "accepted"), journal=("a1", "a1"))[0]


def test_a_result_with_another_answer_than_the_one_taken_is_found() -> None:
    runs = {RUN: read_run([state(1, 0.0, Status.RUNNING, 1), taken(2, 1.0, "q", "a1", 1, 1)])}
    assert list(talk.wrong_results(runs, {RUN: {"answers": {"q": "a1"}}})) == []
    (found,) = talk.wrong_results(runs, {RUN: {"q": "a2"}})
    assert "q is 'a2' in the result" in found


def test_models_refuse_what_is_doubled_or_missing() -> None:
    said = Unordered(["w0", "w1"])
    assert said.wrong(["w1", "w0"]) is None
    assert said.wrong(["w0"])
    assert said.wrong(["w0", "w1", "w1"])
    turns = asked_by_looper({"turns": 4})
    right = {"words": ["0", "1", "2", "3"], "answers": {"q3": "a"}}
    assert turns.wrong(right) is None
    assert turns.wrong(right | {"answers": {}})
    assert turns.wrong(right | {"words": ["0", "1", "2", "2", "3"]})
    edited = {"words": ["0", "1", "2", "3"], "answers": {"q3": "u1"}, "notes": {"q3": "u1"}}
    assert turns.wrong(edited) is None
    assert turns.wrong(edited | {"notes": {}})
    assert turns._replace(notes={"fork": "f"}).wrong(edited)


def nodes(*executions: tuple[str, int, float], agent: str = "rounds") -> list[str]:
    events = [
        state(1, 0.0, Status.RUNNING, 1, agent=agent),
        checkpoint(2, 1.0, 1, ["plan"], 1),
        checkpoint(3, 1.5, 1, ["first"], 2, "3/inner"),
        stored(4, 2.0, "step", Step(at="2/item#0", name="item", attempt=1, n=3, kind="node")),
        checkpoint(5, 4.0, 3, ["inner"], 4),
        state(6, 9.0, Status.COMPLETED, 1, agent=agent),
    ]
    found = [Execution(RUN, node, attempt, BEGAN + at) for node, attempt, at in executions]
    return list(superstep.wrong_nodes(found, {RUN: read_run(events)}))


def test_a_node_that_runs_again_behind_its_checkpoint_or_note_is_found() -> None:
    assert nodes(("plan@1", 1, 0.5), ("item#0@2", 1, 1.2), ("item#1@2", 1, 3.0)) == []
    for node in ("plan@1", "3/inner|first@1", "item#0@2"):
        (found,) = nodes((node, 1, 3.0))
        assert f"node {node}, finished at" in found
    assert nodes(("3/inner|first@1", 1, 3.0), ("item#0@2", 1, 3.0), agent="rounds-exit") == []
    for node in ("plan@1", "item#0@2", "3/inner|first@1"):
        (found,) = nodes((node, 1, 5.0), agent="rounds-exit")
        assert f"node {node}, finished at" in found
    (found,) = nodes(("item#1@2", 1, 2.5), ("item#1@2", 1, 3.0))
    assert "attempt 1 carried node item#1@2 out 2 times" in found


def test_a_fork_that_does_what_is_behind_its_checkpoint_is_found() -> None:
    fork = f"{RUN[:-1]}x"
    record = state(9, 5.0, Status.RUNNING, 1)
    begun = msgspec.structs.replace(decode_record(record.data), forked_from=Fork(run=RUN, checkpoint=2))
    runs = {
        RUN: read_run([state(1, 0.0, Status.RUNNING, 1), checkpoint(2, 1.0, 1, ["plan"], 1)]),
        fork: read_run([stored(9, 5.0, "state", begun)]),
    }

    def wrong(node: str, number: int = 2) -> list[str]:
        executions = [Execution(fork, node, 1, BEGAN + 6)]
        return list(superstep.wrong_forks({fork: (RUN, number)}, executions, [], runs))

    assert wrong("item#0@2") == []
    assert "carried out plan@1" in wrong("plan@1")[0]
    assert "was to begin from 3" in wrong("item#0@2", 3)[0]
