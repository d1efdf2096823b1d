"""A server that is too old is refused at once and by name, whatever is started on it. The server is a TCP port that
introduces itself as nats-server 2.9 and answers no more than a PING."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from .programs import AGENTS, environment

INFO = {"server_id": "ID", "server_name": "old", "version": "2.9.25", "proto": 1, "headers": True, "jetstream": True}


async def _introduce(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"INFO %b\r\n" % json.dumps(INFO | {"max_payload": 1048576}).encode())
    while line := await reader.readline():
        if line == b"PING\r\n":
            writer.write(b"PONG\r\n")
    writer.close()


@pytest.fixture(scope="module")
def old() -> Iterator[str]:
    """Its URL."""
    listening: Future[int] = Future()
    ended = threading.Event()

    async def serve() -> None:
        async with await asyncio.start_server(_introduce, "127.0.0.1", 0) as server:
            listening.set_result(server.sockets[0].getsockname()[1])
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    yield f"nats://127.0.0.1:{listening.result()}"
    ended.set()
    thread.join()


COMMANDS = {
    words[0]: words
    for words in (
        ("coordinator",), ("worker", "agents.py"), ("projector",), ("gateway", "--port", "0"),
        ("gateway alone", "--no-projector"), ("python -m callboard.gateway",), ("dev", "agents.py", "--port", "0"),
        ("agents",), ("doctor",),
    )
}  # fmt: skip
PROGRAMS = {
    "gateway alone": ("callboard.cli", "gateway", "--port", "0"),
    "python -m callboard.gateway": ("callboard.gateway",),
}
"""Those that are not named by their first word."""


@pytest.fixture(scope="module")
def ended(old: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[CompletedProcess[str]]]]:
    """How each command ended; all run at once."""
    folder = tmp_path_factory.mktemp("old")
    (folder / "agents.py").write_text(AGENTS)
    with ThreadPoolExecutor() as pool:
        env = environment(NATS_URL=old, CALLBOARD_PORT="0")
        yield {name: pool.submit(_end, words, env, folder) for name, words in COMMANDS.items()}


def _end(words: Sequence[str], env: Mapping[str, str], folder: Path) -> CompletedProcess[str]:
    program = PROGRAMS.get(words[0], ("callboard.cli", words[0]))
    command = [sys.executable, "-m", *program, *words[1:]]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_old_server_is_refused_by_its_version(ended: dict[str, Future[CompletedProcess[str]]], name: str) -> None:
    done = ended[name].result()
    told = done.stdout + done.stderr
    assert done.returncode == (1 if name in ("doctor", "python -m callboard.gateway") else 4), told
    assert "nats-server at old is 2.9.25; Callboard needs 2.12" in told
    assert "upgrade the server" in told or "upgrade nats-server" in told
    for ugly in ("Traceback", "never retrieved", "no answer", "ended with exit code"):
        assert ugly not in told, told
