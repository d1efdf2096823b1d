"""What is said of a checkpoint wherever it is shown: over HTTP and on the command line."""

from __future__ import annotations

from typing import Any

from .marks import Marks
from .state import Saved


def outline(saved: Saved, marks: Marks) -> dict[str, Any]:
    """A checkpoint without its values. `changed` names the channels of which its message holds something new;
    `size_bytes` is that of the message, without what lies in the object store."""
    made = saved.checkpoint
    return {
        "id": saved.id, "parent": saved.parent, "run": saved.run, "namespace": made.ns, "created_at": saved.time,
        "step": made.step, "source": made.source, "attempt": made.attempt, "agent": made.agent,
        "version": made.version, "schema_version": made.schema, "fingerprint": made.fingerprint, "ran": made.ran,
        "next": made.next, "labels": marks.names_of(saved), "channels": saved.channels, "changed": sorted(made.put),
        "size_bytes": saved.size_bytes,
    }  # fmt: skip
