"""The whole cluster as plain processes: `up.py` brings it up and mends it, `down.py` takes it down, nothing stays."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.runtime.nats_mark import ProcessMark
from callboard.runtime.nats_port import is_free
from compose.topology import Ports

ROOT = Path(__file__).resolve().parents[2]
PORTS = 13
PROCESSES = {
    *("nats-1", "nats-2", "nats-3"),
    *("coordinator-1", "coordinator-2"),
    *("worker-1", "worker-2", "worker-3"),
    *("gateway-1", "gateway-2"),
}

pytestmark = [pytest.mark.cluster, pytest.mark.system, pytest.mark.slow]


def free_block() -> int:
    """The first of thirteen ports that lie together and are free."""
    for base in random.sample(range(15000, 31000), 200):
        if all(is_free(port) for port in range(base, base + PORTS)):
            return base
    raise AssertionError("no thirteen free ports together")


def script(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "NATS_URL"}
    command = [sys.executable, str(ROOT / "compose" / f"{name}.py"), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)


def marks(state: Path) -> dict[str, ProcessMark]:
    raw = json.loads((state / "processes.json").read_text())
    return {entry["name"]: ProcessMark(**entry["mark"]) for entry in raw["entries"]}


class Up:
    """A cluster that is up: where its state is, how it was started, what `up` printed."""

    def __init__(self, state: Path, base: int) -> None:
        self.state = state
        self.words = ("--state", str(state), "--base-port", str(base))
        self.ports = Ports.block(base)
        self.first = script("up", *self.words)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    state = tmp_path_factory.mktemp("cluster") / "state"
    try:
        yield Up(state, free_block())
    finally:
        script("down", "--state", str(state))


def test_up_starts_everything_and_says_where(cluster: Up) -> None:
    assert cluster.first.returncode == 0, cluster.first.stderr
    started = marks(cluster.state)
    assert set(started) - {"otel-collector"} == PROCESSES
    assert all(mark.alive for mark in started.values())
    for name, mark in started.items():
        assert re.search(rf"^{name}\s+{mark.pid}\b", cluster.first.stdout, re.MULTILINE)
    for port in cluster.ports.gateways:
        assert f"http://127.0.0.1:{port}" in cluster.first.stdout


def test_the_cluster_carries_out_a_run(cluster: Up) -> None:
    url = re.search(r"^export NATS_URL=(\S+)$", cluster.first.stdout, re.MULTILINE)
    assert url is not None
    callboard = Path(sys.executable).with_name("callboard")
    done = subprocess.run(
        [callboard, "run", "echo", '{"text": "from three replicas"}', "--wait"],
        env=os.environ | {"NATS_URL": url[1], "CALLBOARD_REPLICAS": "3"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "FROM THREE REPLICAS" in done.stdout


def test_up_again_changes_nothing(cluster: Up) -> None:
    before = marks(cluster.state)
    again = script("up", *cluster.words)
    assert again.returncode == 0, again.stderr
    assert marks(cluster.state) == before
    assert again.stdout == cluster.first.stdout


def test_up_on_other_ports_is_refused_while_it_runs(cluster: Up) -> None:
    refused = script("up", "--state", str(cluster.state), "--base-port", str(free_block()))
    assert refused.returncode == 1
    assert "runs on other ports" in refused.stderr


def test_up_starts_again_what_was_killed_and_leaves_the_rest(cluster: Up) -> None:
    before = marks(cluster.state)
    for name in ("worker-2", "nats-3"):
        assert before[name].signal(signal.SIGKILL)
    mended = script("up", *cluster.words)
    assert mended.returncode == 0, mended.stderr
    after = marks(cluster.state)
    assert {name for name in after if after[name] != before[name]} == {"worker-2", "nats-3"}
    assert all(mark.alive for mark in after.values())


def test_down_stops_everything_and_may_be_said_twice(cluster: Up) -> None:
    started = marks(cluster.state)
    down = script("down", "--state", str(cluster.state))
    assert down.returncode == 0, down.stderr
    assert not any(mark.alive for mark in started.values())
    assert "killed" not in down.stdout  # every role ended by itself within its grace time
    again = script("down", "--state", str(cluster.state))
    assert (again.returncode, again.stdout) == (0, "stopped: nothing ran\n")


def test_a_start_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    state = tmp_path / "state"
    failed = script("up", "--state", str(state), "--base-port", str(free_block()), "--module", "no_such_module")
    assert failed.returncode == 1
    assert re.search(r"worker-\d ended with exit code", failed.stderr)
    assert "no_such_module" in failed.stderr
    assert not (state / "processes.json").exists()
    assert script("down", "--state", str(state), "--wipe").returncode == 0
    assert not state.exists()


def test_ports_in_use_are_named_before_anything_starts(tmp_path: Path) -> None:
    base = free_block()
    with socket.create_server(("127.0.0.1", base + 4)):
        failed = script("up", "--state", str(tmp_path / "state"), "--base-port", str(base))
    assert failed.returncode == 1
    assert f"ports in use: {base + 4} (nats-2)" in failed.stderr
    assert not (tmp_path / "state" / "nats-1").exists()


def test_a_wrong_argument_is_a_usage_error() -> None:
    assert script("up", "--base-port", "80").returncode == 2
    assert script("down", "--unknown").returncode == 2
