"""Canceled trees: what still lives below a run that was canceled with its tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...store.log import Loaded
from ...topics.messages import RunRecord, Status
from ...topics.subjects import Subjects
from . import remedies
from .findings import Suspect, suspect
from .track import Track

_BY_WISH = frozenset({Status.CANCELED, Status.INTERRUPTED, Status.ROLLED_BACK, Status.TIMED_OUT})
_DEEPEST = 10_000


class Canceled:
    """As the log tells: `below` has the live runs below each tree whose cancel is under way, `above` those that live
    below one whose cancel is over, with the canceled run. What was detached is not below."""

    def __init__(self, tracks: Mapping[str, Track], live: Iterable[str]) -> None:
        self.below: dict[str, list[str]] = {}
        self.above: dict[str, str] = {}
        for run in live:
            for ancestor in _ancestors(tracks, run):
                track = tracks[ancestor]
                if track.tree and track.status is Status.CANCEL_REQUESTED:
                    self.below.setdefault(ancestor, []).append(run)
                elif track.tree and track.status in _BY_WISH:
                    self.above[run] = ancestor

    def survivor(self, record: RunRecord, sequence: int, subjects: Subjects) -> Iterator[Suspect]:
        """A run that lives although its tree has ended."""
        ancestor = self.above.get(record.id)
        if ancestor is not None:
            yield suspect(
                "tree_survivor", record.id, f"it is {record.status}, and run {ancestor} above it was canceled with its "
                "tree and has ended",
                sequence=sequence, remedy=remedies.cancel(subjects, record.id, ancestor),
            )  # fmt: skip

    def unfinished(self, record: RunRecord, sequence: int, subjects: Subjects, live: list[Loaded]) -> Iterator[Suspect]:
        """A tree whose cancel does not go on; `live` is what lives below the run, which itself waits
        for no worker. One run that was not told is named: as long as it is another one at each look, it goes on."""
        if record.status is not Status.CANCEL_REQUESTED or record.cancel is None or record.cancel.scope != "tree":
            return
        untold = next((one for one in live if one.record.status is not Status.CANCEL_REQUESTED), None)
        if untold is not None:
            found, sequence = f"run {untold.record.id} below it is {untold.record.status}, uncanceled", untold.sequence
        elif not live and record.worker is None:
            found = "all below it has ended, and it has not"
        else:
            return
        yield suspect(
            "tree_unfinished", record.id, found, sequence=sequence, remedy=remedies.sweep(subjects, record.id)
        )


def _ancestors(tracks: Mapping[str, Track], run: str) -> Iterator[str]:
    """The runs above, up to one that the way there was detached from."""
    for _ in range(_DEEPEST):  # a corrupted log may hold a circle
        track = tracks[run]
        if track.parent is None or track.detached or track.parent not in tracks:
            return
        run = track.parent
        yield run
