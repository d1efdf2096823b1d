"""Fixtures for all tests: a private nats-server for each module, a namespace and a connection for each test."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.ids import new_token
from callboard.topics.streams import ensure_streams
from tests.support.nats import private_server

_WEIGHTS = {"chaos": 1000, "slow": 100, "cluster": 80, "system": 50, "crash": 50, "compose": 30, "cli": 5, "gateway": 5}
"""By folder or marker: about how many ordinary tests one of these weighs as much as."""


@pytest.hookimpl(trylast=True)  # what is not asked for has been left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest come first, so that no processor waits for the last of them in the end."""
    weights: Counter[Path] = Counter()
    for item in items:
        names = {item.path.parent.name, *(mark.name for mark in item.iter_markers())}
        weights[item.path] += max(_WEIGHTS.get(name, 1) for name in names)
    items.sort(key=lambda item: -weights[item.path])


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A nats-server of the module's own; `nats.kill()` and `nats.start()` crash and restart it."""
    folder: Path = tmp_path_factory.mktemp("nats")
    with private_server(folder) as server:
        yield server


@pytest.fixture
def settings(nats: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> BrokerSettings:
    """The settings of an installation of the test's own: a fresh namespace on the module's server."""
    for name in ("NATS_URL", "NATS_CREDS", "NATS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return BrokerSettings(nats_url=nats.url, namespace=f"t{new_token(8)}")


@pytest.fixture
async def bus(settings: BrokerSettings) -> AsyncIterator[Bus]:
    """A connection, with all streams declared."""
    connection = await Bus.connect(settings)
    try:
        await ensure_streams(connection, settings)
        yield connection
    finally:
        await connection.close()


@pytest.fixture
def unlogged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is logged: a report of a test that has half a character in it would not reach the process that prints
    it."""
    for name in [one for one in logging.root.manager.loggerDict if one.startswith("callboard")]:
        monkeypatch.setattr(logging.getLogger(name), "disabled", True)
