"""What the runs of a thread have published, as it goes out over HTTP."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote

from ..store.projection import ArtifactVersion
from ..topics.messages import Status
from .models import Model


class ThreadArtifact(Model):
    """One version of an artifact: the same name from another run, or again from the same, is another version."""

    run: str
    run_status: Status
    name: str
    media_type: str
    size: int
    digest: str
    stored_at: datetime
    sequence: int
    href: str
    """Where the run's newest version of this name is."""


class ThreadArtifactPage(Model):
    """Versions in the order of the log."""

    artifacts: list[ThreadArtifact]
    next: int | None
    """Give it as `after` for the following page; null when this is the end."""


def page(found: list[ArtifactVersion], limit: int) -> ThreadArtifactPage:
    """A page of versions."""
    shown = [
        ThreadArtifact(
            run=one.run, run_status=one.status, name=one.name, media_type=one.media_type, size=one.size,
            digest=one.digest, stored_at=one.stored_at, sequence=one.sequence,
            href=f"/runs/{quote(one.run)}/artifacts/{quote(one.name)}",
        )
        for one in found
    ]  # fmt: skip
    return ThreadArtifactPage(artifacts=shown, next=found[-1].sequence if len(found) >= limit else None)
