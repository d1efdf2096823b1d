"""One pass over the whole log, in order: every message once, a few numbers kept for each run."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ...store.checkpoints import is_checkpoint
from ...topics.bus import Bus
from ...topics.ids import root_of
from ...topics.reads import Stored
from .blobs import BlobUses
from .canceled import Canceled
from .checkpoints import Snapshots
from .findings import Findings
from .journal import check_entries
from .paths import check_state, read_state
from .timetable import Timetable
from .track import Track
from .tree import Tree


class History:
    """What the log says. `truncated`: it has lost its beginning, so a run may begin anywhere."""

    def __init__(self, bus: Bus, findings: Findings, uses: BlobUses | None, *, truncated: bool) -> None:
        self._subjects, self._findings, self._uses, self._truncated = bus.subjects, findings, uses, truncated
        self.tracks: dict[str, Track] = {}
        self.tree = Tree(self.tracks, findings)
        self.canceled = Canceled({}, ())
        self.snapshots = Snapshots(findings, truncated=truncated)
        self.timetable = Timetable(bus.subjects, findings, truncated=truncated)
        self.events = 0

    def read(self, page: Iterable[Stored]) -> None:
        """The next messages of the log, of any subject."""
        for stored in page:
            family = stored.subject.split(".", 2)[1]
            if family == "run":
                self._event(stored)
            elif family == "schedule":
                self.timetable.definition(stored)
            elif family == "label":
                self.snapshots.label(stored)
            elif family == "thread" and self._uses is not None:
                self._uses.thread(stored)

    def _event(self, stored: Stored) -> None:
        self.events += 1
        words = stored.subject.split(".")
        if len(words) != 5 or root_of(words[3]) != words[2]:
            self._findings.add("subject_unknown", None, stored.subject[:200], sequence=stored.sequence)
            return
        _, _, root, run, kind = words
        if kind == "state":
            self._state(stored, root, run)
        else:
            self._entry(stored, run)

    def _state(self, stored: Stored, root: str, run: str) -> None:
        record = read_state(stored, root, run, self._findings)
        if record is None:
            return
        track = self.tracks.get(run)
        if track is None:
            track = self.tracks[run] = Track()
        check_state(track, record, stored.sequence, self._findings, truncated=self._truncated)
        if track.status is None:
            self.tree.begins(record, stored.sequence)
            self.timetable.begins(record, stored.sequence)
        if self._uses is not None:
            self._uses.record(record, stored.sequence)
        track.take(record, stored.sequence)
        if track.parent is not None:
            track.parent = sys.intern(track.parent)

    def _entry(self, stored: Stored, run: str) -> None:
        track = self.tracks.get(run)
        if track is None:
            track = self.tracks[run] = Track()
            track.sequence = stored.sequence
            if not self._truncated:
                found = f"an event of kind {stored.kind!r} before any state"
                self._findings.add("state_missing", run, found, sequence=stored.sequence)
        found_entries = check_entries(track, run, stored, self._findings)
        if is_checkpoint(stored.kind):
            cells = self.snapshots.take(track, run, stored)
            if self._uses is not None:
                self._uses.cells(run, cells, stored.sequence)
        self.tree.entries(run, found_entries, stored.sequence)
        if self._uses is not None:
            self._uses.entries(run, found_entries, stored.sequence)

    # -- afterwards ---------------------------------------------------------------------------------------------

    def ended(self, run: str) -> bool:
        """Whether the log holds the end of a run."""
        track = self.tracks.get(run)
        return track is not None and track.ended

    @property
    def live(self) -> list[str]:
        """The runs that have not ended."""
        return [run for run, track in self.tracks.items() if track.status is not None and not track.ended]

    def close(self) -> None:
        """At the end of the log."""
        self.canceled = Canceled(self.tracks, self.live)
        self.snapshots.close()
        if not self._truncated:
            self.tree.orphans()
