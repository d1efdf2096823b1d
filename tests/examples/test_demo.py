"""The demo as a whole, over real processes, and what its verdict would find if something went wrong."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard import ChildFailed, Status
from callboard.store.log import decode_record
from callboard.topics.messages import ErrorInfo, Payload, RunRecord, Step, encode
from callboard.topics.reads import Stored
from examples.audit import Review, list_modules, reconcile, review_module, to_json, to_markdown
from examples.audit.agents import _settled
from examples.audit.demo import outlet
from examples.audit.demo.board import Board
from examples.audit.demo.errors import DemoError
from examples.audit.demo.evidence import Evidence
from examples.audit.demo.gateway import SentEvent
from examples.audit.demo.verdict import checks, figures
from examples.audit.executions import Execution, counted, executions

ROOT = Path(__file__).parents[2]
WITHIN_S = 100
HALF = "def f{n}(x, y=[]):\n    try:\n        return x / y[{n}]\n    except:\n        return eval(x)\n\n"


# -- the demo ---------------------------------------------------------------------------------------------------


def code_base(folder: Path, modules: int, functions: int) -> Path:
    """A target that takes a while: large enough modules to be killed in the midst of."""
    folder.mkdir()
    for number in range(modules):
        (folder / f"m{number:02}.py").write_text("".join(HALF.replace("{n}", str(n)) for n in range(functions)))
    return folder


def environment(tmp: Path) -> dict[str, str]:
    """The demo's folder for temporary files is the test's, so that what it leaves there is seen."""
    return {**os.environ, "TMPDIR": str(tmp), "NATS_URL": "nats://127.0.0.1:1", "CALLBOARD_NAMESPACE": "elsewhere"}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "examples.audit", *words]


def demo(*words: str, tmp: Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    env = environment(tmp) | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command(*words), cwd=cwd, env=env, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )


def processes_in(folder: Path) -> list[str]:
    """Processes that work in the folder or name it; the roles of a demo and its nats-server do."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            place = str((process / "cwd").readlink())
        except OSError:
            continue
        if int(process.name) != os.getpid() and (str(folder) in words or place.startswith(str(folder))):
            found.append(f"{process.name} {words}")
    return found


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


@pytest.mark.system
@pytest.mark.crash
@pytest.mark.slow
@linux
def test_the_demo_audits_kills_a_worker_and_loses_nothing(tmp_path: Path) -> None:
    target, out, tmp = code_base(tmp_path / "target", 24, 60), tmp_path / "out", tmp_path / "tmp"
    tmp.mkdir()
    before = snapshot(target)
    done = demo(str(target), "--out", str(out), tmp=tmp)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert figure(done.stdout, "modules") == 24
    assert figure(done.stdout, "runs") == 25
    assert figure(done.stdout, "steps") == 24 * 5 + 2
    assert figure(done.stdout, "steps executed twice") == 0
    assert figure(done.stdout, "runs lost") == 0
    assert re.search(r"SIGKILL worker [12] \(pid \d+\), which holds \d runs?", done.stdout), done.stdout
    assert re.search(r"moved: m\d\d: worker [12] → worker [12], attempt 2: completed", done.stdout), done.stdout
    assert "\x1b" not in done.stdout
    assert same_as_in_one_process(target, out)
    assert snapshot(target) == before
    assert sorted(path.name for path in out.iterdir()) == ["report.json", "report.md"]
    assert list(tmp.iterdir()) == []
    assert processes_in(tmp) == []


def figure(printed: str, label: str) -> int:
    found = re.search(rf"^{label} +([\d,]+) ", printed, re.MULTILINE)
    assert found is not None, printed
    return int(found[1].replace(",", ""))


def same_as_in_one_process(target: Path, out: Path) -> bool:
    """Whether the report is the one that the same analysis gives without any of Callboard."""
    listing = list_modules(str(target))
    report = reconcile(listing.target, [review_module(task) for task in listing.tasks], listing.skipped)
    assert json.loads((out / "report.json").read_text()) == json.loads(to_json(report))
    assert (out / "report.md").read_text() == to_markdown(report)
    return True


@pytest.mark.system
@pytest.mark.crash
@pytest.mark.slow
@linux
def test_in_a_terminal_the_runs_are_a_live_tree(tmp_path: Path) -> None:
    target, tmp = code_base(tmp_path / "target", 16, 150), tmp_path / "tmp"
    tmp.mkdir()
    code, shown = in_terminal(command(str(target), "--out", str(tmp_path / "out")), environment(tmp))
    assert code == 0, shown
    assert "├── worker 1  pid " in shown
    assert "└── worker 2  pid " in shown
    assert re.search(r"m\d\d +━+╺?━* [1-4]/5 (read|parsed|measured|defects found)", shown), shown
    assert re.search(r"SIGKILL at [\d.]+ s", shown)
    assert "moved on from the killed worker" in shown
    assert "16/16 reviews" in shown
    assert "steps executed twice" in shown
    assert list(tmp.iterdir()) == []


def in_terminal(words: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
    """Exit code and what a terminal of 100 columns was sent, without colours."""
    ours, theirs = pty.openpty()
    env = {**env, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "50"}
    process = subprocess.Popen(words, cwd=ROOT, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    data = b""
    try:
        while chunk := os.read(ours, 65536):
            data += chunk
    except OSError:  # Linux says so when the other side is closed
        pass
    finally:
        os.close(ours)
    return process.wait(WITHIN_S), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode(errors="replace"))


@pytest.mark.system
@pytest.mark.slow
@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    target, out, tmp = code_base(tmp_path / "target", 60, 60), tmp_path / "out", tmp_path / "tmp"
    tmp.mkdir()
    process = subprocess.Popen(
        command(str(target), "--out", str(out)), cwd=ROOT, env=environment(tmp), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    while "reviews (" not in process.stdout.readline():
        assert process.poll() is None
    time.sleep(0.5)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert said == f"demo: stopped by signal {int(number)}; nothing is left running\n"
    assert list(tmp.iterdir()) == []
    assert processes_in(tmp) == []
    assert not out.exists()


@pytest.mark.system
@pytest.mark.slow
@linux
def test_when_a_role_dies_by_itself_the_demo_says_so_and_keeps_the_logs(tmp_path: Path) -> None:
    target, out, tmp = code_base(tmp_path / "target", 60, 60), tmp_path / "out", tmp_path / "tmp"
    tmp.mkdir()
    process = subprocess.Popen(
        command(str(target), "--out", str(out)), cwd=ROOT, env=environment(tmp), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    while "reviews (" not in process.stdout.readline():
        assert process.poll() is None
    coordinator = next(int(line.split()[0]) for line in processes_in(tmp) if "callboard.cli coordinator" in line)
    os.kill(coordinator, signal.SIGKILL)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "coordinator ended with exit code -9" in said
    assert "Traceback" not in said
    assert (out / "logs" / "coordinator.log").exists()
    assert list(tmp.iterdir()) == []
    assert processes_in(tmp) == []


@pytest.mark.parametrize(("make", "why"), [(None, "no such file or folder"), ("empty", "holds no Python files")])
def test_a_target_that_cannot_be_audited_is_one_line_and_starts_nothing(
    tmp_path: Path, make: str | None, why: str
) -> None:
    target = tmp_path / "target"
    if make:
        target.mkdir()
    done = demo(str(target), "--out", str(tmp_path / "out"), tmp=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"demo: cannot audit '{target}': ")
    assert why in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_report_never_lies_in_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = code_base(tmp_path / "target", 1, 1)
    monkeypatch.chdir(target)
    chosen = outlet.choose(None, ".")
    assert not chosen.resolve().is_relative_to(target)
    chosen.rmdir()
    with pytest.raises(DemoError, match="only read"):
        outlet.choose(Path("report"), str(target))
    assert sorted(path.name for path in target.iterdir()) == ["m00.py"]
    monkeypatch.chdir(tmp_path)
    assert outlet.choose(None, "target") == Path(".callboard") / "demo"


# -- the board --------------------------------------------------------------------------------------------------

NOW = datetime(2025, 1, 1, tzinfo=UTC)
KILLED = NOW + timedelta(seconds=10)


def record(run: str, status: Status, **more: Any) -> RunRecord:
    agent = "reviewer" if "~" in run else "lead"
    fields: dict[str, Any] = {"created_at": NOW, "updated_at": NOW, "input": Payload(json=msgspec.Raw(b"null"))}
    return RunRecord(id=run, root="root", agent=agent, status=status, **fields | more)


def sent(run: str, kind: str, entry: bytes) -> SentEvent:
    return SentEvent("1", kind, f'{{"run":"{run}","sequence":1,"kind":"{kind}","entry":{entry.decode()}}}')


def test_the_board_follows_a_run_to_another_worker() -> None:
    board = Board("root", 1)
    metadata = {"module": "pkg.mod"}
    progress = (
        b'{"at":"1","attempt":1,"n":2,"type":"progress","data":{"json":{"current":2,"total":5,"message":"parsed"}}}'
    )
    states = [
        record("root~a", Status.RUNNING, worker="w1", attempt=1, metadata=metadata),
        record("root~a", Status.QUEUED, attempt=1, losses=1, metadata=metadata),
        record("root~a", Status.RUNNING, worker="w2", attempt=2, losses=1, metadata=metadata),
        record("root~a", Status.COMPLETED, attempt=2, losses=1, metadata=metadata),
    ]
    board.apply(sent("root~a", "state", encode(states[0])))
    board.apply(sent("root~a", "custom", progress))
    row = board.rows["root~a"]
    assert (row.module, row.current, row.total, row.message) == ("pkg.mod", 2, 5, "parsed")
    assert board.running("w1") == [row]
    assert board.moved == []
    board.apply(sent("root~a", "state", encode(states[1])))
    assert board.moved == [row]
    assert board.running() == []
    board.apply(sent("root~a", "state", encode(states[2])))
    assert (board.running("w2"), row.lost_by) == ([row], ["w1"])
    board.apply(sent("root~a", "state", encode(states[3])))
    assert (board.ended, row.current) == (1, 5)


# -- the verdict ------------------------------------------------------------------------------------------------


def stored(run: str, kind: str, body: bytes) -> Stored:
    return Stored(f"cb.run.root.{run}.{kind}", 1, body, None, "")


def step(run: str, at: str, name: str, attempt: int = 1, n: int = 1, **more: Any) -> Stored:
    return stored(run, "step", encode(Step(at=at, name=name, attempt=attempt, n=n, **more)))


def sound() -> Evidence:
    """A lead with one child, which moved from w1 to w2 after its first step."""
    found = Evidence("root")
    states = [
        record("root", Status.RUNNING, worker="w2", attempt=1),
        record("root~a", Status.RUNNING, worker="w1", attempt=1),
        record("root~a", Status.QUEUED, attempt=1, losses=1, updated_at=KILLED + timedelta(seconds=2)),
        record("root~a", Status.RUNNING, worker="w2", attempt=2, losses=1),
        record("root~a", Status.COMPLETED, attempt=2, losses=1),
        record("root", Status.COMPLETED, attempt=1),
    ]
    for state in states:
        found.add(stored(state.id, "state", encode(state)))
    found.add(step("root", "1", "call:reviewer", kind="child", child="root~a"))
    found.add(step("root~a", "0", "read", n=1))
    found.add(step("root~a", "0", "read", n=1))  # the same write, stored twice after a lost acknowledgement
    found.add(step("root~a", "1", "parse", n=2, status="started"))
    found.add(step("root~a", "1", "parse", attempt=2, n=1))
    found.executions = [
        Execution("root~a", 1, "read", 1), Execution("root~a", 1, "parse", 1), Execution("root~a", 2, "parse", 2),
    ]  # fmt: skip
    return found


def broken(found: Evidence) -> set[str]:
    counted_ = figures(found, "w1", KILLED)
    held = checks(found, counted_, {"modules": 1}, 1, {})
    return {check.claim for check in held if not check.holds} - {"the report is as the log has it"}


def test_what_happened_is_counted() -> None:
    found = figures(sound(), "w1", KILLED)
    assert (found.runs, found.steps, found.twice, found.lost) == (2, 2, 0, 0)
    assert (found.begun, found.unfinished) == (3, 1)
    assert (found.moved, found.seen_lost_s) == (("root~a",), 2.0)
    assert broken(sound()) == set()
    assert figures(sound(), "", KILLED).moved == ()
    assert figures(sound(), "w2", KILLED).moved == ()


def test_a_second_result_is_found() -> None:
    found = sound()
    found.add(step("root~a", "0", "read", attempt=2, n=7))
    assert figures(found, "w1", KILLED).twice == 1
    assert broken(found) == {"no step has two recorded results"}


def test_an_execution_after_the_result_is_found_though_the_log_does_not_show_it() -> None:
    found = sound()
    found.executions.append(Execution("root~a", 2, "read", 2))
    assert figures(found, "w1", KILLED).twice == 1
    assert broken(found) == {"no recorded step was executed again"}


def test_two_executions_in_one_attempt_are_found() -> None:
    found = sound()
    found.executions.append(Execution("root~a", 2, "parse", 2))
    assert broken(found) == {"no attempt executed a step twice"}


def test_a_child_without_a_log_is_lost() -> None:
    found = sound()
    found.add(step("root", "2", "call:reviewer", n=9, kind="child", child="root~b"))
    assert figures(found, "w1", KILLED).lost == 1
    assert "every run that was started has exactly one outcome" in broken(found)


@pytest.mark.parametrize("after", [Status.COMPLETED, Status.FAILED, Status.RUNNING])
def test_a_state_after_the_outcome_is_found(after: Status) -> None:
    found = sound()
    found.add(stored("root~a", "state", encode(record("root~a", after))))
    assert "every run that was started has exactly one outcome" in broken(found)


def test_a_failed_run_is_found() -> None:
    found = sound()
    found.states["root~a"][-1] = decode_record(encode(record("root~a", Status.FAILED, reason="no good")))
    assert broken(found) == {"every run is completed"}


# -- executions, and the lead -------------------------------------------------------------------------------------


def test_executions_are_noted_only_where_a_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "executions.jsonl"

    def double(number: int) -> int:
        return 2 * number

    named = counted("twofold", double)
    assert (named.__name__, named(2)) == ("twofold", 4)
    monkeypatch.setenv("AUDIT_EXECUTIONS", str(file))
    assert named(3) == 6  # outside of a run there is nothing to note
    assert executions(file) == []
    file.write_text(json.dumps(asdict(Execution("r", 1, "s", 9))) + "\n")
    assert executions(file) == [Execution("r", 1, "s", 9)]


def test_a_reviewer_that_failed_is_a_line_of_the_report(tmp_path: Path) -> None:
    listing = list_modules(str(code_base(tmp_path / "target", 3, 1)))
    good = [review_module(task) for task in listing.tasks]
    lost = ChildFailed("root~b", "reviewer", Status.TIMED_OUT, ErrorInfo(code="timed_out", message="took too long"))
    reviews: list[Review] = _settled(listing, [good[0], lost, good[2]])
    assert [review.error for review in reviews] == [None, "could not be reviewed: took too long", None]
    report = reconcile(listing.target, reviews)
    assert (report.figures.modules, report.figures.failed) == (3, 1)
    assert "m01.py` could not be reviewed: took too long" in to_markdown(report)
    with pytest.raises(RuntimeError):
        _settled(listing, [good[0], RuntimeError("no failure of a child"), good[2]])
