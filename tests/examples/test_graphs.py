"""The examples of graphs, as their readers run them."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.topics.ids import new_token
from tests.cli.programs import call, environment, program, values
from tests.support.nats import eventually

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FILES = ["publishing.py", "research.py", "time_travel.py"]


@pytest.fixture
def env(nats: ServerProcess) -> Iterator[dict[str, str]]:
    env = environment(NATS_URL=nats.url, CALLBOARD_NAMESPACE=f"t{new_token(8)}")
    with program("coordinator", env=env, cwd=ROOT) as coordinator:
        coordinator.says(" on NATS ")
        yield env


@contextmanager
def worker(env: dict[str, str]) -> Iterator[None]:
    """A worker that serves both examples, and has ended in peace at the end."""
    with program("worker", "examples/publishing.py", "examples/research.py", env=env, cwd=ROOT) as one:
        one.says(" on NATS ")
        yield
        assert one.end() == 0, one.log


def status(run: str, env: dict[str, str]) -> str:
    (shown,) = values(call("runs", "show", run, "--json", env=env, cwd=ROOT))
    return str(shown["status"])


@pytest.mark.system
def test_an_article_waits_for_a_person_while_no_process_holds_it(env: dict[str, str]) -> None:
    with worker(env):
        run = call("publish", "articles", '{"topic": "hats"}', env=env, cwd=ROOT).stdout.strip()
        eventually(lambda: status(run, env) == "input_required", 30, "the question")
    refused = call("resume", run, "--value", '{"verdict": "maybe"}', env=env, cwd=ROOT)
    assert refused.returncode != 0, refused.stdout
    revise = {"verdict": "revise", "remark": "More about berets."}
    revised = call("resume", run, "--value", json.dumps(revise), env=env, cwd=ROOT)
    assert revised.returncode == 0, revised.stderr
    with worker(env):  # another process, hours later
        eventually(lambda: status(run, env) == "input_required", 30, "the second question")
        shown = call("interrupts", "show", run, "--json", env=env, cwd=ROOT)
        assert "round-2" in shown.stdout
        assert "More about berets." in shown.stdout
        assert call("resume", run, "--value", '{"verdict": "publish"}', env=env, cwd=ROOT).returncode == 0
        eventually(lambda: status(run, env) == "completed", 30, "the end")
    text = call("artifacts", run, "article.md", env=env, cwd=ROOT).stdout
    assert text == "# All about hats\n\nThere is much to say about hats.\n\nMore about berets."


@pytest.mark.system
def test_research_fans_out_to_children_and_joins(env: dict[str, str]) -> None:
    with worker(env):
        done = call("run", "research", '{"topic": "hats"}', "--wait", env=env, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [finding["aspect"] for finding in result["findings"]] == ["etiquette", "history", "making"]
    assert result["report"].splitlines()[0] == "# Hats"
    local = runpy.run_path(str(EXAMPLES / "research.py"))
    assert local["graph"].run_sync({"topic": "hats"}) == result  # the same in process


def test_the_walk_through_time_prints_what_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "time_travel.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert "first: travel to Ghent; a night in Ghent; a night in Ghent; home by train" in lines
    assert "what changed in c2: ('nights',) {'plan': ['a night in Ghent']}" in lines
    assert "fork: travel to Ghent; a night in Bruges; home by bicycle" in lines
    assert "shorter: travel to Ghent; home by car" in lines
    assert lines[-1] == "the original still says: home by train"


@pytest.mark.parametrize("name", FILES)
def test_each_is_one_file_that_needs_the_facade_alone(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    imports = [line for line in text.splitlines() if line.startswith(("from callboard", "import callboard"))]
    assert len(imports) == 1
    assert imports[0].startswith("from callboard import ")
