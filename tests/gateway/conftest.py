"""One installation a module: a namespace, a coordinator, a projector, a gateway as a process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.topics.config import BrokerSettings
from callboard.topics.ids import new_token

from .serving import Gateway, backstage, gateway


@pytest.fixture(scope="module")
def settings(nats: ServerProcess) -> Iterator[BrokerSettings]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("NATS_URL", "NATS_CREDS", "NATS_TOKEN"):
            patch.delenv(name, raising=False)
        yield BrokerSettings(nats_url=nats.url, namespace=f"t{new_token(8)}")


@pytest.fixture(scope="module")
def projection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("projection") / "projection.db"


@pytest.fixture(scope="module")
def served(settings: BrokerSettings, projection: Path) -> Iterator[Gateway]:
    """A whole installation behind a gateway."""
    with (
        backstage(settings, projection),
        gateway(settings, projection, ping_s=0.5, body_limit=8 * 1024 * 1024) as found,
    ):
        yield found


@pytest.fixture
async def http(served: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served.url, timeout=20) as client:
        yield client
