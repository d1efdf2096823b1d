"""How a process ends: signals, grace time, exit codes, with and without a broker."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.runtime.process import EXIT_GAVE_UP, EXIT_LATE

PROGRAM = Path(__file__).parent / "programs" / "process.py"
NOBODY = "nats://127.0.0.1:1"
pytestmark = pytest.mark.system


class Child:
    """A process under test."""

    def __init__(self, mode: str, url: str) -> None:
        command = [sys.executable, str(PROGRAM), mode, url]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def send(self, number: signal.Signals) -> None:
        self.sent = time.monotonic()
        self.process.send_signal(number)

    def end(self, within_s: float = 10) -> tuple[int, str, str]:
        """Exit code and what it printed."""
        out, err = self.process.communicate(timeout=within_s)
        return self.process.returncode, out, err


Start = Callable[..., Child]


@pytest.fixture
def start() -> Iterator[Start]:
    children: list[Child] = []

    def make(mode: str, url: str = NOBODY) -> Child:
        children.append(Child(mode, url))
        return children[-1]

    yield make
    for child in children:
        if child.process.poll() is None:
            child.process.kill()
            child.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_exits_0(start: Start, nats: ServerProcess, number: signal.Signals) -> None:
    child = start("hosting", nats.url)
    child.wait_ready()
    child.send(number)
    code, out, err = child.end()
    assert (code, out) == (0, "stopped\n")
    assert "Traceback" not in err
    assert time.monotonic() - child.sent < 2


def test_the_broker_may_be_gone(start: Start, nats: ServerProcess) -> None:
    child = start("hosting", nats.url)
    child.wait_ready()
    nats.kill()
    try:
        time.sleep(0.3)
        child.send(signal.SIGTERM)
        code, out, err = child.end()
    finally:
        nats.start()
    assert (code, out) == (0, "stopped\n")
    assert "Traceback" not in err
    assert time.monotonic() - child.sent < 6


def test_a_signal_ends_a_start_that_waits_for_the_broker(start: Start) -> None:
    child = start("waiting", NOBODY)
    child.wait_ready()
    time.sleep(0.5)
    assert child.process.poll() is None, "it goes on trying"
    child.send(signal.SIGTERM)
    code, _, err = child.end()
    assert code == 0
    assert "Traceback" not in err
    assert time.monotonic() - child.sent < 2


def test_a_second_signal_ends_it_at_once(start: Start) -> None:
    child = start("stubborn")
    child.wait_ready()
    child.send(signal.SIGTERM)
    time.sleep(0.3)
    child.send(signal.SIGINT)
    code, _, err = child.end()
    assert code == 128 + signal.SIGINT
    assert "ending at once" in err
    assert time.monotonic() - child.sent < 0.5


@pytest.mark.parametrize("mode", ["stubborn", "blocked"])
def test_what_does_not_end_in_time_is_left(start: Start, mode: str) -> None:
    child = start(mode)
    child.wait_ready()
    child.send(signal.SIGTERM)
    code, _, err = child.end()
    assert code == EXIT_LATE
    assert "leaving" in err
    assert 2 < time.monotonic() - child.sent < 6


def test_an_actor_that_is_given_up_ends_its_process(start: Start, nats: ServerProcess) -> None:
    code, out, err = start("giving-up", nats.url).end()
    assert code == EXIT_GAVE_UP
    assert out.endswith("stopped\n")
    assert "given up" in err


def test_an_error_nobody_handled_is_logged(start: Start) -> None:
    code, _, err = start("failing").end()
    assert code == 1
    assert "ValueError: a defect" in err


def test_a_broker_that_is_not_there_is_told_without_a_trace(start: Start) -> None:
    code, _, err = start("hosting", NOBODY).end(20)
    assert code == 1
    assert "no NATS server answers" in err
    assert "Traceback" not in err


def test_the_main_function_chooses_the_exit_code(start: Start) -> None:
    assert start("code").end()[0] == 42
