"""Runs that retry others: one journal for all of them, so that what one has finished none executes again."""

from __future__ import annotations

from typing import NamedTuple

from ..topics.bus import Bus
from ..topics.errors import NotFound, Unavailable
from ..topics.messages import RunRecord, Step
from ..topics.reads import read
from .checkpoints import Checkpoints, State
from .checkpoints.state import KIND
from .effects import Effects
from .journal import Journal, Seen, entries, load_journal
from .log import EventLog, Loaded


async def lineage(log: EventLog, record: RunRecord) -> list[Loaded]:
    """The runs that `record` goes on from, the first one first; empty when it retries none. Raises NotFound when the
    log of one is gone: to go on without it could mean to do finished steps again."""
    found: list[Loaded] = []
    run = record.retry_of
    while run is not None:
        loaded = await log.load(run)
        if loaded is None:
            raise NotFound(f"run {record.id} retries {run}, of which the log is gone: start a new run", run=run)
        found.insert(0, loaded)
        run = loaded.record.retry_of
    return found


async def load_lineage(log: EventLog, record: RunRecord, until: int = 0) -> Journal:
    """The journal of a run and of those that it goes on from. What those have told their watchers does not count: the
    run tells it again, in its own log. `until` and errors as with `load_journal`, and NotFound."""
    journal = Journal()
    for loaded in await lineage(log, record):
        journal.origin = journal.origin or loaded.record.id
        await load_journal(log, loaded.record.id, loaded.sequence, journal)
        journal.emitted.clear()
    return await load_journal(log, record.id, until, journal)


class Beginning(NamedTuple):
    """Where an attempt begins: the newest checkpoint, if there is one, and the journal after it. Of a fork without a
    checkpoint of its own, that of the run it comes from."""

    journal: Journal
    state: State | None = None


async def load_beginning(log: EventLog, checkpoints: Checkpoints, record: RunRecord, until: int) -> Beginning:
    """What earlier attempts of a run, and of those that it goes on from, have left. What was journaled before the
    newest checkpoint is not read. Raises as `load_lineage` and `Checkpoints.load` do."""
    before = await lineage(log, record)
    for at in range(len(before), -1, -1):
        run = before[at].record.id if at < len(before) else record.id
        while (saved := await checkpoints.newest(run)) is not None:
            journal = Journal(sequence=saved.since, behind=True, heard=saved.checkpoint.heard)
            journal.origin = before[0].record.id if before else ""
            journal.took = saved.checkpoint.took if saved.run == record.id else []
            for loaded in before[at:]:
                await load_journal(log, loaded.record.id, loaded.sequence, journal)
                journal.emitted.clear()
            await load_journal(log, record.id, until, journal)
            if journal.snapshots.get(KIND, 0) <= saved.sequence:
                return Beginning(journal, await checkpoints.reader.state(saved))
    journal = await load_lineage(log, record, until) if record.attempt > 1 else Journal()
    fork = record.forked_from
    if fork is None:
        return Beginning(journal)
    if not await checkpoints.labels.hold(fork.run, fork.checkpoint, record.id):
        raise Unavailable(
            f"run {fork.run} is being pruned at this moment: its checkpoint {fork.checkpoint} is not sure"
        )
    saved = await checkpoints.reader.at(fork.run, str(fork.checkpoint))
    return Beginning(journal, await checkpoints.reader.state(saved))


async def load_effects(bus: Bus, record: RunRecord) -> Effects:
    """The effects of a run, and of those that it goes on from, with their times: read from that part of their logs
    alone; any replica may answer. Raises as `load_lineage` does."""
    found, seen = Effects(), Seen()
    before = [loaded.record.id for loaded in await lineage(EventLog(bus), record)]
    for run in (*before, record.id):
        async for page in read(bus, bus.subjects.events, bus.subjects.event(run, "effect")):
            for stored in page:
                for entry in entries(stored):
                    if isinstance(entry, Step) and seen.fresh(entry):
                        found.take(entry, stored.time)
    return found
