"""What must hold of every log, whatever was killed meanwhile."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable

from callboard.actors.coordinator.transitions import LEGAL
from callboard.store.journal import ENTRY_KINDS, Seen, entries
from callboard.store.log import EventLog, decode_record
from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.messages import TERMINAL, RunRecord, Status, Step


async def histories(bus: Bus) -> dict[str, list[reads.Stored]]:
    """The events of every run of the installation, in order."""
    found: dict[str, list[reads.Stored]] = defaultdict(list)
    async for page in reads.read(bus, bus.subjects.events, f"{bus.subjects.run}.>"):
        for stored in page:
            found[stored.subject.split(".")[3]].append(stored)
    return dict(found)


async def check(bus: Bus, accepted: Iterable[str] = ()) -> dict[str, RunRecord]:
    """Checks the whole log; returns the last record of every run. Raises AssertionError with the run at fault.

    Each accepted run exists and has ended, by a legal path, with one outcome and nothing written after it; counters
    only grow; no finished step was finished again; each child that was recorded by its parent has a run."""
    last: dict[str, RunRecord] = {}
    children: dict[str, str] = {}
    for run, events in (await histories(bus)).items():
        last[run] = _check_path(run, events)
        children |= _check_steps(run, events)
    for run in accepted:
        assert run in last, f"accepted run {run} has no record"
        assert last[run].terminal, f"accepted run {run} is {last[run].status}: {last[run].reason}"
    for child, parent in children.items():
        if last[parent].status is Status.COMPLETED:
            assert child in last, f"child {child} of {parent} was recorded and has no run"
            assert last[child].parent == parent
    return last


def _check_path(run: str, events: list[reads.Stored]) -> RunRecord:
    records = [decode_record(stored.data) for stored in events if stored.kind == "state"]
    assert records, f"{run} has events and no state"
    assert records[0].status is Status.QUEUED, f"{run} begins as {records[0].status}"
    for before, after in itertools.pairwise(records):
        path = f"{run}: {before.status} (rev {before.rev}) → {after.status} (rev {after.rev})"
        assert after.status in LEGAL.get(before.status, ()), f"illegal {path}"
        assert after.rev == before.rev + 1, f"a state is missing or doubled: {path}"
        for counter in ("attempt", "dispatch", "epoch"):
            assert getattr(after, counter) >= getattr(before, counter), f"{counter} shrinks: {path}"
    assert sum(record.status in TERMINAL for record in records) <= 1, f"{run} has two outcomes"
    if records[-1].terminal:
        assert events[-1].kind == "state", f"{run}: {events[-1].subject} was written after the end"
    return records[-1]


def _check_steps(run: str, events: list[reads.Stored]) -> dict[str, str]:
    seen, finished = Seen(), set()
    children: dict[str, str] = {}
    owner = 0
    for stored in events:
        if stored.kind == "state":
            owner = decode_record(stored.data).attempt
        if stored.kind not in ENTRY_KINDS:
            continue
        for entry in entries(stored):
            assert entry.attempt == owner, f"{run}: attempt {entry.attempt} wrote while {owner} owned the run"
            if not isinstance(entry, Step) or not seen.fresh(entry) or entry.status == "started":
                continue
            if entry.child is not None:
                children[entry.child] = run
            elif entry.status == "done":
                assert entry.at not in finished, f"{run}: step {entry.name} at {entry.at} was finished twice"
                finished.add(entry.at)
    return children


async def load(bus: Bus, run: str) -> RunRecord:
    """The record of one run."""
    return (await EventLog(bus).require(run)).record
