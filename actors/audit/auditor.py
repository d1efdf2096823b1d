"""The audit as a whole: the log from end to end, what live runs are owed, and the repair."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from ...topics.bus import Bus
from ...topics.errors import NotFound
from .blobs import BlobUses
from .findings import Finding, Findings, Report, Suspect, finding, suspect
from .history import History
from .projection import Comparison
from .standing import Look
from .stream import Moment, messages

_LOOK_S = 0.25
"""Pause before the second look, twice as long before each further one: the grace time ends early when all has moved
on."""
_MEND_S = 10.0
_MEND_LOOK_S = 0.25


async def audit(
    bus: Bus,
    *,
    expected: Iterable[str] = (),
    wait_s: float = 3.0,
    pending_s: float = 60.0,
    repair: bool = False,
    blobs: bool = False,
    projection: Path | None = None,
    foreign_ok: bool = False,
) -> Report:
    """Audits the installation that the bus is connected to. Reads the whole log; keeps a few numbers a run.

    `expected`: runs that were accepted and so must exist. `wait_s`: what live runs lack counts when they lack it still
    after so many seconds without having changed. `pending_s`: for how long a task may wait in the INBOX. `repair`:
    publish what mends, and say whether it did. `blobs`: look for every blob as well. `projection`: a file to compare
    with the log; `foreign_ok` passes over one that was built from another log.

    Raises NotFound when there are no streams or no such file, BrokerError when the broker does not answer."""
    comparison = await Comparison.begin(projection) if projection is not None else None
    try:
        return await _Audit(bus, wait_s, pending_s, set(expected)).run(comparison, blobs, repair, foreign_ok)
    finally:
        if comparison is not None:
            await comparison.close()


class _Audit:
    def __init__(self, bus: Bus, wait_s: float, pending_s: float, expected: set[str]) -> None:
        self._bus, self._wait_s, self._pending_s, self._expected = bus, wait_s, pending_s, expected
        self._findings = Findings()
        self._loop = asyncio.get_running_loop()

    async def run(self, comparison: Comparison | None, blobs: bool, repair: bool, foreign_ok: bool) -> Report:
        bus, stream = self._bus, self._bus.subjects.events
        moment = await Moment.of(bus, stream)
        truncated = moment.first > 1 and moment.last > 0
        if comparison is not None:
            if foreign_ok and not comparison.belongs(moment, stream):
                comparison = None
            else:
                comparison.judge(moment, stream)
        uses = BlobUses() if blobs else None
        history = History(bus, self._findings, uses, truncated=truncated)
        async for page in messages(bus, stream, f"{bus.subjects.namespace}.>", moment.last):
            history.read(page)
            if comparison is not None:
                await comparison.read(page)
        history.close()
        live = history.live
        look, confirmed = await self._stand(history, live)
        await self._settle(history, confirmed, repair)
        if uses is not None:
            await uses.check(bus, self._findings)
        if comparison is not None:
            await comparison.report(self._findings, truncated=truncated)
        dead = await self._dead_letters()
        kept = sorted(self._findings.kept, key=lambda one: (one.sequence, one.run or "", one.code))
        return Report(
            clean=not self._findings.open, sequence=moment.last, events=history.events,
            runs=sum(track.status is not None for track in history.tracks.values()), live=len(live),
            tasks=look.inbox.tasks, commands=look.inbox.commands, dead_letters=dead, truncated=truncated,
            projection=None if comparison is None else str(comparison.path),
            counts=dict(sorted(self._findings.counts.items())), findings=kept,
        )  # fmt: skip

    # -- live runs ----------------------------------------------------------------------------------------------

    async def _stand(self, history: History, live: list[str]) -> tuple[Look, list[Suspect]]:
        """Looks until what is suspected has moved on, or the grace time is over: the last look, and what stayed."""
        look = await Look.at(self._bus, history)
        unstarted = list(history.tree.unstarted())
        absent = [run for run in self._expected if run not in history.tracks]
        suspects = await self._look(look, live, unstarted, absent)
        first, pause, deadline = look, _LOOK_S, self._loop.time() + self._wait_s
        while suspects and (left := deadline - self._loop.time()) > 0:
            await asyncio.sleep(min(left, pause))
            pause *= 2
            look = await Look.at(self._bus, history)
            runs = sorted({run for one in suspects.values() if (run := one.finding.run) is not None})
            again = await self._look(look, runs, unstarted, absent)
            suspects = {mark: again[mark] for mark in suspects if mark in again}
        return first, [*suspects.values(), *look.left()]

    async def _look(
        self, look: Look, live: list[str], unstarted: list[Suspect], absent: list[str]
    ) -> dict[tuple[str, str | None, int], Suspect]:
        found = [one async for one in look.runs(live)]
        found += [one async for one in look.schedules()]
        found += look.inbox.late(self._pending_s)
        children = {one.finding.run: one for one in unstarted if one.finding.run is not None}
        found += [children[run] async for run in look.missing(list(children))]
        found += [suspect("run_missing", run, "it has no record") async for run in look.missing(absent)]
        return {one.mark: one for one in found}

    # -- repair -------------------------------------------------------------------------------------------------

    async def _settle(self, history: History, confirmed: list[Suspect], repair: bool) -> None:
        mended: set[tuple[str, str | None]] = set()
        tried = [one for one in confirmed if repair and one.remedy is not None]
        if tried:
            for one in tried:
                assert one.remedy is not None
                await one.remedy.apply(self._bus)
            mended = await self._mended(history, tried)
        for one in confirmed:
            self._findings.take(_judged(one.finding, mended) if one in tried else one.finding)

    async def _mended(self, history: History, tried: list[Suspect]) -> set[tuple[str, str | None]]:
        """Looks until nothing that was mended is found any more, or ten seconds are over."""
        open_ = {(one.finding.code, one.finding.run) for one in tried}
        mended: set[tuple[str, str | None]] = set()
        deadline = self._loop.time() + max(_MEND_S, self._wait_s)
        while open_:
            look = await Look.at(self._bus, history)
            runs = sorted({run for _, run in open_ if run is not None})
            still = {(one.finding.code, one.finding.run) async for one in look.runs(runs)}
            still |= {(one.finding.code, one.finding.run) async for one in look.schedules()}
            still |= {(one.finding.code, one.finding.run) for one in look.left()}
            still |= {(code, run) for code, run in open_ if run in look.inbox.expected}
            mended |= open_ - still
            open_ &= still
            if self._loop.time() > deadline:
                break
            if open_:
                await asyncio.sleep(_MEND_LOOK_S)
        return mended

    async def _dead_letters(self) -> int:
        try:
            count = (await Moment.of(self._bus, self._bus.subjects.dead)).messages
        except NotFound:
            return 0
        if count:
            self._findings.take(finding("dead_letters", None, f"{count} messages were set aside"))
        return count


def _judged(one: Finding, mended: set[tuple[str, str | None]]) -> Finding:
    return Finding(
        code=one.code, severity=one.severity, run=one.run, found=one.found, expected=one.expected,
        sequence=one.sequence, repair=one.repair, mended=(one.code, one.run) in mended,
    )  # fmt: skip
