"""Fixtures: an installation of real processes that the tests of one module share."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest
from typer.testing import CliRunner

from callboard.cli.app import app
from callboard.runtime.nats_server import ServerProcess
from callboard.topics.ids import new_token

from .programs import AGENTS, Program, call, environment, program


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


class Call(Protocol):
    """Runs a command against the module's installation."""

    def __call__(self, *words: str, text: str | None = None) -> Done: ...


class Installation(NamedTuple):
    """A coordinator and a worker that serves `agents.py`."""

    folder: Path
    env: dict[str, str]
    coordinator: Program
    worker: Program


@pytest.fixture(scope="module")
def installation(nats: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "agents.py").write_text(AGENTS)
    env = environment(NATS_URL=nats.url, CALLBOARD_NAMESPACE=f"t{new_token(8)}")
    with (
        program("coordinator", env=env, cwd=folder) as coordinator,
        program("worker", "agents.py", "--concurrency", "4", env=env, cwd=folder) as worker,
    ):
        coordinator.says(" on NATS ")
        worker.says(" on NATS ")
        yield Installation(folder, env, coordinator, worker)


@pytest.fixture
def shell(installation: Installation) -> Call:
    """Commands as processes of their own."""

    def run(*words: str, text: str | None = None) -> Done:
        done: subprocess.CompletedProcess[str] = call(*words, env=installation.env, cwd=installation.folder, text=text)
        return Done(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="module")
def cli(installation: Installation) -> Call:
    """Commands within this process, which is fast; what a process alone can show is tested with `shell`."""

    def run(*words: str, text: str | None = None) -> Done:
        with pytest.MonkeyPatch.context() as patch, _own_logging():
            for name in os.environ:
                if name not in installation.env:
                    patch.delenv(name)
            for name, value in installation.env.items():
                patch.setenv(name, value)
            patch.chdir(installation.folder)
            result = CliRunner().invoke(app, list(words), input=text, prog_name="callboard")
            assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Done(result.exit_code, result.stdout, result.stderr)

    return run


@contextmanager
def _own_logging() -> Iterator[None]:
    """What the command line sets up for its process does not stay in this one."""
    names = (None, "callboard")
    before = [(logging.getLogger(name), logging.getLogger(name).level) for name in names]
    handlers = logging.getLogger().handlers[:]
    try:
        yield
    finally:
        logging.getLogger().handlers[:] = handlers
        for logger, level in before:
            logger.setLevel(level)
