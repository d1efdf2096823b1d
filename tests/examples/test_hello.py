"""The small examples, as their readers run them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.topics.ids import new_token
from tests.cli.programs import Program, call, environment, program

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

pytestmark = pytest.mark.system


class Served(NamedTuple):
    """A worker that serves both examples."""

    worker: Program
    env: dict[str, str]


@pytest.fixture(scope="module")
def served(nats: ServerProcess) -> Iterator[Served]:
    env = environment(NATS_URL=nats.url, CALLBOARD_NAMESPACE=f"t{new_token(8)}")
    files = ["examples/hello.py", "examples/reviews.py"]
    with (
        program("coordinator", env=env, cwd=ROOT) as coordinator,
        program("worker", *files, env=env, cwd=ROOT) as worker,
    ):
        coordinator.says(" on NATS ")
        worker.says(" on NATS ")
        yield Served(worker, env)


def test_hello_greets(served: Served) -> None:
    done = call("run", "hello", '"Ada"', "--wait", env=served.env, cwd=ROOT)
    assert (done.returncode, done.stdout.strip()) == (0, '"Hello, Ada!"'), done.stderr


def test_hello_takes_tasks_from_its_topic(served: Served) -> None:
    published = call("publish", "hello", '"Grace"', env=served.env, cwd=ROOT)
    run = published.stdout.strip()
    tail = call("tail", run, env=served.env, cwd=ROOT)
    assert tail.returncode == 0, tail.stderr
    assert "Hello, Grace!" in tail.stdout


def test_a_review_is_returned_kept_and_heard(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "reviewed.py"
    file.write_text("def f():\n    try:\n        return 1\n    except:\n        return 2\n")
    done = call("run", "review", json.dumps({"path": str(file)}), "--wait", env=served.env, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "path": str(file),
        "lines": 5,
        "findings": ["1: f has no docstring", "4: catches everything, also Ctrl-C"],
    }
    served.worker.says(f"review 1 of {file}: 2 findings")


def test_a_file_that_does_not_parse_is_not_tried_again(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("def (:\n")
    done = call("run", "review", json.dumps({"path": str(file)}), "--wait", env=served.env, cwd=ROOT)
    assert done.returncode == 1
    assert "line 1" in done.stderr


@pytest.mark.parametrize("name", ["hello.py", "reviews.py"])
def test_each_is_one_file_that_needs_the_facade_alone(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    imports = [line for line in text.splitlines() if line.startswith(("from callboard", "import callboard"))]
    assert len(imports) == 1
    assert imports[0].startswith("from callboard import ")
