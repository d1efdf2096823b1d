"""The read model as the gateway sees it: opened when it is there, reopened when it was replaced, never made here."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from ..store.projection import Projection, ProjectionError
from .errors import ProjectionMissing
from .models import ProjectionState

log = logging.getLogger(__name__)


class Shelf:
    """Holds the projection file open for reading."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._projection: Projection | None = None
        self._inode = 0
        self._lock = asyncio.Lock()

    async def projection(self, min_sequence: int = 0, timeout_s: float = 5.0) -> Projection:
        """The read model, once it has applied `min_sequence`.

        Raises ProjectionMissing, ProjectionBehind, ProjectionError."""
        async with self._lock:
            found = await self._opened()
        if min_sequence:
            await found.wait_applied(min_sequence, timeout_s)
        return found

    async def _opened(self) -> Projection:
        try:
            inode = self._path.stat().st_ino
        except OSError as error:
            await self.close()
            raise ProjectionMissing(
                f"there is no read model at {self._path}: lists need a projector (`callboard projector`, or one inside "
                "the gateway's process); single runs and their events do not",
                path=str(self._path),
            ) from error
        if self._projection is not None and inode != self._inode:
            await self.close()
        if self._projection is None:
            self._projection = await Projection.open(self._path)
            self._inode = self._path.stat().st_ino
        return self._projection

    async def state(self) -> ProjectionState:
        """Whether lists can be served, and how far the read model is."""
        try:
            found = await self.projection()
            await found.position()
        except ProjectionMissing as error:
            return ProjectionState(state="missing", reason=error.message)
        except ProjectionError as error:
            return ProjectionState(state="failed", reason=error.message)
        return ProjectionState(state="ok", applied=found.applied)

    async def close(self) -> None:
        """Closes the file."""
        if self._projection is not None:
            await self._projection.close()
            self._projection = None
