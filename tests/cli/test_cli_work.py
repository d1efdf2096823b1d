"""Giving work and looking at it, against a coordinator and a worker that are processes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time

import msgspec
import nats as nats_py
import pytest

from callboard.runtime.nats_server import ServerProcess

from .conftest import Call, Installation
from .programs import program, values


@pytest.fixture(scope="module")
def greeted(cli: Call) -> str:
    """A run that has completed."""
    done = cli("run", "greeter", '"Ada"', "--wait", "--json", "--metadata", "who=me", "--metadata", "n=3")
    answer = values(done)[0]
    assert (answer["status"], answer["result"]) == ("completed", "Good evening, Ada.")
    assert done.stderr.startswith(f"run {answer['run']}")
    return str(answer["run"])


def test_doctor_finds_a_sound_installation_sound(cli: Call) -> None:
    done = cli("doctor")
    assert done.returncode == 0, done.stdout
    assert "no problems" in done.stdout
    names = {check["name"].split()[0] for check in values(cli("doctor", "--json"))}
    assert names >= {"server", "stream", "clock", "coordinator", "consumer", "worker", "dead", "runs"}


# -- giving work ------------------------------------------------------------------------------------------------


def test_run_prints_the_id_and_wait_the_result(shell: Call) -> None:
    started = shell("run", "sleeper", "0.1")
    assert started.returncode == 0
    run = started.stdout.strip()
    assert len(run) == 24
    waited = shell("run", "greeter", "-", "--wait", text='"Bob"')
    assert (waited.returncode, waited.stdout) == (0, '"Good evening, Bob."\n')


def test_a_failed_run_gives_exit_code_1_and_says_why(shell: Call) -> None:
    done = shell("run", "failing", "4", "--wait")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "no good: 4" in done.stderr
    assert "Traceback" not in done.stderr


def test_waiting_has_a_limit_of_time(cli: Call) -> None:
    done = cli("run", "nobody-serves-this", "{}", "--wait", "--timeout", "300ms")
    assert done.returncode == 6
    assert "no worker has registered agent" in done.stderr
    run = done.stderr.split()[1]
    assert cli("runs", "cancel", run).returncode == 0


def test_interrupting_a_wait_leaves_the_run_alone(installation: Installation, cli: Call) -> None:
    with program("run", "sleeper", "1.5", "--wait", env=installation.env, cwd=installation.folder) as one:
        run = one.says("run ").split()[1]
        assert one.end(signal.SIGINT) == 130
        assert "Traceback" not in one.log
        assert f"callboard tail {run}" in one.log
    with program("tail", run, "--json", env=installation.env, cwd=installation.folder) as tail:
        assert tail.wait() == 0
    assert msgspec.json.decode(tail.out[-1])["data"]["status"] == "completed"


def test_keys_are_idempotent_and_conflicts_have_their_code(cli: Call) -> None:
    first = cli("run", "greeter", '"Ada"', "--key", "k1", "--json")
    again = cli("run", "greeter", '"Ada"', "--key", "k1", "--json")
    other = cli("run", "greeter", '"Bob"', "--key", "k1")
    assert values(first)[0]["run"] == values(again)[0]["run"]
    assert values(again)[0]["duplicate"] is True
    assert other.returncode == 5
    assert "[idempotency_conflict]" in other.stderr


def test_publish_prints_the_id_that_the_run_will_have(cli: Call) -> None:
    chosen = cli("publish", "greetings", '"Eve"', "--id", "my-own-id", "--thread", "t1", "--metadata", "a=b")
    assert (chosen.returncode, chosen.stdout) == (0, "my-own-id\n")
    made = cli("publish", "greetings", '"Eve"', "--json")
    run = values(made)[0]["run"]
    for name in ("my-own-id", run):
        with_history = cli("tail", name)
        assert with_history.returncode == 0
        assert "completed" in with_history.stdout
    record = values(cli("runs", "show", "my-own-id", "--json"))[0]
    assert (record["thread"], record["metadata"], record["topic"]) == ("t1", {"a": "b"}, "greetings")


def test_five_megabytes_in_and_out(cli: Call) -> None:
    name = "x" * 5_000_000
    done = cli("run", "greeter", "-", "--wait", text=msgspec.json.encode(name).decode())
    assert done.stdout == f'"Good evening, {name}."\n'


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("{bad", "not JSON"),
        (r'"\ud800 alone"', r"\ud800 at byte 1 is half of a surrogate pair"),
        ("Ada", "quotes of its own"),
        ("", "write null"),
        ("NaN", "not JSON"),
        ('{"a": 1} x', "not JSON"),
    ],
)
def test_input_that_is_no_json_is_refused(cli: Call, value: str, said: str) -> None:
    done = cli("run", "greeter", value)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


# -- looking ----------------------------------------------------------------------------------------------------


def test_ls_filters(cli: Call, greeted: str) -> None:
    everything = values(cli("runs", "ls", "--json"))
    assert greeted in {run["id"] for run in everything}
    one = values(
        cli("runs", "ls", "--json", "--metadata", "who=me", "--metadata", "n=3", "--status", "completed,failed")
    )
    assert [run["id"] for run in one] == [greeted]
    assert values(cli("runs", "ls", "--json", "--metadata", "n=4")) == []
    assert {run["agent"] for run in values(cli("runs", "ls", "--json", "--agent", "greeter", "--since", "1h"))} == {
        "greeter"
    }
    assert len(values(cli("runs", "ls", "--json", "-n", "1"))) == 1
    text = cli("runs", "ls", "--metadata", "who=me")
    assert text.stdout.splitlines()[0].split() == ["RUN", "STATUS", "AGENT", "TRIES", "AGE", "TOOK", "WHY"]
    assert text.stdout.splitlines()[1].startswith(f"{greeted}  completed  greeter")
    assert "\x1b" not in text.stdout
    bad = cli("runs", "ls", "--status", "done")
    assert bad.returncode == 2
    assert "completed" in bad.stderr


def test_show_tail_and_replay_tell_the_same_story(cli: Call, greeted: str) -> None:
    record = values(cli("runs", "show", greeted, "--json"))[0]
    assert record["result"]["json"] == "Good evening, Ada."
    shown = cli("runs", "show", greeted).stdout
    assert "completed" in shown
    assert '"Good evening, Ada."' in shown
    replayed = values(cli("replay", greeted, "--json"))
    kinds = [item["kind"] for item in replayed]
    assert kinds[:2] == ["state", "state"]
    assert {"step", "custom", "artifact"} < set(kinds)
    assert kinds[-1] == "state"
    sequences = [item["sequence"] for item in replayed]
    assert sequences == sorted(sequences)
    assert values(cli("tail", greeted, "--json")) == replayed
    states = values(cli("tail", greeted, "--json", "--kind", "state"))
    assert [item["data"]["status"] for item in states] == ["queued", "running", "completed"]
    lines = cli("replay", greeted).stdout.splitlines()
    assert "attempt 1 on worker" in lines[1]
    assert values(cli("replay", greeted, "--json", "--after", str(sequences[1]))) == replayed[2:]


def test_tree_shows_parents_before_children(cli: Call) -> None:
    root = values(cli("run", "family", '["Ann", "Ben"]', "--wait", "--json"))[0]["run"]
    records = values(cli("runs", "tree", root, "--json"))
    assert [record["agent"] for record in records] == ["family", "greeter", "greeter"]
    assert {record.get("parent") for record in records} == {None, root}
    lines = cli("runs", "tree", root).stdout.splitlines()
    assert lines[1].startswith("├─ greeter completed")
    assert lines[2].startswith("└─ greeter completed")
    child = records[1]["id"]
    assert [record["id"] for record in values(cli("runs", "tree", child, "--json"))] == [child]
    whole = values(cli("replay", root, "--tree", "--json"))
    assert {item["run"] for item in whole} == {record["id"] for record in records}


def test_artifacts_are_listed_and_printed_byte_for_byte(cli: Call, installation: Installation, greeted: str) -> None:
    listed = values(cli("artifacts", greeted, "--json"))
    assert [(one["name"], one["media_type"], one["size"]) for one in listed] == [("text.txt", "text/plain", 18)]
    assert "text.txt" in cli("artifacts", greeted).stdout
    assert cli("artifacts", greeted, "text.txt").stdout == "Good evening, Ada."
    assert cli("artifacts", greeted, "text.txt", "-o", "out.txt").stdout == ""
    assert (installation.folder / "out.txt").read_text() == "Good evening, Ada."
    missing = cli("artifacts", greeted, "other")
    assert missing.returncode == 3


def test_agents_say_who_serves_them(cli: Call) -> None:
    found = {one["name"]: one for one in values(cli("agents", "--json"))}
    assert found["greeter"]["topics"] == ["greetings"]
    assert len(found["greeter"]["workers"]) == 1
    assert "Greets people." in cli("agents").stdout


def test_cancel(cli: Call, greeted: str) -> None:
    run = cli("run", "sleeper", "30").stdout.strip()
    done = cli("runs", "cancel", run, "--reason", "not needed")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] in {"cancel_requested", "canceled"}
    assert cli("tail", run).stdout.splitlines()[-1].count("canceled") >= 1
    assert cli("runs", "cancel", run).returncode == 0
    late = cli("runs", "cancel", greeted)
    assert late.returncode == 5
    assert "[illegal_transition]" in late.stderr


def test_what_is_not_there_gives_exit_code_3(cli: Call) -> None:
    for words in (("runs", "show"), ("runs", "tree"), ("runs", "cancel"), ("tail",), ("replay",), ("artifacts",)):
        done = cli(*words, "unknown-run")
        assert (done.returncode, done.stdout) == (3, ""), words
        assert done.stderr == "callboard: there is no run unknown-run [not_found]\n"
    elsewhere = cli("runs", "ls", "--namespace", "elsewhere")
    assert elsewhere.returncode == 3
    assert "[not_installed]" in elsewhere.stderr


def test_what_is_no_run_id_gives_exit_code_2(cli: Call) -> None:
    assert cli("runs", "show", "no.good").returncode == 2
    assert cli("publish", "no.good", "1").returncode == 2


# -- live -------------------------------------------------------------------------------------------------------


def test_tail_of_everything_shows_what_comes_and_ends_by_ctrl_c(installation: Installation, cli: Call) -> None:
    with program("tail", "--json", env=installation.env, cwd=installation.folder) as tail:
        deadline = time.monotonic() + 20
        while not tail.out:  # until it listens, nothing is seen
            assert time.monotonic() < deadline
            assert cli("run", "greeter", '"Live"', "--wait").returncode == 0
        tail.says('"completed"')
        assert tail.end(signal.SIGINT) == 130
        assert tail.err == []
    sequences = [msgspec.json.decode(line)["sequence"] for line in tail.out]
    assert sequences == sorted(sequences)


def test_tail_survives_a_restart_of_the_server(installation: Installation, nats: ServerProcess, cli: Call) -> None:
    run = cli("run", "sleeper", "3").stdout.strip()
    with program("tail", run, "--json", env=installation.env, cwd=installation.folder) as tail:
        tail.says('"running"')
        nats.kill()
        nats.start()
        assert tail.wait() == 0
    statuses = [msgspec.json.decode(line)["data"]["status"] for line in tail.out]
    assert statuses[-1] == "completed"
    assert statuses == values_of_states(cli, run)
    assert "Traceback" not in tail.log


def values_of_states(cli: Call, run: str) -> list[str]:
    return [item["data"]["status"] for item in values(cli("replay", run, "--json"))]


def test_a_reader_that_stops_reading_is_no_error(installation: Installation, greeted: str) -> None:
    command = f"{sys.executable} -m callboard.cli replay {greeted} | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],
        env=installation.env,
        cwd=installation.folder,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[1] in {"0", "141"}  # 0 when all was written before the reader left


# -- dead letters, doctor ---------------------------------------------------------------------------------------


def test_dead_letters_are_listed_shown_replayed_and_dropped(
    cli: Call, installation: Installation, nats: ServerProcess
) -> None:
    assert values(cli("deadletters", "ls", "--json")) == []
    asyncio.run(_publish(nats.url, f"{installation.env['CALLBOARD_NAMESPACE']}.task.greetings", b"not json"))
    deadline = time.monotonic() + 10
    while not (found := values(cli("deadletters", "ls", "--json"))):
        assert time.monotonic() < deadline
    assert [(one["kind"], one["reason"]["code"], one["size"]) for one in found] == [("task", "invalid_message", 8)]
    first = str(found[0]["id"])
    assert "not json" in cli("deadletters", "show", first).stdout
    assert "data" in values(cli("deadletters", "show", first, "--json"))[0]
    sick = cli("doctor", "--json")
    assert sick.returncode == 1
    problems = {check["name"]: check for check in values(sick) if check["level"] == "problem"}
    assert "callboard deadletters ls" in problems["dead letters"]["remedy"]
    assert cli("deadletters", "replay", first).stdout == f"{first} replayed\n"
    deadline = time.monotonic() + 10
    while not (found := values(cli("deadletters", "ls", "--json"))):  # it is still no JSON, and comes back
        assert time.monotonic() < deadline
    assert cli("deadletters", "drop", "--all").stdout == f"{found[0]['id']} dropped\n"
    assert cli("deadletters", "drop", first).returncode == 3
    assert cli("deadletters", "drop").returncode == 2


async def _publish(url: str, subject: str, data: bytes) -> None:
    client = await nats_py.connect(url)
    await client.jetstream().publish(subject, data)
    await client.close()


def test_doctor_names_drift_and_waiting_work(cli: Call, installation: Installation, nats: ServerProcess) -> None:
    namespace = installation.env["CALLBOARD_NAMESPACE"]
    asyncio.run(_drift(nats.url, f"{namespace}_TOPICS", max_age=int(3600e9)))
    asyncio.run(_drift(nats.url, f"{namespace}_INBOX", max_msgs=1_000_000))
    assert cli("publish", "nobody-listens", "1").returncode == 0
    assert cli("run", "ghost", "1").returncode == 0
    done = cli("doctor", "--json")
    assert done.returncode == 1
    by_name = {check["name"]: check for check in values(done)}
    assert by_name[f"stream {namespace}_TOPICS"]["level"] == "note"
    assert "max_age" in by_name[f"stream {namespace}_TOPICS"]["text"]
    assert "wait for an agent" in by_name["topic nobody-listens"]["text"]
    assert "no worker serves it" in by_name["agent ghost"]["text"]
    dropping = [one for one in values(done) if one["name"] == f"stream {namespace}_INBOX" and one["level"] == "problem"]
    assert "nobody has taken yet are dropped" in dropping[0]["text"]
    asyncio.run(_drift(nats.url, f"{namespace}_TOPICS", max_age=0))
    asyncio.run(_drift(nats.url, f"{namespace}_INBOX", max_msgs=-1))


async def _drift(url: str, stream: str, **changed: int) -> None:
    client = await nats_py.connect(url)
    found = msgspec.json.decode((await client.request(f"$JS.API.STREAM.INFO.{stream}", b"")).data)["config"]
    found |= changed
    answer = await client.request(f"$JS.API.STREAM.UPDATE.{stream}", msgspec.json.encode(found))
    assert "error" not in msgspec.json.decode(answer.data)
    await client.close()


def imported_by(installation: Installation, *command: str) -> set[str]:
    words = [sys.executable, "-X", "importtime", "-m", "callboard.cli", *command]
    done = subprocess.run(words, cwd=installation.folder, env=installation.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


def test_help_brings_neither_the_connection_nor_the_settings(installation: Installation) -> None:
    imported = imported_by(installation, "--help")
    assert "callboard.cli.app" in imported
    assert not sorted(name for name in imported if name.startswith(("nats", "pydantic", "callboard.topics.bus")))


def test_reading_commands_bring_only_what_they_need(installation: Installation) -> None:
    """That is what makes them start fast: nothing of the roles, of HTTP, of schemas, of telemetry is imported."""
    imported = imported_by(installation, "runs", "ls", "-n", "1")
    assert "callboard.store.log" in imported
    needless = (
        "callboard.gateway", "callboard.actors.engine", "callboard.actors.coordinator",
        "fastapi", "httpx", "jsonschema_rs", "opentelemetry.sdk", "starlette", "uvicorn", "watchfiles",
    )  # fmt: skip
    assert not sorted(name for name in imported if name.startswith(needless))
