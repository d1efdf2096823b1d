"""The path of each run: its states one after the other, and nothing behind the last."""

from __future__ import annotations

from ...store.log import decode_record
from ...topics.errors import InvalidMessage
from ...topics.messages import RunRecord, Status
from ...topics.reads import Stored
from ..coordinator.transitions import LEGAL
from .findings import Findings
from .track import Track

FIRST = frozenset({Status.QUEUED, Status.REJECTED})
"""How a run may begin."""
_COUNTERS = ("attempt", "dispatch", "epoch")


def read_state(stored: Stored, root: str, run: str, findings: Findings) -> RunRecord | None:
    """The record in a state event; None, and a finding, when it is none or that of another run."""
    try:
        record = decode_record(stored.data)
    except (InvalidMessage, RecursionError) as error:
        findings.add("state_unreadable", run, str(error), sequence=stored.sequence)
        return None
    if record.id != run or record.root != root:
        findings.add(
            "state_misplaced", run, f"the record names run {record.id[:80]!r} of root {record.root[:80]!r}",
            expected=f"run {run!r} of root {root!r}", sequence=stored.sequence,
        )  # fmt: skip
        return None
    return record


def check_state(track: Track, record: RunRecord, sequence: int, findings: Findings, *, truncated: bool) -> None:
    """Compares a state with the one before it."""
    if track.status is None:
        _check_first(record, sequence, findings, truncated=truncated)
        return
    if track.ended:
        _check_end(track, record, sequence, findings)
        return
    path = f"{track.status} (revision {track.rev}) → {record.status} (revision {record.rev})"
    legal = LEGAL.get(track.status, frozenset())
    if record.status not in legal:
        findings.add(
            "path_illegal", record.id, path,
            expected=f"{track.status} → one of {', '.join(sorted(legal)) or 'nothing'}", sequence=sequence,
        )  # fmt: skip
    if record.rev != track.rev + 1:
        findings.add("revision_gap", record.id, path, expected=f"revision {track.rev + 1}", sequence=sequence)
    if track.pinned is not None and (not record.pin or record.version != track.pinned):
        after = f"pinned to {record.version!r}" if record.pin else "not pinned"
        findings.add("pin_moved", record.id, f"{after} after version {track.pinned!r}: {path}", sequence=sequence)
    for name in _COUNTERS:
        before, after = getattr(track, name), getattr(record, name)
        if after < before:
            findings.add(
                "counter_shrinks", record.id, f"{name} {after} after {before}: {path}",
                expected=f"{name} of at least {before}", sequence=sequence,
            )  # fmt: skip


def _check_first(record: RunRecord, sequence: int, findings: Findings, *, truncated: bool) -> None:
    if truncated and record.rev > 1:
        return
    if record.status not in FIRST or record.rev != 1:
        findings.add(
            "first_state_illegal", record.id, f"it begins as {record.status} with revision {record.rev}",
            sequence=sequence,
        )  # fmt: skip


def _check_end(track: Track, record: RunRecord, sequence: int, findings: Findings) -> None:
    if record.terminal:
        findings.add(
            "second_outcome", record.id, f"{record.status} (revision {record.rev}) after {track.status}",
            sequence=sequence,
        )  # fmt: skip
    else:
        check_late(track, record.id, f"state {record.status}", sequence, findings)


def check_late(track: Track, run: str, what: str, sequence: int, findings: Findings) -> None:
    """Something was written after the end: said once for a run."""
    if not track.late:
        track.late = True
        findings.add("write_after_end", run, f"{what} after {track.status}", sequence=sequence)
