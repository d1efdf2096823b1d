"""`callboard check`: exit codes, what it prints, and that its JSON stays as it is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from callboard.actors.audit import CATALOG, Finding, Report
from callboard.cli.check import _tell
from callboard.cli.console import Output
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.ids import new_run_id, new_token
from callboard.topics.messages import Status
from callboard.topics.streams import ensure_streams
from tests.actors.auditing import Forger

from .conftest import Call, Installation
from .programs import values

Q, R, C = Status.QUEUED, Status.RUNNING, Status.COMPLETED
FIELDS = {"code", "severity", "found", "expected", "run", "sequence", "repair", "mended"}
REPORT = {
    "clean", "sequence", "events", "runs", "live", "tasks", "commands", "dead_letters", "truncated", "projection",
    "counts", "findings",
}  # fmt: skip


def forged(installation: Installation, work: Any, namespace: str | None = None) -> None:
    """Has a forger write to the installation's log, or to that of a namespace of its own."""

    async def whole() -> None:
        settings = BrokerSettings(
            nats_url=installation.env["NATS_URL"], namespace=namespace or installation.env["CALLBOARD_NAMESPACE"]
        )
        bus = await Bus.connect(settings)
        await ensure_streams(bus, settings)
        made: Coroutine[Any, Any, Any] = work(Forger(bus))
        await made
        await bus.close()

    asyncio.run(whole())


@pytest.fixture
def other() -> str:
    """A namespace where nothing runs."""
    return f"t{new_token(8)}"


def test_a_system_that_is_well(cli: Call, installation: Installation) -> None:
    for n in range(3):
        assert cli("run", "greeter", f'"{n}"').returncode == 0
    done = cli("check")
    assert done.returncode == 0, done.stdout
    assert "all invariants hold" in done.stdout
    assert "INBOX: 0 tasks" in done.stdout


def test_findings_are_told_with_what_must_hold(cli: Call, installation: Installation, other: str) -> None:
    broken, lost = str(new_run_id()), str(new_run_id())

    async def work(forger: Forger) -> None:
        await forger.path(broken, Q, C)
        await forger.state(lost, Q)

    forged(installation, work, other)
    done = cli("check", "--wait", "0.2", "--namespace", other)
    assert done.returncode == 1
    assert f"path_illegal {broken}: queued (revision 1) → completed (revision 2)" in done.stdout
    assert f"work_missing {lost}" in done.stdout
    assert f"--repair publishes {other}.work.reviewer" in done.stdout
    assert "2 findings" in done.stdout


def test_an_error_is_not_lost_among_notes(capsys: pytest.CaptureFixture[str]) -> None:
    notes = [
        Finding(code="timer_left", severity="note", run=f"r{n}", sequence=n, found="timers", expected="none",
                repair=f"cb.timer.r{n}.*")
        for n in range(300)
    ]  # fmt: skip
    error = Finding(code="step_doubled", severity="error", run="x", sequence=1, found="twice", expected="once")
    report = Report(
        clean=False, sequence=1, events=1, runs=1, live=0, tasks=0, commands=0, dead_letters=0, truncated=False,
        projection=None, counts={"timer_left": 300, "step_doubled": 1}, findings=[*notes, error],
    )  # fmt: skip
    _tell(Output(False), report)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("error      step_doubled x")
    assert "takes away cb.timer.r0.*" in lines[4]
    assert sum("timer_left r" in line for line in lines) == 20
    assert "and more, see --json: timer_left 280" in lines
    assert lines[-1] == "1 finding"
    mended = [replace(one, mended=True) for one in notes]
    _tell(Output(False), replace(report, findings=[*mended, error]))
    assert capsys.readouterr().out.splitlines()[-1] == "1 finding, 300 mended", (
        "a note that was mended is no finding less"
    )


def test_json_is_one_value_with_stable_names(cli: Call, installation: Installation, other: str) -> None:
    run = str(new_run_id())

    async def work(forger: Forger) -> None:
        await forger.state(run, Q)

    forged(installation, work, other)
    done = cli("check", "--json", "--wait", "0", "--namespace", other)
    assert done.returncode == 1
    (report,) = values(done)
    assert set(report) == REPORT == set(Report.__struct_fields__)
    (finding,) = report["findings"]
    assert set(finding) == FIELDS == set(Finding.__struct_fields__)
    assert (finding["code"], finding["run"], finding["mended"]) == ("work_missing", run, None)
    assert report["counts"] == {"work_missing": 1}
    assert report["clean"] is False


def test_repair_mends(cli: Call, installation: Installation) -> None:
    gone = str(new_run_id())

    async def work(forger: Forger) -> None:
        await forger.path(gone, Q, R, worker="w1", lease=10**6, agent="sleeper")

    forged(installation, work)
    done = cli("check", "--wait", "0.2", "--repair", "--json")
    (report,) = values(done)
    assert done.returncode == 0, report
    assert [(one["code"], one["run"], one["mended"]) for one in report["findings"]] == [("work_unclaimed", gone, True)]
    assert cli("check", "--wait", "5").returncode == 0
    text = cli("check", "--repair").stdout
    assert "all invariants hold" in text


def test_accepted_runs_are_expected(cli: Call, installation: Installation, tmp_path: Path) -> None:
    there, missing = cli("run", "greeter", '"x"').stdout.strip().splitlines()[-1], str(new_run_id())
    ids = tmp_path / "ids"
    ids.write_text(f"{there}\n\n{missing}\n")
    (report,) = values(cli("check", "--json", "--wait", "0.2", "--expect", str(ids)))
    assert [(one["code"], one["run"]) for one in report["findings"]] == [("run_missing", missing)]
    assert cli("check", "--expect", "-", text=f"{there}\n").returncode == 0
    assert cli("check", "--expect", "-", text="no id\n").returncode == 2
    assert cli("check", "--expect", str(tmp_path / "none")).returncode == 2


def test_a_projection_is_compared_when_it_is_there(cli: Call, installation: Installation, tmp_path: Path) -> None:
    assert (installation.folder / ".callboard" / "projection.db").exists() is False
    assert "projection: none compared" in cli("check").stdout
    file = tmp_path / "projection.db"
    assert cli("projector", "--rebuild", "--once", "--projection", str(file)).returncode == 0
    done = cli("check", "--projection", str(file))
    assert done.returncode == 0, done.stdout
    assert f"projection: {file}" in done.stdout
    assert cli("check", "--projection", str(tmp_path / "none.db")).returncode == 3


def test_blobs_are_looked_for_when_asked(cli: Call) -> None:
    assert cli("check", "--blobs").returncode == 0


def test_nothing_there_to_check(cli: Call, other: str) -> None:
    done = cli("check", "--namespace", other)
    assert done.returncode == 3
    assert "has no streams" in done.stderr
    assert cli("check", "--nats-url", "nats://127.0.0.1:1").returncode == 4
    assert cli("check", "--wait", "-1").returncode == 2


def test_every_code_is_explained() -> None:
    page = (Path(__file__).parents[2] / "docs" / "check.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (error|warning|note) \|", page, flags=re.MULTILINE)
    assert len(rows) == len(CATALOG)
    assert dict(rows) == {code: rule.severity for code, rule in CATALOG.items()}
