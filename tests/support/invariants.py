"""What must hold of every log, whatever was killed meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from callboard.actors.audit import Finding, Report, audit
from callboard.store.log import EventLog, decode_record
from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.messages import RunRecord


async def histories(bus: Bus) -> dict[str, list[reads.Stored]]:
    """The events of every run of the installation, in order."""
    found: dict[str, list[reads.Stored]] = defaultdict(list)
    async for page in reads.read(bus, bus.subjects.events, f"{bus.subjects.run}.>"):
        for stored in page:
            found[stored.subject.split(".")[3]].append(stored)
    return dict(found)


async def check(bus: Bus, accepted: Iterable[str] = ()) -> dict[str, RunRecord]:
    """Has the product's auditor check the whole log; returns the last record of every run. Raises AssertionError with
    what it finds.

    Each accepted run exists and has ended. Dead letters are no fault: they are what is done with garbage."""
    accepted = list(accepted)
    report = await audit(bus, expected=accepted)
    assert report.clean, "\n".join(
        f"{one.code} {one.run}: {one.found}; expected: {one.expected}" for one in broken(report)
    )
    last: dict[str, RunRecord] = {}
    for run, events in (await histories(bus)).items():
        last[run] = [decode_record(stored.data) for stored in events if stored.kind == "state"][-1]
    for run in accepted:
        assert last[run].terminal, f"accepted run {run} is {last[run].status}: {last[run].reason}"
    return last


def broken(report: Report) -> list[Finding]:
    """The findings that are more than notes."""
    return [one for one in report.findings if one.severity != "note" and not one.mended]


async def load(bus: Bus, run: str) -> RunRecord:
    """The record of one run."""
    return (await EventLog(bus).require(run)).record
