"""However its owner ends, the server does not stay behind."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from callboard.runtime.nats_folder import StateFolder
from callboard.runtime.nats_mark import ProcessMark
from callboard.runtime.nats_server import EmbeddedServer
from tests.support.nats import eventually

OWNER = """
import asyncio, os, sys
from callboard.runtime.nats_server import EmbeddedServer

async def main():
    async with EmbeddedServer(sys.argv[1]) as server:
        print(server.pid, flush=True)
        await asyncio.sleep(60)

if sys.argv[2] == "thread":
    import threading
    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    thread.join()
else:
    asyncio.run(main())
"""

pytestmark = pytest.mark.crash


@contextmanager
def owner(folder: Path, where: str = "main") -> Iterator[tuple[subprocess.Popen[str], ProcessMark]]:
    """A process that owns an embedded server, and the server."""
    process = subprocess.Popen([sys.executable, "-c", OWNER, folder, where], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        server = ProcessMark.of(int(process.stdout.readline()))
        assert server is not None
        yield process, server
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def parent_of(mark: ProcessMark) -> ProcessMark:
    fields = Path(f"/proc/{mark.pid}/stat").read_text().rpartition(")")[2].split()
    found = ProcessMark.of(int(fields[1]))
    assert found is not None
    return found


@pytest.mark.parametrize("where", ["main", "thread"])
def test_sigkill_of_the_owner_ends_the_server(tmp_path: Path, where: str) -> None:
    with owner(tmp_path, where) as (process, server):
        process.kill()
        process.wait()
        eventually(lambda: not server.alive, 10, "the server has ended after its owner")
    assert "Server Exiting" in StateFolder(tmp_path).log.read_text()  # it was stopped, not killed


def test_ctrl_c_stops_the_server_through_its_owner(tmp_path: Path) -> None:
    with owner(tmp_path) as (process, server):
        process.send_signal(signal.SIGINT)
        process.wait(10)
        assert not server.alive


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_sigkill_of_the_keeper_ends_the_server(tmp_path: Path) -> None:
    with owner(tmp_path) as (_, server):
        assert parent_of(server).signal(signal.SIGKILL)
        eventually(lambda: not server.alive, 5, "the server has ended after its keeper")


async def test_a_folder_whose_owner_was_killed_can_be_used_at_once(tmp_path: Path) -> None:
    with owner(tmp_path) as (process, server):
        process.kill()
        async with EmbeddedServer(tmp_path) as second:
            assert second.pid != server.pid
            assert not server.alive


async def test_a_leftover_server_that_hangs_is_ended_by_the_next_start(tmp_path: Path) -> None:
    """The keeper is stopped too, so nobody but the next owner can end the server."""
    with owner(tmp_path) as (process, server):
        keeper = parent_of(server)
        keeper.signal(signal.SIGSTOP)
        process.kill()
        process.wait()
        try:
            async with EmbeddedServer(tmp_path, grace=timedelta(seconds=0.5)) as second:
                assert second.pid is not None
                assert not server.alive
        finally:
            keeper.signal(signal.SIGKILL)


def test_a_mark_knows_a_process_from_a_later_one_with_its_pid() -> None:
    mark = ProcessMark.of(os.getpid())
    assert mark is not None
    assert mark.alive
    impostor = ProcessMark(mark.pid, mark.started + "0")
    assert not impostor.alive
    assert not impostor.signal(signal.SIGKILL)


def test_a_process_of_which_only_the_exit_code_is_left_is_not_alive() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    with suppress(subprocess.TimeoutExpired):
        eventually(lambda: ProcessMark.of(process.pid) is None, 10, "the zombie counts as gone")
    process.wait()


async def test_the_keeper_survives_a_stalled_owner(tmp_path: Path) -> None:
    """An owner that does not run for a while (SIGSTOP, a debugger) keeps its server."""
    with owner(tmp_path) as (process, server):
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(1.5)
        assert server.alive
        process.send_signal(signal.SIGCONT)
