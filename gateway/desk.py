"""Everything the routes work with, in one place: made by the application, handed to each route."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from ..store.blobs import Blobs
from ..store.checkpoints import Checkpoints
from ..store.submit import Submitter
from ..topics.config import BrokerSettings
from ..topics.ids import require_run_id
from .config import GatewaySettings
from .link import Link
from .metrics import Metrics
from .shelf import Shelf
from .sse.hubs import Hubs


@dataclass
class Desk:
    """The connection, the read model, the event streams and the figures of one gateway."""

    settings: GatewaySettings
    broker: BrokerSettings
    metrics: Metrics = field(default_factory=Metrics)
    link: Link = field(init=False)
    shelf: Shelf = field(init=False)
    hubs: Hubs = field(init=False)

    def __post_init__(self) -> None:
        """Needs a running loop."""
        self.link = Link(self.broker)
        self.shelf = Shelf(self.settings.projection)
        self.hubs = Hubs(self.settings, self.link)

    def start(self) -> None:
        """Begins to connect."""
        self.link.start()
        self.hubs.start()

    async def close(self) -> None:
        """Ends streams, the connection and the read model."""
        await self.hubs.close()
        await self.link.close()
        await self.shelf.close()

    @property
    def blobs(self) -> Blobs:
        """Large values. Raises Unavailable before the first connection."""
        return self.link.blobs

    @property
    def checkpoints(self) -> Checkpoints:
        """States of runs. Raises Unavailable before the first connection."""
        return Checkpoints(self.link.bus, self.blobs)

    @property
    def submitter(self) -> Submitter:
        """The client's side of the run protocol. Raises Unavailable before the first connection."""
        return Submitter(self.link.bus, self.blobs)


def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


def _run(run: str) -> str:
    return require_run_id(run)


At = Annotated[Desk, Depends(_desk)]
RunPath = Annotated[str, Depends(_run)]
