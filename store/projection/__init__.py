"""The read model: lists, filters and trees of what the log holds, in one SQLite file that can always be built again.

From the bottom: `errors` and `row` (what goes out), `schema`, `database` (the file and its connections), `change` (a
batch of messages folded), `apply` (a batch written, with the stream sequence, in one transaction), `cursor` and `query`
(reading), `digest`, `projection` (the façade of all these), `reader` (the stream in order) and `feed` (the two joined,
for ever).
"""

from .errors import (
    ProjectionBehind,
    ProjectionBusy,
    ProjectionCorrupt,
    ProjectionError,
    ProjectionFull,
    ProjectionMoved,
    ProjectionReadOnly,
)
from .feed import ProjectionFeed
from .projection import Projection
from .row import ArtifactRow, ArtifactVersion, Counts, Page, RunFilter, RunRow, SkippedRow, Still, ThreadRow

__all__ = [
    "ArtifactRow",
    "ArtifactVersion",
    "Counts",
    "Page",
    "Projection",
    "ProjectionBehind",
    "ProjectionBusy",
    "ProjectionCorrupt",
    "ProjectionError",
    "ProjectionFeed",
    "ProjectionFull",
    "ProjectionMoved",
    "ProjectionReadOnly",
    "RunFilter",
    "RunRow",
    "SkippedRow",
    "Still",
    "ThreadRow",
]
