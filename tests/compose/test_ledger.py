"""The ledger stops what it started: not less, and never a stranger that was given an old pid."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from callboard.runtime.nats_mark import ProcessMark
from compose.ledger import ClusterError, Entry, Ledger
from compose.topology import Process

IGNORES_SIGTERM = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(tmp_path / "state")
    with ledger.locked():
        yield ledger
        ledger.stop(ledger.entries, 0)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def start(
    ledger: Ledger, name: str, code: str = "import time; time.sleep(60)"
) -> tuple[Entry, subprocess.Popen[bytes]]:
    return ledger.start(Process(name, "worker", (sys.executable, "-c", code), {"GIVEN": "1"}))


def test_what_is_started_is_found_again_and_stopped(ledger: Ledger) -> None:
    entry, child = start(ledger, "worker-1")
    again = Ledger(ledger.folder)
    again._read()
    assert again.alive() == {"worker-1": entry}
    assert ledger.stop(ledger.entries, 10) == []
    assert child.wait() == -signal.SIGTERM
    assert ledger.alive() == {}
    assert not ledger.file.exists()


def test_a_stranger_with_an_old_pid_is_left_alone(ledger: Ledger, stranger: subprocess.Popen[bytes]) -> None:
    mark = ProcessMark.of(stranger.pid)
    assert mark is not None
    old = replace(mark, started="an earlier process")
    ledger.entries = [Entry("worker-1", "worker", old, "", "")]
    assert ledger.alive() == {}
    assert ledger.stop(ledger.entries, 1) == []
    assert stranger.poll() is None
    assert ledger.entries == []


def test_what_does_not_stop_in_its_grace_time_is_killed_and_named(ledger: Ledger) -> None:
    entry, child = start(ledger, "worker-1", IGNORES_SIGTERM)
    while "up" not in Path(entry.log).read_text():
        assert child.poll() is None
    assert ledger.stop(ledger.entries, 0.2) == ["worker-1"]
    assert child.wait() == -signal.SIGKILL


def test_a_process_gets_no_credentials_of_the_terminal(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_TOKEN", "t0p-s3cret")
    monkeypatch.setenv("NATS_URL", "nats://elsewhere")
    entry, child = start(ledger, "worker-1", "import os; print(sorted(os.environ), os.getcwd())")
    assert child.wait() == 0
    printed = Path(entry.log).read_text()
    assert "'GIVEN'" in printed
    assert "NATS_TOKEN" not in printed
    assert "NATS_URL" not in printed
    assert str(ledger.folder / "worker-1") in printed


def test_a_program_that_is_missing_is_named(ledger: Ledger) -> None:
    with pytest.raises(ClusterError, match="worker-1 cannot be started"):
        ledger.start(Process("worker-1", "worker", ("/nonexistent/program",), {}))
    assert ledger.entries == []


def test_two_at_once_are_refused(ledger: Ledger) -> None:
    with pytest.raises(ClusterError, match="another up or down"), Ledger(ledger.folder).locked():
        pass


def test_a_ledger_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "processes.json").write_text('{"entries": [{"name"')
    with pytest.raises(ClusterError, match="cannot be read"), Ledger(tmp_path).locked():
        pass
    os.truncate(tmp_path / "processes.json", 0)
    with pytest.raises(ClusterError, match="cannot be read"), Ledger(tmp_path).locked():
        pass
