"""The verdict sees what must not be: histories and executions made up to be wrong."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from callboard.topics.messages import NOTHING, RunRecord, Status, Step, encode
from callboard.topics.reads import Stored
from tests.chaos import report
from tests.chaos.history import Execution, Executions, read_run
from tests.chaos.run import Outcome
from tests.chaos.verdict import Verdict

RUN = "0s7sj8rrxg04qn3wrfzrb4ag"
BEGAN = 1_800_000_000.0


def stored(sequence: int, at: float, kind: str, body: Any) -> Stored:
    stamp = datetime.fromtimestamp(BEGAN + at, UTC).isoformat().replace("+00:00", "Z")
    return Stored(f"cb.run.{RUN}.{RUN}.{kind}", sequence, encode(body), {}, stamp)


def state(sequence: int, at: float, status: Status, attempt: int, losses: int = 0) -> Stored:
    now = datetime.fromtimestamp(BEGAN + at, UTC)
    record = RunRecord(
        id=RUN, root=RUN, agent="task", status=status, input=NOTHING, created_at=now, updated_at=now, attempt=attempt,
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
