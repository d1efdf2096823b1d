"""The long-running commands as processes: how they start, what they serve, and how they end."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.runtime.nats_port import free_ports
from callboard.runtime.nats_server import ServerProcess
from callboard.topics.ids import new_token

from .conftest import Call, Installation
from .programs import AGENTS, call, environment, program, values

NOWHERE = "nats://127.0.0.1:1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agents.py").write_text(AGENTS)
    return tmp_path


@pytest.fixture
def env(nats: ServerProcess) -> dict[str, str]:
    """An installation of the test's own."""
    return environment(NATS_URL=nats.url, CALLBOARD_NAMESPACE=f"t{new_token(8)}")


# -- the end ----------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_a_coordinator_with_0(env: dict[str, str], folder: Path) -> None:
    with program("coordinator", env=env, cwd=folder) as one:
        assert one.says("coordinator ").endswith(f"on NATS {env['NATS_URL']}")
        assert one.end(signal.SIGINT) == 0
        assert "Traceback" not in one.log


def test_a_worker_finishes_what_it_holds(env: dict[str, str], folder: Path) -> None:
    with program("coordinator", env=env, cwd=folder) as coordinator:
        coordinator.says("on NATS")
        with program("worker", "agents.py:sleeper", env=env, cwd=folder) as worker:
            assert "serves agents sleeper on NATS" in worker.says("worker ")
            run = call("run", "sleeper", "1", env=env, cwd=folder).stdout.strip()
            with program("tail", run, env=env, cwd=folder) as tail:
                tail.says("running")
                assert worker.end() == 0
                assert tail.wait() == 0
                assert "completed" in tail.out[-1]
                assert not [line for line in tail.out if " 2  state" in line], "one attempt was enough"


def test_everything_ends_with_0_while_nats_is_down(nats: ServerProcess, env: dict[str, str], folder: Path) -> None:
    env = env | {"CALLBOARD_GRACE_S": "2"}
    with (
        program("coordinator", env=env, cwd=folder) as coordinator,
        program("worker", "agents.py", env=env, cwd=folder) as worker,
        program("gateway", "--port", "0", env=env, cwd=folder) as gateway,
    ):
        for one in (coordinator, worker, gateway):
            one.says("on NATS")
        nats.kill()
        try:
            worker.says("connection lost")
            assert [one.end(within_s=8) for one in (worker, gateway, coordinator)] == [0, 0, 0]
        finally:
            nats.start()
        for one in (coordinator, worker, gateway):
            assert "Traceback" not in one.log


def test_a_role_waits_for_its_server_and_can_be_stopped_meanwhile(folder: Path) -> None:
    env = environment(NATS_URL=NOWHERE, CALLBOARD_CONNECT_TIMEOUT_S="1")
    with (
        program("coordinator", env=env, cwd=folder) as coordinator,
        program("worker", "agents.py", env=env, cwd=folder) as worker,
        program("projector", env=env, cwd=folder) as projector,
    ):
        for one in (coordinator, worker, projector):
            assert "trying again" in one.says("no NATS server answers")
        assert [one.end(within_s=5) for one in (coordinator, worker, projector)] == [0, 0, 0]


def test_a_role_takes_up_work_when_its_server_comes(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    from callboard.runtime.nats_server import ServerSettings

    [port] = free_ports(1)
    server = ServerProcess(tmp_path_factory.mktemp("late"), ServerSettings(port=port))
    env = environment(NATS_URL=f"nats://127.0.0.1:{port}", CALLBOARD_CONNECT_TIMEOUT_S="1")
    with program("coordinator", env=env, cwd=folder) as one:
        one.says("trying again")
        server.start()
        try:
            one.says("on NATS")
            assert one.end() == 0
        finally:
            server.stop()


def test_a_child_ends_with_its_parent(env: dict[str, str], folder: Path) -> None:
    with program("coordinator", "--end-with-stdin", env=env, cwd=folder, hold_stdin=True) as one:
        one.says("on NATS")
        assert one.process.stdin is not None
        one.process.stdin.close()
        assert one.wait() == 0


# -- what a worker is given -------------------------------------------------------------------------------------


def test_a_worker_without_its_module_says_so(folder: Path) -> None:
    done = call("worker", "missing.py", env=environment(NATS_URL=NOWHERE), cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "callboard: there is no file missing.py [module_unusable]\n"


def test_an_error_in_the_module_is_shown_as_its_author_knows_it(folder: Path) -> None:
    (folder / "helper.py").write_text("def help():\n    raise KeyError('nothing')\n")
    (folder / "broken.py").write_text("import helper\n\nhelper.help()\n")
    done = call("worker", "broken.py", env=environment(NATS_URL=NOWHERE), cwd=folder)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    places = [line.strip().split(", ")[:2] for line in lines if line.strip().startswith("File ")]
    assert places == [
        [f'File "{folder / "broken.py"}"', "line 3"],
        [f'File "{folder / "helper.py"}"', "line 2"],
    ]
    assert lines[-1] == "callboard: broken.py cannot be imported: KeyError: 'nothing' [module_unusable]"


def test_modules_packages_and_actors_are_served(env: dict[str, str], folder: Path) -> None:
    package = folder / "jobs"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "names.py").write_text("NAME = 'packed'\n")
    (package / "agents.py").write_text(
        "from callboard import Context, agent\nfrom .names import NAME\n\n"
        "@agent(NAME)\nasync def packed(ctx: Context, value: int) -> int:\n    return value\n"
    )
    with (
        program("worker", "jobs.agents", "agents.py:greeter", env=env, cwd=folder) as by_name,
        program("worker", "jobs/agents.py", "agents:Listener", env=env, cwd=folder) as by_path,
    ):
        assert "serves agents packed, greeter on" in by_name.says("worker ")
        assert "serves agents packed and hosts actors Listener on" in by_path.says("worker ")
        assert by_name.end() == by_path.end() == 0


def test_a_worker_whose_actor_never_starts_ends_with_the_code_for_that(env: dict[str, str], folder: Path) -> None:
    (folder / "stuck.py").write_text(
        "from callboard import Actor, ActorContext, on\n\n"
        "class Stuck(Actor):\n    async def started(self, ctx: ActorContext) -> None:\n"
        "        raise RuntimeError('no key')\n\n"
        "    @on('words')\n    async def received(self, ctx: ActorContext, message: str) -> None: ...\n"
    )
    never = env | {"CALLBOARD_RESTART_LIMIT": "1", "CALLBOARD_RESTART_INITIAL_S": "0.01"}
    done = call("worker", "stuck.py", env=never, cwd=folder)
    assert done.returncode == 7
    assert "no key" in done.stderr


# -- gateway and projector --------------------------------------------------------------------------------------


def _get(url: str) -> str:
    """What is answered, also when it is an error."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return str(error.read())


def test_a_gateway_keeps_its_read_model_beside_it(installation: Installation, cli: Call) -> None:
    run = values(cli("run", "greeter", '"Ada"', "--wait", "--json"))[0]["run"]
    with program("gateway", "--port", "0", env=installation.env, cwd=installation.folder) as gateway:
        url = next(word for word in gateway.says("gateway at ").split() if word.startswith("http"))
        deadline = time.monotonic() + 20
        while run not in (answer := _get(f"{url}/runs")):
            assert time.monotonic() < deadline, f"{answer}\n{gateway.log}"
            time.sleep(0.1)
        port = url.rpartition(":")[2]
        taken = call("gateway", "--port", port, env=installation.env, cwd=installation.folder)
        assert taken.returncode == 2
        assert "choose another port" in taken.stderr
        assert gateway.end() == 0
        assert "Traceback" not in gateway.log


def test_a_read_model_built_anew_is_the_same(installation: Installation, shell: Call, cli: Call) -> None:
    assert cli("run", "family", '["Ann", "Ben"]', "--wait").returncode == 0
    built = shell("projector", "--once", "--projection", "a.db")
    assert built.returncode == 0, built.stderr
    digest = built.stdout.split()[-1]
    again = shell("projector", "--once", "--rebuild", "--projection", "a.db")
    assert again.stdout.split()[-1] == digest
    with program("projector", "--projection", "a.db", env=installation.env, cwd=installation.folder) as running:
        assert "keeps a.db on NATS" in running.says("projector ")
        assert running.end() == 0


# -- no server, bad settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "ls"),
        ("doctor", "--json"),
    ],
)
def test_without_a_server_the_code_is_4_at_once(tmp_path: Path, words: tuple[str, ...]) -> None:
    begin = time.monotonic()
    done = call(*words, env=environment(NATS_URL=NOWHERE), cwd=tmp_path)
    assert done.returncode == 4
    assert done.stdout == ""
    why = f"no NATS server answers at {NOWHERE} (connection refused): start one, or set NATS_URL"
    assert done.stderr == f"callboard: {why} [unavailable]\n"
    assert time.monotonic() - begin < 5


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_server_that_says_nothing_is_given_up_in_seconds(tmp_path: Path, silent: int) -> None:
    done = call("runs", "ls", env=environment(NATS_URL=f"nats://me:secret@127.0.0.1:{silent}"), cwd=tmp_path)
    assert done.returncode == 4
    assert "secret" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_bad_setting_is_named(folder: Path) -> None:
    done = call("coordinator", env=environment(NATS_URL=NOWHERE, CALLBOARD_REPLICAS="many"), cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("callboard: bad settings: CALLBOARD_REPLICAS: ")
    assert done.stderr.count("\n") == 1


# -- terminals --------------------------------------------------------------------------------------------------


def _in_terminal(words: list[str], env: dict[str, str], cwd: Path) -> str:
    """What a command shows to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-m", "callboard.cli", *words], stdout=theirs, env=env, cwd=cwd)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # Linux says so when the other side is closed
        pass
    finally:
        os.close(ours)
        process.wait(10)
    return shown.decode()


def test_colours_are_for_terminals_and_can_be_forbidden(installation: Installation, cli: Call) -> None:
    assert cli("run", "greeter", '"Ada"', "--wait").returncode == 0
    env = installation.env | {"TERM": "xterm-256color"}
    green = "\x1b[32m"
    assert green in _in_terminal(["runs", "ls"], env, installation.folder)
    assert green not in _in_terminal(["runs", "ls"], env | {"NO_COLOR": "1"}, installation.folder)
    assert "\x1b" not in cli("runs", "ls").stdout
