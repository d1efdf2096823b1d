"""Looking at the state of runs and their checkpoints, against a coordinator and a worker that are processes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .conftest import Call
from .programs import values


def collected(cli: Call, turns: int = 4) -> str:
    """A completed run that has left that many checkpoints."""
    done = cli("run", "collector", str(turns), "--wait", "--json")
    answer = values(done)[0]
    assert answer["status"] == "completed", answer
    return str(answer["run"])


@pytest.fixture(scope="module")
def run(cli: Call) -> str:
    return collected(cli)


def listed(cli: Call, run: str) -> list[dict[str, Any]]:
    return values(cli("checkpoints", "ls", run, "--json"))


def test_the_state_is_shown(cli: Call, run: str) -> None:
    found = values(cli("state", run, "--json"))[0]
    assert found["run"] == run
    assert (found["values"]["turn"], found["values"]["items"][-1]) == (4, "item 4")
    shown = cli("state", run)
    assert shown.stdout.startswith(f"checkpoint {found['checkpoint']} of {run}, step 4")
    assert "\nturn = 4\n" in shown.stdout
    assert "\ndeep = {\n" in shown.stdout
    half = values(cli("state", run, "--checkpoint", "half", "--json"))[0]
    assert half["values"]["turn"] == 2
    assert values(cli("state", run, "--checkpoint", half["checkpoint"], "--json")) == [half]


def test_checkpoints_are_listed_and_shown(cli: Call, run: str) -> None:
    found = listed(cli, run)
    assert [one["step"] for one in found] == [4, 3, 2, 1]
    assert [one["labels"] for one in found] == [[], [], ["half"], []]
    assert found[0]["parent"] == found[1]["id"]
    page = values(cli("checkpoints", "ls", run, "--limit", "2", "--before", found[0]["id"], "--json"))
    assert page == found[1:3]
    table = cli("checkpoints", "ls", run).stdout
    assert table.splitlines()[0].split() == [
        "CHECKPOINT", "TIME", "STEP", "SOURCE", "RAN", "NEXT", "CHANGED", "SIZE", "LABELS",
    ]  # fmt: skip
    one = values(cli("checkpoints", "show", run, "half", "--json"))[0]
    assert (one["id"], one["values"]["turn"]) == (found[2]["id"], 2)
    text = cli("checkpoints", "show", run, "half").stdout
    assert "half" in text
    assert "turn = 2" in text


def test_what_differs_is_shown(cli: Call, run: str) -> None:
    first, last = listed(cli, run)[3]["id"], listed(cli, run)[0]["id"]
    found = {one["channel"]: one for one in values(cli("checkpoints", "diff", run, first, last, "--json"))}
    assert found["items"]["appended"] == ["item 2", "item 3", "item 4"]
    assert found["deep"]["inside"] == [{"path": "/turn", "old": 1, "new": 4}]
    assert found["turn"] == {"channel": "turn", "kind": "changed", "old": 1, "new": 4}
    assert cli("checkpoints", "diff", run, first, last).stdout.splitlines() == [
        "- deep/turn = 1",
        "+ deep/turn = 4",
        '> items, appended = ["item 2","item 3","item 4"]',
        "- turn = 1",
        "+ turn = 4",
    ]
    assert "do not differ" in cli("checkpoints", "diff", run, last, last).stderr
    other = collected(cli, 1)
    across = values(cli("checkpoints", "diff", run, first, listed(cli, other)[0]["id"], "--other-run", other, "--json"))
    assert across == []


def test_labels_and_pruning(cli: Call) -> None:
    run = collected(cli, 6)
    ids = [one["id"] for one in listed(cli, run)]
    assert cli("checkpoints", "label", run, ids[4], "good").stdout == f"checkpoint {ids[4]} is good\n"
    tried = values(cli("checkpoints", "prune", run, "--keep", "1", "--dry-run", "--json"))[0]
    assert len(listed(cli, run)) == 6
    done = cli("checkpoints", "prune", run, "--keep", "1")
    assert done.stdout.startswith(f"{tried['removed']} messages (")
    assert "3 checkpoints stay, 2 of them for a label or another run" in done.stdout
    assert [one["labels"] for one in listed(cli, run)] == [[], ["half"], ["good"]]
    assert cli("checkpoints", "unlabel", run, "good").returncode == 0
    assert [one["labels"] for one in listed(cli, run)] == [[], ["half"]]
    assert cli("checkpoints", "prune", run, "--older-than", "7d").stdout.startswith("1 messages (")
    assert values(cli("checkpoints", "prune", run, "--keep", "5", "--json"))[0]["removed"] == 0
    assert values(cli("state", run, "--checkpoint", "half", "--json"))[0]["values"]["turn"] == 3


def test_the_size_of_a_run_and_of_a_thread(cli: Call, run: str) -> None:
    found = values(cli("checkpoints", "size", run, "--json"))[0]
    assert found["kinds"]["checkpoint"]["count"] == 4
    assert set(found["channels"]) == {"turn", "items", "deep"}
    assert found["messages"]["bytes"] == sum(kind["bytes"] for kind in found["kinds"].values())
    table = cli("checkpoints", "size", run).stdout
    assert "  checkpoint" in table
    values(cli("run", "collector", "1", "--thread", "weighed", "--wait", "--json"))
    whole = values(cli("checkpoints", "size", "--thread", "weighed", "--json"))[0]
    assert whole["kinds"]["checkpoint"]["count"] == 1
    assert "thread" in whole["kinds"]


def test_the_state_of_a_run_that_waits_is_edited(cli: Call) -> None:
    run = values(cli("run", "patient", "1", "--json"))[0]["run"]
    waits_for(cli, run, "input_required")
    done = cli("update", run, '{"word": "second"}', "--append", '{"notes": ["by hand"]}')
    assert (done.returncode, done.stdout) == (0, f"{listed(cli, run)[0]['id']}\n"), done.stderr
    assert listed(cli, run)[0]["source"] == "update"
    assert values(cli("state", run, "--json"))[0]["values"] == {"saved": True, "word": "second", "notes": ["by hand"]}
    assert cli("update", run, "[]").returncode == 2
    assert cli("update", run, "{}").returncode == 2
    assert cli("resume", run, "go=true").returncode == 0
    waits_for(cli, run, "completed")
    assert values(cli("runs", "show", run, "--json"))[0]["result"]["json"] == "second"
    late = cli("update", run, '{"word": "third"}')
    assert late.returncode == 5, late.stderr
    assert "illegal_transition" in late.stderr


def waits_for(cli: Call, run: str, status: str) -> None:
    deadline = time.monotonic() + 20
    while (found := values(cli("runs", "show", run, "--json"))[0]["status"]) != status:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["state"], 2, "either a RUN or a --thread"),
        (["state", "{run}", "--thread", "t"], 2, "either a RUN or a --thread"),
        (["state", "nobody"], 3, "not_found"),
        (["state", "--thread", "no-such-thread"], 3, "has no state"),
        (["state", "{run}", "--checkpoint", "nothing"], 2, "its labels are|neither a checkpoint id nor a label"),
        (["state", "{run}", "--checkpoint", "1"], 3, "checkpoint_missing"),
        (["checkpoints", "label", "{run}", "1", "x"], 3, "checkpoint_missing"),
        (["checkpoints", "label", "{run}", "half", "a b"], 2, "invalid_subject"),
        (["checkpoints", "unlabel", "{run}", "x"], 3, "no label"),
        (["checkpoints", "prune", "{run}"], 2, "what is to be kept"),
        (["checkpoints", "prune", "{run}", "--keep", "0"], 2, "at least the newest"),
        (["checkpoints", "size"], 2, "either a RUN or a --thread"),
    ],
)
def test_what_cannot_be_is_refused(cli: Call, run: str, words: list[str], code: int, says: str) -> None:
    done = cli(*(word.replace("{run}", run) for word in words))
    assert done.returncode == code, done.stderr
    assert any(part in done.stderr for part in says.split("|")), done.stderr
