"""What is open: the interrupts of a run and of all that it has started, and those of everybody."""

from __future__ import annotations

from typing import NamedTuple

from ..topics.bus import Bus
from ..topics.messages import ASKING, Interrupt, RunRecord, Status
from .attention import Attention
from .log import EventLog
from .words import Words


class Open(NamedTuple):
    """An open interrupt, and the run that asks."""

    record: RunRecord
    interrupt: Interrupt


async def open_below(bus: Bus, run: str) -> list[Open]:
    """The open interrupts of a run and of those below it, of each run in the order in which they were asked. Raises
    NotFound."""
    log = EventLog(bus)
    root = (await log.require(run)).record
    tree = await log.newest_tree(root.root)
    children: dict[str | None, list[RunRecord]] = {}
    for one in sorted(tree, key=lambda one: (one.created_at, one.id)):
        children.setdefault(one.parent, []).append(one)
    found, todo = [], [root]
    while todo:
        record = todo.pop(0)
        found += await _open_of(bus, record)
        todo += children.get(record.id, [])
    return found


async def open_everywhere(bus: Bus, limit: int = 1000) -> list[Open]:
    """The open interrupts of all runs that wait for an answer, the run that began to wait last in front."""
    items = await Attention(bus).items(limit=10_000)
    runs = [one.run for one in items if one.run is not None and one.kind in ASKING]
    records = await EventLog(bus).load_many(runs)
    asking = [records[run] for run in runs if run in records and records[run].status in ASKING]
    return [Open(record, one) for record in asking for one in record.interrupts or ()][:limit]


async def _open_of(bus: Bus, record: RunRecord) -> list[Open]:
    """Without those that were answered while a worker holds the run: their answers are not in the record yet."""
    open_ = record.interrupts or []
    if not open_ or record.status is not Status.RUNNING:
        return [Open(record, one) for one in open_]
    said = await Words(bus).of(record.id, after=record.heard)
    answered = {one.word.answer.id for one in said if one.word.answer is not None}
    return [Open(record, one) for one in open_ if one.id not in answered]
