"""What happened in a chaos run: the log of the installation and the lines that steps left outside, side by side."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from callboard.store.checkpoints.state import is_checkpoint
from callboard.store.journal import ENTRY_KINDS, Seen, entries
from callboard.store.log import decode_record
from callboard.topics.messages import Answer, Checkpoint, Payload, RunRecord, Status, Step
from callboard.topics.reads import Stored
from tests.chaos.models import REJECTED

TOLERANCE_S = 0.05
"""The server stamps a message a moment before or after the process that wrote it looks at its clock."""


class Execution(NamedTuple):
    """One execution of a step's function."""

    run: str
    step: str
    attempt: int
    began: float


class Turn(NamedTuple):
    """One state of a run, and when it was stored."""

    at: float
    record: RunRecord


@dataclass
class RunHistory:
    """One run as the log has it."""

    turns: list[Turn] = field(default_factory=list)
    finished: dict[str, tuple[float, int]] = field(default_factory=dict)
    """When each step (by its name) was journaled as done, and by which attempt."""
    nodes: dict[str, float] = field(default_factory=dict)
    """When each node of a superstep (`node@3`, `node#2@3`; in a subgraph `3/sub|node@1`) was noted or checkpointed."""
    supersteps: dict[int, int] = field(default_factory=dict)
    """The run's own checkpoints: by their id, how many supersteps were done."""
    behind: dict[int, float] = field(default_factory=dict)
    """When each superstep was first behind one of them."""
    taken: dict[str, list[str | None]] = field(default_factory=dict)
    """The answers that were journaled, by the id of their interrupt."""
    event_ids: list[str] = field(default_factory=list)
    """The ids of its events as an event stream must give them."""
    repeated: int = 0
    """Entries that were stored twice, because the answer to a write got lost."""

    @property
    def last(self) -> RunRecord:
        """Its newest state."""
        return self.turns[-1].record

    def owns(self, attempt: int, at: float, slack_s: float) -> bool:
        """Whether the attempt owned the run at this time, or at most `slack_s` seconds before it."""
        for turn, after in zip(self.turns, [*self.turns[1:], None], strict=True):
            mine = turn.record.status is Status.RUNNING and turn.record.attempt == attempt
            if mine and (after is None or at < after.at + slack_s):
                return True
        return False

    def takeovers(self) -> int:
        """How often another attempt went on because a process was lost."""
        losses = [turn.record.losses for turn in self.turns]
        return sum(after > before for before, after in pairwise(losses))


def read_run(events: list[Stored]) -> RunHistory:
    """The history of one run from its events in order."""
    found, seen = RunHistory(), Seen()
    for stored in events:
        if stored.kind == "state":
            found.turns.append(Turn(stored.time.timestamp(), decode_record(stored.data)))
            found.event_ids.append(str(stored.sequence))
        elif is_checkpoint(stored.kind):
            _read_checkpoint(stored, found, seen)
        elif stored.kind in ENTRY_KINDS:
            _read_entries(stored, found, seen)
    return found


def _read_checkpoint(stored: Stored, found: RunHistory, seen: Seen) -> None:
    made = msgspec.json.decode(stored.data, type=Checkpoint)
    if not made.ns:
        found.supersteps[stored.sequence] = made.step
        for step in range(made.step + 1):
            found.behind.setdefault(step, stored.time.timestamp())
    if made.n and not seen.fresh(made):
        found.repeated += 1
        return
    found.event_ids.append(str(stored.sequence))
    prefix = f"{made.scope}|" if made.scope else ""
    for key in made.ran:
        found.nodes.setdefault(f"{prefix}{key}@{made.step}", stored.time.timestamp())


def _read_entries(stored: Stored, found: RunHistory, seen: Seen) -> None:
    inside = entries(stored)
    for index, entry in enumerate(inside, 1):
        if not seen.fresh(entry):
            found.repeated += 1
            continue
        found.event_ids.append(str(stored.sequence) if index == len(inside) else f"{stored.sequence}.{index}")
        if isinstance(entry, Step):
            _read_step(entry, stored.time.timestamp(), found)


def _read_step(entry: Step, at: float, found: RunHistory) -> None:
    if entry.kind == "step" and entry.status == "done":
        found.finished.setdefault(entry.name, (at, entry.attempt))
    elif entry.kind == "node":
        scope, _, rest = entry.at.rpartition("|")
        step, _, key = rest.partition("/")
        found.nodes.setdefault(f"{scope}|{key}@{step}" if scope else f"{key}@{step}", at)
    elif entry.kind == "interrupt":
        answer = value_of(entry.value, Answer)
        value = REJECTED if answer.action == "reject" else value_of(answer.value)
        found.taken.setdefault(entry.name, []).append(value)


def value_of(payload: Payload | None, type_: Any = Any) -> Any:
    """What stands in a payload that is small enough to be inline."""
    if payload is None or not isinstance(payload.json, msgspec.Raw):
        return None
    return msgspec.json.decode(payload.json, type=type_)


def read_effects(path: Path) -> list[Execution]:
    """The executions that steps have left outside."""
    return read_lines(path, "begin")


def read_lines(path: Path, kind: str) -> list[Execution]:
    """The lines of one kind that were left outside."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        at, what, run, step, attempt, _ = line.split()
        if what == kind:
            found.append(Execution(run, step, int(attempt), float(at)))
    return found


@dataclass
class Executions:
    """The executions, judged against the log."""

    runs: dict[str, RunHistory]
    all: list[Execution]

    def doubled(self) -> int:
        """Steps that were begun more than once: under way when their process was lost, or failed."""
        return sum(count > 1 for count in Counter((one.run, one.step) for one in self.all).values())

    def late(self) -> dict[tuple[str, int], int]:
        """Executions begun by attempts that did not own their run any more, by attempt."""
        found: Counter[tuple[str, int]] = Counter()
        for one in self.all:
            history = self.runs.get(one.run)
            if history is not None and not history.owns(one.attempt, one.began, TOLERANCE_S):
                found[one.run, one.attempt] += 1
        return dict(found)

    def wrong(self) -> Iterator[str]:
        """What must never be."""
        counts: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        for one in self.all:
            counts[one.run, one.step][one.attempt] += 1
            yield from self._again(one)
        for (run, step), attempts in counts.items():
            twice = [attempt for attempt, count in attempts.items() if count > 1]
            if twice:
                yield f"{run}: attempt {twice[0]} executed step {step} {attempts[twice[0]]} times"
        for (run, attempt), count in self.late().items():
            if count > 1:
                yield f"{run}: attempt {attempt} began {count} steps after it had lost the run"

    def _again(self, one: Execution) -> Iterator[str]:
        history = self.runs.get(one.run)
        if history is None:
            yield f"{one.run}: a step was executed, and the run is not in the log"
            return
        done = history.finished.get(one.step)
        if done is None or one.began < done[0] + TOLERANCE_S:
            return
        if history.owns(one.attempt, one.began, -TOLERANCE_S):
            yield (
                f"{one.run}: step {one.step}, finished by attempt {done[1]} at {done[0]:.3f}, was executed again by "
                f"attempt {one.attempt} at {one.began:.3f}"
            )
