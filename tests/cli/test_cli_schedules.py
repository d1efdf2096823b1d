"""`callboard schedules`, and `--at`, against a coordinator and a worker that are processes."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from .conftest import Call
from .programs import values


def shown(cli: Call, name: str) -> dict[str, Any]:
    found: dict[str, Any] = values(cli("schedules", "show", name, "--json"))[0]
    return found


def test_a_schedule_from_its_beginning_to_its_end(cli: Call) -> None:
    done = cli("schedules", "add", "greet", '"Ada"', "--every", "1s", "--agent", "greeter", "--metadata", "team=x")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("greet fires next at ")
    deadline = time.monotonic() + 15
    while (last := shown(cli, "greet")["last"]) is None or last["status"] != "completed":
        assert time.monotonic() < deadline, last
        time.sleep(0.1)
    run = values(cli("runs", "show", last["run"], "--json"))[0]
    assert run["metadata"]["schedule"] == "greet"
    assert run["metadata"]["team"] == "x"
    listed = cli("schedules", "ls")
    assert "every 1 s" in listed.stdout
    assert "agent greeter" in listed.stdout
    assert cli("schedules", "pause", "greet").stdout == "greet is paused\n"
    assert "paused" in cli("schedules", "ls").stdout
    text = cli("schedules", "show", "greet").stdout
    assert '"Ada"' in text
    assert "paused" in text
    assert cli("schedules", "resume", "greet").stdout.startswith("greet fires next at ")
    assert cli("schedules", "rm", "greet").stdout == "greet removed\n"
    assert cli("schedules", "show", "greet").returncode == 3
    assert "greet" not in cli("schedules", "ls").stdout


def test_replacing_needs_its_word(cli: Call) -> None:
    words = ("schedules", "add", "twice", "--cron", "0 0 9 * * mon-fri", "--zone", "Europe/Berlin", "--topic", "t")
    assert cli(*words).returncode == 0
    again = cli(*words)
    assert (again.returncode, "[conflict]" in again.stderr) == (5, True)
    assert cli(*words, "--replace", "--missed", "skip", "--json").returncode == 0
    found = shown(cli, "twice")
    assert (found["cron"], found["zone"], found["missed"]) == ("0 0 9 * * mon-fri", "Europe/Berlin", "skip")
    assert "token" not in found
    assert values(cli("schedules", "rm", "twice", "--json")) == [{"name": "twice"}]


def test_once_at_a_time(cli: Call) -> None:
    assert cli("schedules", "add", "once", '"Bob"', "--at", "1s", "--agent", "greeter").returncode == 0
    deadline = time.monotonic() + 15
    while shown(cli, "once")["last"] is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert shown(cli, "once")["next"] is None
    cli("schedules", "rm", "once")


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (("--cron", "0 9 * * *", "--agent", "a"), "5 fields"),
        (("--every", "soon", "--agent", "a"), "duration"),
        (("--at", "soon", "--agent", "a"), "no time"),
        (("--at", "2020-01-01", "--agent", "a"), "past"),
        (("--agent", "a"), "exactly one of"),
        (("--every", "5m"), "exactly one of"),
    ],
)
def test_what_cannot_be_is_refused(cli: Call, words: tuple[str, ...], word: str) -> None:
    done = cli("schedules", "add", "wrong", *words)
    assert done.returncode == 2
    assert word in done.stderr


def test_delayed_work(cli: Call) -> None:
    moment = (datetime.now(UTC) + timedelta(seconds=1.5)).isoformat()
    run = ""
    for words in (("run", "greeter", '"Ada"', "--at", moment), ("run", "greeter", '"Ada"', "--at", "60s")):
        run = cli(*words).stdout.strip()
        record = values(cli("runs", "show", run, "--json"))[0]
        assert record["status"] == "queued"
        assert record["reason"].startswith("begins at ")
    assert cli("runs", "cancel", run).stdout.splitlines()[0] == "canceled"
    done = cli("run", "greeter", '"Ada"', "--at", "1s", "--wait")
    assert done.stdout == '"Good evening, Ada."\n'
    assert cli("run", "greeter", '"Ada"', "--at", "later").returncode == 2


def test_a_delayed_task_of_a_topic(cli: Call) -> None:
    run = cli("publish", "nobody-listens", "1", "--at", "60s").stdout.strip()
    deadline = time.monotonic() + 10
    while (done := cli("runs", "show", run, "--json")).returncode != 0:
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.1)
    assert values(done)[0]["wake_at"] is not None
    cli("runs", "cancel", run)
