"""Parents and children, as the log tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...store.journal import Entry
from ...topics.messages import RunRecord, Status, Step
from .findings import Findings, Suspect, suspect
from .track import Track


class Tree:
    """Keeps only what is open: children that were recorded and have no run yet, parents that are not known yet."""

    def __init__(self, tracks: Mapping[str, Track], findings: Findings) -> None:
        self._tracks, self._findings = tracks, findings
        self._unstarted: dict[str, str] = {}
        self._unknown: dict[str, str] = {}

    def begins(self, record: RunRecord, sequence: int) -> None:
        """The first state of a run."""
        recorder = self._unstarted.pop(record.id, None)
        if recorder is not None:
            self._check(record.id, recorder, record.parent, sequence)
        if record.parent is not None and record.parent not in self._tracks:
            self._unknown[record.id] = record.parent

    def entries(self, run: str, found: Iterable[Entry], sequence: int) -> None:
        """Entries of a run's journal."""
        for entry in found:
            if not isinstance(entry, Step) or entry.child is None or entry.status == "started":
                continue
            track = self._tracks.get(entry.child)
            if track is None or track.status is None:
                self._unstarted[entry.child] = run
            else:
                self._check(entry.child, run, track.parent, sequence)

    def _check(self, child: str, recorder: str, parent: str | None, sequence: int) -> None:
        if parent != recorder:
            self._findings.add(
                "child_misplaced", child, f"it names parent {parent}, and was recorded by {recorder}",
                expected=f"parent {recorder}", sequence=sequence,
            )  # fmt: skip

    def orphans(self) -> None:
        """At the end of the log: children whose parent has no run."""
        for child, parent in self._unknown.items():
            track = self._tracks.get(parent)
            if track is None or track.status is None:
                sequence = self._tracks[child].sequence
                self._findings.add("parent_missing", child, f"its parent {parent} has no run", sequence=sequence)

    def unstarted(self) -> Iterator[Suspect]:
        """Children that a completed parent has recorded and that have no run."""
        for child, parent in self._unstarted.items():
            track = self._tracks.get(parent)
            if track is not None and track.status is Status.COMPLETED:
                yield suspect(
                    "child_unstarted", child, f"parent {parent} has recorded it and is completed; it has no run",
                    sequence=track.sequence,
                )  # fmt: skip
