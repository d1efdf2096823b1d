"""The figures of the demo and whether everything held, computed from the evidence alone."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from callboard import Status
from callboard.topics.messages import RunRecord

from .evidence import Evidence


@dataclass(frozen=True, slots=True)
class Check:
    """Something that must hold."""

    claim: str
    holds: bool
    detail: str = ""
    """What was found instead."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What happened, in numbers."""

    runs: int
    steps: int
    """Steps with a recorded result."""
    recorded_twice: int
    """Steps with more than one recorded result."""
    executed_again: int
    """Executions of a step that began although an earlier attempt had recorded its result."""
    begun: int
    """Executions of steps that began, in all processes."""
    unfinished: int
    """Those of them whose attempt ended before their result was recorded; the next attempt had to begin them again."""
    lost: int
    """Runs that were started, by the journal or the log, and have no outcome, or more than one."""
    moved: tuple[str, ...]
    """Runs that the killed worker had under way and another one brought to their outcome."""
    seen_lost_s: float
    """Seconds from the kill until the last of them was dispatched anew; then they wait their turn in the queue."""

    @property
    def twice(self) -> int:
        """Steps that were executed twice, by either way of counting."""
        return self.recorded_twice + self.executed_again


def figures(evidence: Evidence, killed: str, killed_at: datetime) -> Figures:
    """Count. `killed` is the id of the worker that was killed, or empty. The steps of an agent have different names."""
    moved = tuple(run for run, states in evidence.states.items() if killed and _resumed(states, killed))
    recorded = {(run, done[0].name): done[0].attempt for (run, _), done in evidence.results.items() if done}
    begun = [(one.attempt, recorded.get((one.run, one.step))) for one in evidence.executions]
    known = set(evidence.states) | evidence.children | {evidence.root}
    return Figures(
        runs=len(known),
        steps=len(recorded),
        recorded_twice=sum(len(done) > 1 for done in evidence.results.values()),
        executed_again=sum(result is not None and attempt > result for attempt, result in begun),
        begun=len(begun),
        unfinished=sum(result is None or attempt < result for attempt, result in begun),
        lost=sum(not _one_outcome(evidence.states.get(run, [])) for run in known),
        moved=moved,
        seen_lost_s=max((_since(evidence.states[run], killed, killed_at) for run in moved), default=0.0),
    )


def checks(evidence: Evidence, found: Figures, result: Any, modules: int, files: Mapping[str, bytes]) -> list[Check]:
    """Everything that must hold for the demo to end well, but for what the processes themselves do."""
    last = {run: states[-1] for run, states in evidence.states.items()}
    outcomes = Counter(str(record.status) for record in last.values())
    unfinished = [
        f"{run} ({record.agent}) is {record.status}: {record.reason}"
        for run, record in last.items()
        if record.status is not Status.COMPLETED
    ]
    reported = result.get("modules") if isinstance(result, dict) else None
    damaged = [name for name, data in files.items() if not _whole(evidence, name, data)]
    doubles = Counter((one.run, one.step, one.attempt) for one in evidence.executions)
    return [
        Check("every run is completed", not unfinished, f"{dict(outcomes)}; {'; '.join(unfinished[:3])}"),
        Check("every run that was started has exactly one outcome", not found.lost, f"{found.lost} have not"),
        Check("no step has two recorded results", not found.recorded_twice, f"{found.recorded_twice} have"),
        Check("no recorded step was executed again", not found.executed_again, f"{found.executed_again} were"),
        Check("no attempt executed a step twice", max(doubles.values(), default=0) < 2, str(doubles.most_common(1))),
        Check("every recorded step was executed", found.begun >= found.steps, f"{found.begun} of {found.steps}"),
        Check("there is one reviewer for each module", found.runs == modules + 1, f"{found.runs} runs, {modules}"),
        Check("the report has every module", reported == modules, f"it has {reported} of {modules}"),
        Check("the report is as the log has it", bool(files) and not damaged, ", ".join(damaged) or "there is none"),
    ]


def _one_outcome(states: list[RunRecord]) -> bool:
    """Whether a run ended exactly once, and nothing happened to it afterwards."""
    return sum(record.terminal for record in states) == 1 and states[-1].terminal


def _whole(evidence: Evidence, name: str, data: bytes) -> bool:
    artifact = evidence.artifacts.get(name)
    return artifact is not None and artifact.digest == f"sha256:{hashlib.sha256(data).hexdigest()}"


def _resumed(states: list[RunRecord], killed: str) -> RunRecord | None:
    """The first state after the kill of a run that was under way on the killed worker and was taken up by another one.

    None for a run that was not there, had ended or been suspended before the kill, or was taken up by nobody."""
    held = [index for index, record in enumerate(states) if record.status is Status.RUNNING and record.worker == killed]
    later = states[held[-1] + 1 :] if held else []
    if not later or later[0].losses <= states[held[-1]].losses:
        return None
    taken = any(record.status is Status.RUNNING and record.worker != killed for record in later)
    return later[0] if taken else None


def _since(states: list[RunRecord], killed: str, killed_at: datetime) -> float:
    record = _resumed(states, killed)
    return 0.0 if record is None else (record.updated_at - killed_at).total_seconds()
