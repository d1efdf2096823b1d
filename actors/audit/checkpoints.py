"""The checkpoints of each run: who wrote them, what they come after, and whether what they point to is there."""

from __future__ import annotations

from array import array
from bisect import bisect_left

import msgspec

from ...store.checkpoints.state import Saved, pointers
from ...topics.errors import InvalidMessage
from ...topics.messages import Cell, Label, Status
from ...topics.reads import Stored
from .findings import Findings
from .track import Track

_CARRIED = frozenset({"loop", "code"})
_decode_label = msgspec.json.Decoder(Label).decode


class Snapshots:
    """What is kept of checkpoints while the log is read: where they are and which channels each holds, in 12 bytes a
    checkpoint."""

    def __init__(self, findings: Findings, *, truncated: bool) -> None:
        self._findings, self._truncated = findings, truncated
        self._sequences, self._held = array("q"), array("l")
        self._names: dict[tuple[str, ...], int] = {}
        self._sets: list[tuple[str, ...]] = []
        self._steps: dict[tuple[str, str], tuple[str, int, int, int]] = {}
        self._orphans: list[tuple[str, int, int]] = []
        self._pruned = 0

    def take(self, track: Track, run: str, stored: Stored) -> list[Cell]:
        """The next checkpoint; the cells that it holds."""
        try:
            saved = Saved.of(stored)
        except (InvalidMessage, RecursionError) as error:
            self._findings.add("entry_unreadable", run, str(error), sequence=stored.sequence)
            return []
        self._owner(track, run, saved)
        self._order(run, stored.kind, saved)
        made = saved.checkpoint
        self._sequences.append(saved.sequence)
        self._held.append(self._set_of(tuple(sorted(made.put))))
        if made.parent and not self._has(made.parent):
            self._orphans.append((run, saved.sequence, made.parent))
        self._pointers(run, saved)
        return [*made.put.values(), *([made.plan] if made.plan is not None else [])]

    def label(self, stored: Stored) -> None:
        """A label; one that says up to where pruning may have taken checkpoints."""
        if stored.kind != "@pruned":
            return
        try:
            self._pruned = max(self._pruned, _decode_label(stored.data).checkpoint)
        except msgspec.MsgspecError as error:
            self._findings.add("entry_unreadable", None, f"no label: {error}", sequence=stored.sequence)

    def close(self) -> None:
        """At the end of the log."""
        for run, sequence, parent in self._orphans:
            if not self._truncated and parent > self._pruned:
                self._findings.add(
                    "checkpoint_orphan", run, f"its parent {parent} is not in the log", sequence=sequence
                )  # fmt: skip

    def _set_of(self, names: tuple[str, ...]) -> int:
        """The number of a set of channels: there are few of them."""
        known = self._names.get(names)
        if known is None:
            known = self._names[names] = len(self._sets)
            self._sets.append(names)
        return known

    def _has(self, sequence: int, name: str | None = None) -> bool:
        at = bisect_left(self._sequences, sequence)
        if at == len(self._sequences) or self._sequences[at] != sequence:
            return False
        return name is None or name in self._sets[self._held[at]]

    def _owner(self, track: Track, run: str, saved: Saved) -> None:
        made = saved.checkpoint
        if track.status is None:
            return
        if made.source == "update" and not made.n:
            good, rule = track.status is not Status.RUNNING, "an edit from outside while nobody carries the run out"
        else:
            good = track.status is Status.RUNNING and made.attempt == track.attempt
            rule = f"checkpoints of attempt {track.attempt} alone, while it is running"
        if not good:
            found = f"checkpoint of attempt {made.attempt} while the run is {track.status}"
            self._findings.add("write_not_owned", run, found, expected=rule, sequence=saved.sequence)

    def _order(self, run: str, kind: str, saved: Saved) -> None:
        made = saved.checkpoint
        mark = (made.scope, made.step, made.attempt, made.n)
        last = self._steps.get((run, kind))
        self._steps[run, kind] = mark
        if last is None or last == mark or last[0] != made.scope:
            return
        if made.step < last[1] or (made.step == last[1] and made.source in _CARRIED):
            found = f"step {made.step} ({made.source}) after step {last[1]}"
            self._findings.add("checkpoint_order", run, found, sequence=saved.sequence)

    def _pointers(self, run: str, saved: Saved) -> None:
        if self._truncated:
            return
        spots = [spot for levels in pointers(saved).values() for level in levels for spot in level]
        lost = [f"{name} in {number}" for number, name in spots if not self._has(number, name)]
        if lost:
            found = f"{len(lost)} values are not where it says: {', '.join(lost[:5])}"
            self._findings.add("checkpoint_broken", run, found, sequence=saved.sequence)
