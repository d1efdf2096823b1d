"""Artifacts: the named results of a run."""

from __future__ import annotations

import logging

from ..topics import reads
from ..topics.bus import Bus
from ..topics.errors import InvalidMessage, NotFound
from ..topics.ids import require_run_id
from ..topics.messages import Artifact
from .blobs import Blobs
from .errors import naming
from .journal import Seen, entries

log = logging.getLogger(__name__)


class Artifacts:
    """Reads `cb.run.{root}.{run}.artifact`; an artifact published again under its name is a newer version of it."""

    def __init__(self, bus: Bus, blobs: Blobs) -> None:
        self._bus, self._blobs = bus, blobs

    async def list(self, run: str) -> list[Artifact]:
        """The newest version of each artifact of the run, in the order in which the names first came.

        What cannot be read is left out with a warning. A run that does not exist has no artifacts."""
        subject = self._bus.subjects.event(require_run_id(run), "artifact")
        newest: dict[str, Artifact] = {}
        seen = Seen()
        async for page in reads.read(self._bus, self._bus.subjects.events, subject):
            for stored in page:
                try:
                    found = entries(stored)
                except InvalidMessage as error:
                    log.warning("an artifact is left out: %s", error)
                    continue
                fresh = (entry for entry in found if seen.fresh(entry))
                newest.update((entry.name, entry) for entry in fresh if isinstance(entry, Artifact))
        return [*newest.values()]

    async def read(self, run: str, name: str) -> tuple[Artifact, bytes]:
        """The newest version of an artifact and its content. Raises NotFound, BlobMissing, BlobCorrupt, Unavailable."""
        for artifact in await self.list(run):
            if artifact.name == name:
                return artifact, await self._content(run, artifact)
        raise NotFound(f"run {run} has no artifact {name[:80]!r}", run=run, artifact=name)

    async def _content(self, run: str, artifact: Artifact) -> bytes:
        if artifact.ref is not None:
            with naming(f"artifact {artifact.name[:80]!r}", run):
                return await self._blobs.get(artifact.ref)
        if artifact.base64 is not None:
            return artifact.base64
        return (artifact.text or "").encode()
