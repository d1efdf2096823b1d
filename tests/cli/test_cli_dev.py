"""`callboard dev`: everything in one command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from callboard.runtime.nats_server import ServerProcess

from .programs import AGENTS, Program, call, environment, program

ENV = environment()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents.py").write_text(AGENTS)
    return tmp_path


def eventually(condition: object, within_s: float, what: str) -> None:
    assert callable(condition)
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.05)


def descendants(pid: int) -> set[int]:
    """All processes below `pid`."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in listed.splitlines())}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def worker_pid(one: Program) -> int:
    for pid in descendants(one.process.pid):
        if " worker " in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "):
            return pid
    raise AssertionError(one.log)


def test_dev_runs_reloads_and_ends_in_order(folder: Path) -> None:
    with program("dev", "agents.py", "--port", "0", env=ENV, cwd=folder) as one:
        url = one.says("gateway    http").split()[1]
        with urllib.request.urlopen(f"{url}/healthz", timeout=5) as answer:
            assert answer.status == 200
        one.says("serves agents greeter, sleeper")

        # the other commands find it by the folder
        done = call("run", "greeter", '"Ada"', "--wait", env=ENV, cwd=folder)
        assert (done.returncode, done.stdout) == (0, '"Good evening, Ada."\n'), done.stderr
        published = call("publish", "words", '"x"', env=ENV, cwd=folder)
        assert published.returncode == 0

        # a change is taken up
        (folder / "agents.py").write_text(AGENTS.replace("Good evening", "Good morning"))
        one.says("agents.py changed")
        eventually(lambda: sum("serves agents" in line for line in one.err) == 2, 20, "the worker is back")
        done = call("run", "greeter", '"Ada"', "--wait", env=ENV, cwd=folder)
        assert done.stdout == '"Good morning, Ada."\n'

        # a mistake is shown, and the next change mends it
        (folder / "agents.py").write_text("def broken(:\n")
        one.says("waits for a change")
        one.says("SyntaxError")
        (folder / "agents.py").write_text(AGENTS)
        eventually(lambda: sum("serves agents" in line for line in one.err) == 3, 20, "the worker is back again")

        # a killed worker is started again
        os.kill(worker_pid(one), signal.SIGKILL)
        eventually(lambda: sum("serves agents" in line for line in one.err) == 4, 20, "the worker is back once more")

        record = json.loads((folder / ".callboard" / "dev.json").read_text())
        assert record["gateway_url"] == url
        below = descendants(one.process.pid)
        assert len(below) >= 4
        begin = time.monotonic()
        assert one.end(signal.SIGINT) == 0
        assert time.monotonic() - begin < 8
        assert not [pid for pid in below if alive(pid)]
        assert not (folder / ".callboard" / "dev.json").exists()
        assert "Traceback" not in one.log

    # what was done is still there the next time
    with program("dev", "agents.py", "--port", "0", "--no-reload", env=ENV, cwd=folder) as again:
        again.says("gateway    http")
        listed = call("runs", "ls", "--json", "--agent", "greeter", env=ENV, cwd=folder).stdout.splitlines()
        assert len(listed) == 2
        below = descendants(again.process.pid)
        again.process.kill()  # nothing outlives it
        again.wait()
        eventually(lambda: not [pid for pid in below if alive(pid)], 15, "all children have ended")


def test_dev_uses_a_server_that_is_given(nats: ServerProcess, folder: Path) -> None:
    env = ENV | {"NATS_URL": nats.url, "CALLBOARD_NAMESPACE": "given"}
    with program("dev", "agents", "--port", "0", env=env, cwd=folder) as one:
        assert nats.url in one.says("NATS  ")
        one.says("serves agents")
        assert not (folder / ".callboard" / "nats").exists()
        assert call("run", "greeter", '"Ada"', "--wait", env=env, cwd=folder).returncode == 0
        assert one.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("target", ["missing.py", "missing_module"])
def test_dev_without_its_file_starts_nothing(folder: Path, target: str) -> None:
    done = call("dev", target, env=ENV, cwd=folder)
    assert done.returncode == 2
    assert "[module_unusable]" in done.stderr
    assert not (folder / ".callboard").exists()


def test_dev_says_when_its_folder_or_its_port_is_in_use(folder: Path) -> None:
    with program("dev", "agents.py", "--port", "0", "--no-reload", env=ENV, cwd=folder) as one:
        port = one.says("gateway    http").rpartition(":")[2]
        twice = call("dev", "agents.py", env=ENV, cwd=folder, within_s=40)
        assert twice.returncode == 4
        assert "[state_folder_in_use]" in twice.stderr
        taken = call("dev", "agents.py", "--state", "other", "--port", port, env=ENV, cwd=folder, within_s=40)
        assert taken.returncode == 2
        assert "choose another port" in taken.stderr
        assert one.end(signal.SIGINT) == 0
