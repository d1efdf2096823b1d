"""The embedded server: start, readiness, stop, restart, and what it says when it cannot start."""

import asyncio
import os
import signal
import socket
from datetime import timedelta
from pathlib import Path

import nats
import pytest

from callboard.runtime.nats_mark import ProcessMark
from callboard.runtime.nats_port import free_ports
from callboard.runtime.nats_server import (
    EmbeddedServer,
    ServerProcess,
    ServerSettings,
    ServerStartFailed,
    StateFolderInUse,
)
from callboard.topics.errors import InvalidInput
from callboard.topics.server import require_server
from tests.support.nats import eventually, private_server


async def store(url: str, data: bytes) -> None:
    client = await nats.connect(url)
    try:
        await client.jetstream().add_stream(name="KEPT", subjects=["kept"])
        await client.jetstream().publish("kept", data)
    finally:
        await client.close()


async def stored(url: str) -> list[bytes]:
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        state = (await stream.stream_info("KEPT")).state
        messages = [await stream.get_msg("KEPT", sequence) for sequence in range(1, state.last_seq + 1)]
        return [message.data or b"" for message in messages]
    finally:
        await client.close()


async def test_it_serves_jetstream_on_loopback_and_is_gone_afterwards(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / "state") as server:
        assert server.url.startswith("nats://127.0.0.1:")
        pid = server.pid
        assert pid is not None
        client = await nats.connect(server.url)
        account = await client.request("$JS.API.INFO", b"")
        await client.close()
        assert b'"level"' in account.data
        require_server(server.info)
        mark = ProcessMark.of(pid)
    assert mark is not None
    assert not mark.alive
    assert server.pid is None
    assert "Server Exiting" in server.log_tail()


async def test_streams_and_port_stay_over_starts(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path) as first:
        await store(first.url, b"a fact")
    async with EmbeddedServer(tmp_path) as second:
        assert second.url == first.url
        assert await stored(second.url) == [b"a fact"]


async def test_a_killed_server_is_noticed_and_restarted_on_its_port(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path) as server:
        await store(server.url, b"acknowledged")
        url, pid = server.url, server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert await asyncio.wait_for(server.wait(), 10) == 137
        await server.restart()
        assert server.url == url
        assert server.pid not in {None, pid}
        assert await stored(url) == [b"acknowledged"]


async def test_a_client_that_keeps_dialling_finds_the_server_again(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path) as server:
        back = asyncio.Event()

        async def quiet(_error: Exception) -> None: ...

        async def reconnected() -> None:
            back.set()

        client = await nats.connect(
            server.url, reconnect_time_wait=0.05, max_reconnect_attempts=-1, error_cb=quiet, reconnected_cb=reconnected
        )
        os.kill(server.pid or 0, signal.SIGKILL)
        await server.wait()
        await asyncio.sleep(0.3)  # some attempts against the closed port
        await server.restart()
        await asyncio.wait_for(back.wait(), 10)
        await client.close()


async def test_settings_reach_the_server(tmp_path: Path) -> None:
    settings = ServerSettings(name="stage", max_payload_bytes=64 * 1024, sync_interval="always", max_store_bytes=2**30)
    async with EmbeddedServer(tmp_path / 'a "quoted" $folder #1', settings) as server:
        assert server.info["max_payload"] == 64 * 1024
        assert server.info["server_name"] == "stage"
        await store(server.url, b"x")
        assert (tmp_path / 'a "quoted" $folder #1' / "jetstream").is_dir()
        assert "sync_interval: always" in (server.log_file.parent / "nats-server.conf").read_text()


async def test_a_payload_limit_above_the_pending_limit_is_accepted(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path, ServerSettings(max_payload_bytes=80 * 1024 * 1024)) as server:
        assert server.info["max_payload"] == 80 * 1024 * 1024


@pytest.mark.parametrize(
    "settings",
    [ServerSettings(max_payload_bytes=0), ServerSettings(sync_interval=timedelta(0)), ServerSettings(name="a\nb")],
)
async def test_settings_that_make_no_sense_are_refused_and_leave_the_folder_free(
    tmp_path: Path, settings: ServerSettings
) -> None:
    with pytest.raises(InvalidInput):
        await EmbeddedServer(tmp_path, settings).start()
    async with EmbeddedServer(tmp_path):
        pass


def test_a_synced_interval_is_written_in_milliseconds(tmp_path: Path) -> None:
    text = ServerSettings(sync_interval=timedelta(seconds=1.5), monitor_port=8222).render(tmp_path, 4222)
    assert 'sync_interval: "1500ms"' in text
    assert 'http: "127.0.0.1:8222"' in text


async def test_a_remembered_port_that_is_taken_is_replaced(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    (tmp_path / "port").write_text(str(port))
    with socket.create_server(("127.0.0.1", port)):
        async with EmbeddedServer(tmp_path) as server:
            assert not server.url.endswith(f":{port}")


async def test_a_wanted_port_that_is_taken_is_an_error_with_the_servers_own_words(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ServerStartFailed) as caught:
        await EmbeddedServer(tmp_path, ServerSettings(port=port)).start()
    assert "address already in use" in str(caught.value)
    assert caught.value.exit_code == 1
    assert caught.value.log == str(tmp_path / "nats-server.log")


async def test_a_broken_configuration_file_is_an_error_with_the_servers_own_words(tmp_path: Path) -> None:
    config = tmp_path / "broken.conf"
    config.write_text("listen: $NOT_SET_ANYWHERE\n")
    with pytest.raises(ServerStartFailed, match="variable reference for 'NOT_SET_ANYWHERE'"):
        await EmbeddedServer(tmp_path / "state", ServerSettings(port=4222, config_file=config)).start()
    with pytest.raises(InvalidInput, match="client port"):
        await EmbeddedServer(tmp_path / "state", ServerSettings(config_file=config)).start()


async def test_a_server_that_is_not_ready_in_time_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "nats-server"
    binary.write_text('#!/bin/sh\n[ "$1" = --version ] && echo nats-server: v2.15.0 && exit\nexec sleep 60\n')
    binary.chmod(0o755)
    monkeypatch.setenv("CALLBOARD_NATS_SERVER", str(binary))
    server = ServerProcess(tmp_path / "state", start_within=timedelta(seconds=0.5))
    with pytest.raises(ServerStartFailed, match=r"was not ready within 0\.5 s"):
        server.start()
    assert not server.running


async def test_a_cancelled_start_leaves_nothing_running(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    starting = asyncio.create_task(server.start())
    await asyncio.sleep(0.01)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    async with EmbeddedServer(tmp_path):  # the folder is free: no server holds its lock
        pass


async def test_a_second_server_in_the_same_folder_is_refused_and_told_of_the_first(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path) as first:
        with pytest.raises(StateFolderInUse) as caught:
            await EmbeddedServer(tmp_path, grace=timedelta(seconds=0.1)).start()
        error = caught.value
        assert (error.code, error.owner_pid, error.server_pid, error.url) == (
            "state_folder_in_use",
            os.getpid(),
            first.pid,
            first.url,
        )
        assert first.url in str(error)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: first.pid), 1) is not None


def test_ctrl_c_of_the_terminal_does_not_reach_the_server(tmp_path: Path) -> None:
    """A terminal signals its foreground process group; the server is in another session."""
    with private_server(tmp_path) as server:
        assert server.pid is not None
        assert os.getsid(server.pid) != os.getsid(0)
        assert os.getpgid(server.pid) != os.getpgid(0)


def test_a_server_that_ignores_sigterm_is_killed_after_the_grace_time(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, grace=timedelta(seconds=0.3))
    server.start()
    mark = ProcessMark.of(server.pid or 0)
    assert mark is not None
    os.kill(mark.pid, signal.SIGSTOP)  # a stopped process does not handle SIGTERM
    server.stop()
    eventually(lambda: not mark.alive, 5, "the stopped server is gone")
    assert server.exit_code == 137


def test_stop_may_be_called_at_any_time(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    server.stop()
    server.start()
    server.start()
    server.stop()
    server.stop()
    assert not server.running
