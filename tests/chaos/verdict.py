"""What must hold at the end of a chaos run, and whether it does."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from callboard.actors.audit import audit
from callboard.store.blobs import Blobs
from callboard.store.deadletters import DeadLetters, Letter
from callboard.store.log import EventLog
from callboard.store.submit import Submitter
from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.errors import CallboardError
from callboard.topics.ids import root_of
from callboard.topics.messages import RunRecord, Status
from tests.chaos import superstep, talk
from tests.chaos.history import Executions, RunHistory, read_effects, read_run, value_of
from tests.chaos.models import Asking, Unordered
from tests.chaos.outside import read_payments, wrong_payments, wrong_replacements, wrong_turns
from tests.chaos.people import People
from tests.chaos.readers import Readers
from tests.chaos.stage import Stage
from tests.chaos.workload import Promises

log = logging.getLogger(__name__)

END_S = 120.0
"""How long after the last fault everything may take to end; for each second of faults `_WAITING_S` more, because what
has gathered in a thread meanwhile goes one after another."""
_WAITING_S = 0.1
_SLOW_S = 8.0
_PAGE = 400
_SHOWN = 40


class Verdict(Struct, frozen=True):
    """The totals, and what was violated."""

    totals: dict[str, int]
    statuses: dict[str, int]
    violations: list[str]
    counts: dict[str, int]
    """Violations of each kind; `violations` holds the first of them."""
    stragglers: list[str]
    """Runs that took long to end after the last fault, with the state in which they stood."""


class _Violations:
    def __init__(self) -> None:
        self.found: list[str] = []
        self.counts: Counter[str] = Counter()

    def add(self, kind: str, text: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= _SHOWN:
            self.found.append(f"{kind}: {text}")

    def each(self, kind: str, texts: Iterator[str]) -> None:
        for text in texts:
            self.add(kind, text)


async def judge(stage: Stage, promises: Promises, readers: Readers, people: People, seconds: float) -> Verdict:
    """Waits until everything has ended, and checks all of it. Call it when all faults are healed."""
    bus = await Bus.connect(stage.broker)
    try:
        wrong = _Violations()
        began = time.monotonic()
        within_s = END_S + seconds * _WAITING_S
        stragglers = await _all_end(bus, promises, wrong, within_s)
        retried = await _retried(bus, promises, people)
        if retried:
            stragglers += await _all_end(bus, promises, wrong, within_s)
        settled_s = time.monotonic() - began
        await readers.finish(30.0)
        runs = await _histories(bus)
        await _audited(bus, stage, promises, wrong)
        _promises_kept(promises, runs, wrong)
        executions = Executions(runs, read_effects(stage.effects_file))
        wrong.each("executed", executions.wrong())
        payments = read_payments(stage.folder / "payments.txt")
        wrong.each("payments", wrong_payments(payments, runs))
        wrong.each("thread", wrong_turns(runs))
        wrong.each("thread", wrong_replacements(runs))
        _read_once(readers, runs, wrong)
        letters = await DeadLetters(bus).page(limit=10_000)
        _talked(people, promises, letters, runs, wrong)
        nodes = superstep.read_nodes(stage.effects_file)
        wrong.each("executed", superstep.wrong_nodes(nodes, runs))
        wrong.each("forked", superstep.wrong_forks(promises.forks, nodes, executions.all, runs))
        for text in [*stage.died, *promises.broken, *readers.problems, *people.broken]:
            wrong.add("behaved", text)
        totals = (
            _totals(promises, readers, runs, executions)
            | payments.totals()
            | {"nodes carried out": len(nodes), "nodes carried out more than once": superstep.nodes_again(nodes)}
            | {"checkpoints": sum(len(one.supersteps) for one in runs.values()), "forks": len(promises.forks)}
            | talk.totals(people, runs, letters)
            | {"trees retried, with a run whose process had died five times in a row": retried}
            | {"seconds until all had ended": round(settled_s)}
        )
        statuses = dict(Counter(str(history.last.status) for history in runs.values()).most_common())
        return Verdict(totals, statuses, wrong.found, dict(wrong.counts), stragglers)
    finally:
        await bus.close()


# -- the end ------------------------------------------------------------------------------------------------------


async def _all_end(bus: Bus, promises: Promises, wrong: _Violations, within_s: float) -> list[str]:
    """Every run of the log ends, and every run that was promised is there. Gives those that were slow."""
    began = time.monotonic()
    deadline = began + within_s
    promised = set(promises.results)
    slow: dict[str, str] = {}
    while True:
        try:
            records = await _records(bus)
        except CallboardError:
            records = None
        if records is not None:
            open_ = [record for record in records.values() if not record.terminal]
            missing = promised - records.keys()
            if time.monotonic() - began > _SLOW_S:
                slow |= {
                    one.id: f"{one.id} ({one.agent}) {one.status}, {one.reason}, since {one.updated_at}"
                    for one in open_
                }
            if not open_ and not missing:
                return list(slow.values())[:_SHOWN]
            if time.monotonic() > deadline:
                for run in missing:
                    wrong.add("lost", f"{run} was acknowledged and has no record")
                for record in open_:
                    wrong.add("not ended", f"{record.id} ({record.agent}) is {record.status}: {record.reason}")
                return list(slow.values())[:_SHOWN]
        await asyncio.sleep(0.5)


async def _retried(bus: Bus, promises: Promises, people: People) -> int:
    """Does what a person does with runs that were parked because their process died time after time, which is the rule
    and here mere chance: has them retried. What they were asked for must come of it. How many there were."""
    records = await _records(bus)
    unlucky = {root_of(one.id) for one in records.values() if one.error is not None and one.error.code == "worker_lost"}
    failed = sorted(run for run in unlucky & promises.results.keys() if records[run].status is Status.FAILED)
    for run in failed:
        made = await Submitter(bus, Blobs(bus)).retry(run)
        log.info("%s is retried as %s", run, made.id)
        promises.results[made.id] = promises.results.pop(run)
        people.follow(made.id)
    return len(failed)


async def _records(bus: Bus) -> dict[str, RunRecord]:
    """The newest record of every run."""
    runs: set[str] = set()
    async for page in reads.read(bus, bus.subjects.events, f"{bus.subjects.run}.*.*.state"):
        runs.update(stored.subject.split(".")[3] for stored in page)
    found: dict[str, RunRecord] = {}
    names = sorted(runs)
    for start in range(0, len(names), _PAGE):
        found |= await EventLog(bus).load_many(names[start : start + _PAGE])
    return found


async def _histories(bus: Bus) -> dict[str, RunHistory]:
    events: dict[str, list[reads.Stored]] = defaultdict(list)
    async for page in reads.read(bus, bus.subjects.events, f"{bus.subjects.run}.>"):
        for stored in page:
            events[stored.subject.split(".")[3]].append(stored)
    return {run: read_run(found) for run, found in events.items()}


# -- the checks -----------------------------------------------------------------------------------------------------


async def _audited(bus: Bus, stage: Stage, promises: Promises, wrong: _Violations) -> None:
    """The product's own auditor, once for each gateway's read model."""
    for file in sorted(stage.folder.glob("projection-*.db")):
        report = await audit(bus, expected=promises.results, projection=file, blobs=True)
        for one in report.findings:
            if one.severity != "note":
                wrong.add("audit", f"{one.code} {one.run or ''} at {one.sequence}: {one.found} ({file.name})")


def _talked(
    people: People, promises: Promises, letters: list[Letter], runs: dict[str, RunHistory], wrong: _Violations
) -> None:
    wrong.each("audit", talk.wrong_letters(letters))
    wrong.each("answers", talk.wrong_answers(people, runs))
    asked = [run for run, expected in promises.results.items() if isinstance(expected, Asking)]
    ended = [run for run in asked if run in runs and runs[run].last.status is Status.COMPLETED]
    wrong.each("answers", talk.wrong_results(runs, {run: value_of(runs[run].last.result) for run in ended}))


def _promises_kept(promises: Promises, runs: dict[str, RunHistory], wrong: _Violations) -> None:
    for run, expected in promises.results.items():
        history = runs.get(run)
        if history is not None and history.last.terminal:
            if run in promises.replaceable and history.last.status in (Status.INTERRUPTED, Status.ROLLED_BACK):
                continue  # by whom is looked at below
            _as_promised(history.last, expected, run in promises.canceled, wrong)
    for key, found in promises.keys.items():
        if len(found) > 1:
            wrong.add("doubled", f"idempotency key {key} gave {sorted(found)}")
    by_key = Counter(history.last.key for history in runs.values() if history.last.key)
    for key, count in by_key.items():
        if count > 1:
            wrong.add("doubled", f"idempotency key {key} has {count} runs")
    for root in promises.canceled:
        _ended_below(root, runs, wrong)


def _as_promised(record: RunRecord, expected: Any, canceled: bool, wrong: _Violations) -> None:
    if canceled and record.status in (Status.CANCELED, Status.ORPHANED):
        return
    if record.status is not Status.COMPLETED:
        why = record.error.message if record.error else record.reason
        wrong.add("result", f"{record.id} ({record.agent}) ended as {record.status}: {why}")
        return
    found = value_of(record.result)
    if isinstance(expected, Asking | Unordered):
        problem = expected.wrong(found)
        if problem is not None:
            wrong.add("result", f"{record.id} ({record.agent}) gave {problem}")
    elif found != expected:
        wrong.add("result", f"{record.id} ({record.agent}) gave {found!r}, not {expected!r}")


def _ended_below(root: str, runs: dict[str, RunHistory], wrong: _Violations) -> None:
    """Nothing below a canceled root that had ever begun ended after it."""
    end = runs[root].turns[-1]
    for run, history in runs.items():
        if run.startswith(f"{root}~") and history.turns[-1].at > end.at and history.last.attempt:
            wrong.add("cancel", f"{run} ended {history.turns[-1].at - end.at:.3f} s after its canceled root")


def _read_once(readers: Readers, runs: dict[str, RunHistory], wrong: _Violations) -> None:
    for run, ids in readers.ids.items():
        expected = runs[run].event_ids if run in runs else []
        if ids != expected:
            missed = [one for one in expected if one not in ids]
            extra = [one for one, count in Counter(ids).items() if count > 1 or one not in expected]
            wrong.add("events", f"{run}: missed {missed[:5]}, extra {extra[:5]}, {len(ids)} of {len(expected)} read")


def _too_late(promises: Promises, runs: dict[str, RunHistory]) -> int:
    """Children whose record was stored after the end of their canceled root, and that never began."""
    ends = {root: runs[root].turns[-1].at for root in promises.canceled if root in runs}
    return sum(history.turns[0].at > ends.get(run.partition("~")[0], float("inf")) for run, history in runs.items())


# -- figures --------------------------------------------------------------------------------------------------------


def _totals(
    promises: Promises, readers: Readers, runs: dict[str, RunHistory], executions: Executions
) -> dict[str, int]:
    histories = runs.values()
    return {
        "requests": promises.asked.total(),
        "runs": len(runs),
        "runs acknowledged": len(promises.results),
        "requests without an answer": len(promises.unanswered),
        "trees canceled": len(promises.canceled),
        "runs replaced in their thread": sum(
            run in promises.replaceable and history.last.status in (Status.INTERRUPTED, Status.ROLLED_BACK)
            for run, history in runs.items()
        ),
        "children written too late to begin": _too_late(promises, runs),
        "states": sum(len(history.turns) for history in histories),
        "attempts": sum(history.last.attempt for history in histories),
        "takeovers": sum(history.takeovers() for history in histories),
        "steps executed": len(executions.all),
        "steps executed more than once": executions.doubled(),
        "steps begun by an attempt that had lost its run": sum(executions.late().values()),
        "writes stored twice": sum(history.repeated for history in histories),
        "runs of the schedule": sum((history.last.metadata or {}).get("schedule") is not None for history in histories),
        "event streams": len(readers.ids),
        "connections of event streams": readers.connections,
        "events read": sum(map(len, readers.ids.values())),
    }
