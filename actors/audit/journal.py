"""The entries of each run: who wrote them, whether they can be read, and whether a step was finished twice."""

from __future__ import annotations

from collections.abc import Iterator

from ...store.journal import ENTRY_KINDS, Entry, entries
from ...topics.errors import InvalidMessage
from ...topics.messages import Status, Step
from ...topics.reads import Stored
from .findings import Findings
from .paths import check_late
from .track import Track

_OWNED = {"effect": frozenset({Status.RUNNING, Status.CANCEL_REQUESTED})}
"""While a run is being canceled its effects are undone, and nothing else of it is written."""
_RUNNING = frozenset({Status.RUNNING})


def check_entries(track: Track, run: str, stored: Stored, findings: Findings) -> list[Entry]:
    """Checks an event that is no state; its entries, without those that were stored twice.

    A run whose states have not been seen (retention took them) is not judged."""
    if track.ended:
        check_late(track, run, f"an event of kind {stored.kind!r}", stored.sequence, findings)
        return []
    if stored.kind not in ENTRY_KINDS:
        return []
    try:
        found = entries(stored)
    except (InvalidMessage, RecursionError) as error:
        findings.add("entry_unreadable", run, str(error), sequence=stored.sequence)
        return []
    _check_owner(track, run, stored, found, findings)
    return list(_once(track, run, stored, found, findings))


def _check_owner(track: Track, run: str, stored: Stored, found: list[Entry], findings: Findings) -> None:
    if track.status is None:
        return
    strangers = sorted({entry.attempt for entry in found} - {track.attempt})
    if track.status in _OWNED.get(stored.kind, _RUNNING) and not strangers:
        return
    who = ", ".join(map(str, strangers or [track.attempt]))
    findings.add(
        "write_not_owned", run, f"{stored.kind} of attempt {who} while the run is {track.status}",
        expected=f"entries of attempt {track.attempt} alone, while it is running", sequence=stored.sequence,
    )  # fmt: skip


def _once(track: Track, run: str, stored: Stored, found: list[Entry], findings: Findings) -> Iterator[Entry]:
    for entry in found:
        if isinstance(entry, Step):
            if not track.fresh(entry):
                continue
            if entry.status != "started" and entry.child is None and not track.finish(entry):
                findings.add(
                    "step_doubled", run,
                    f"{entry.kind} {entry.name!r} at {entry.at} is finished again by attempt {entry.attempt}",
                    sequence=stored.sequence,
                )  # fmt: skip
        yield entry
