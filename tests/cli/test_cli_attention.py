"""`callboard attention`, `callboard runs retry` and `callboard webhooks`, against processes."""

from __future__ import annotations

import time
from typing import Any

from tests.support.receiver import Receiver

from .conftest import Call
from .programs import values


def listed(cli: Call) -> dict[str, Any]:
    return {item["id"]: item for item in values(cli("attention", "--json"))}


def waiting(cli: Call, id_: str) -> dict[str, Any]:
    deadline = time.monotonic() + 15
    while id_ not in (items := listed(cli)):
        assert time.monotonic() < deadline, items
        time.sleep(0.1)
    item: dict[str, Any] = items[id_]
    return item


def failed_run(cli: Call) -> str:
    done = cli("run", "failing", "1")
    run = done.stdout.strip()
    waiting(cli, run)
    return run


def test_a_failed_run_is_listed_and_retried(cli: Call) -> None:
    run = failed_run(cli)
    text = cli("attention").stdout
    assert "retry, drop" in text
    assert "no good: 1" in text
    again = cli("attention", "retry", run)
    assert again.returncode == 0, again.stderr
    new = again.stdout.strip()
    assert new != run
    assert run not in listed(cli)
    waiting(cli, new)
    record = values(cli("runs", "show", new, "--json"))[0]
    assert (record["retry_of"], record["status"], record["attempt"]) == (run, "failed", 2)
    assert values(cli("runs", "retry", run, "--json"))[0]["run"] == new, "it is retried by one run"
    assert cli("attention", "drop", new).stdout == f"{new} dropped\n"
    assert new not in listed(cli)
    assert cli("attention", "drop", new).returncode == 3


def test_what_cannot_be_retried_says_why(cli: Call) -> None:
    run = cli("run", "greeter", '"Ada"').stdout.strip()
    deadline = time.monotonic() + 15
    while values(cli("runs", "show", run, "--json"))[0]["status"] != "completed":
        assert time.monotonic() < deadline
    done = cli("runs", "retry", run)
    assert done.returncode == 5
    assert "illegal_transition" in done.stderr
    assert cli("runs", "retry", "nowhere").returncode == 3


def test_a_dead_letter_is_replayed_and_dropped(cli: Call) -> None:
    assert cli("publish", "greetings", '"Ada"', "--id", "twice").returncode == 0
    assert cli("publish", "greetings", '"Bob"', "--id", "twice").returncode == 0
    deadline = time.monotonic() + 15
    while not (letters := [one for one in listed(cli).values() if one["kind"] == "dead_letter"]):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    id_ = letters[0]["id"]
    assert cli("attention", "replay", id_).stdout == f"{id_} replayed\n"
    while not (letters := [one for one in listed(cli).values() if one["kind"] == "dead_letter"]):
        assert time.monotonic() < deadline + 15
        time.sleep(0.1)
    assert letters[0]["id"] != id_, "what is still wrong with it sets it aside again"
    assert cli("attention", "drop", letters[0]["id"]).returncode == 0
    assert cli("attention", "drop", letters[0]["id"]).returncode == 3
    assert cli("attention", "replay", "x").returncode == 2


def test_a_webhook_from_its_beginning_to_its_end(cli: Call) -> None:
    made = values(cli("webhooks", "add", "http://127.0.0.1:1/x", "--name", "ops", "--json"))[0]
    assert made["events"] == ["run.parked", "agent.unserved", "deadletter"]
    receiver = Receiver(made["secret"])
    receiver.start()
    secret = made["secret"]
    shown = cli("webhooks", "ls").stdout
    assert secret not in shown
    assert secret[-4:] in shown
    done = cli("webhooks", "set", "ops", "--url", receiver.url, "--events", "run.failed,run.parked", "--json")
    assert values(done)[0]["events"] == ["run.failed", "run.parked"]
    time.sleep(1.5)
    id_ = cli("webhooks", "test", "ops").stdout.strip()
    run = failed_run(cli)
    deadline = time.monotonic() + 20
    while len(receiver.got) < 3:
        assert time.monotonic() < deadline, receiver.got
        time.sleep(0.1)
    assert {one.type for one in receiver.got} == {"webhook.test", "run.failed", "run.parked"}
    assert receiver.of("webhook.test")[0].id == id_
    assert {one.data["run"] for one in receiver.got if one.type != "webhook.test"} == {run}
    assert all(one.valid for one in receiver.got)
    assert "paused" in cli("webhooks", "set", "ops", "--pause").stdout
    assert "active" in cli("webhooks", "set", "ops", "--resume").stdout
    assert cli("webhooks", "rm", "ops").stdout == "ops removed\n"
    assert cli("webhooks", "rm", "ops").returncode == 3
    assert cli("webhooks", "add", "ftp://x/").returncode == 2
    assert cli("webhooks", "add", "https://x/", "--events", "nonsense").returncode == 2
    receiver.stop()
