"""What was done outside by effects, and who worked in a thread at the same time, judged against the log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from callboard.topics.messages import Status
from tests.chaos.history import RunHistory

_TOLERANCE_S = 0.001


class Payments(NamedTuple):
    """The lines at the bank, by key: each key is `{run}/{place}`."""

    asked: Counter[str]
    paid: Counter[str]
    undone: Counter[str]

    def totals(self) -> dict[str, int]:
        """The figures."""
        return {
            "payments": self.paid.total(),
            "payments asked for again under their key": sum(count > 1 for count in self.asked.values()),
            "payments undone": len(self.undone),
        }


def read_payments(path: Path) -> Payments:
    """The lines of the file."""
    found: dict[str, Counter[str]] = {"asked": Counter(), "paid": Counter(), "undone": Counter()}
    for line in path.read_text().splitlines() if path.exists() else []:
        what, key = line.split()
        found[what][key] += 1
    return Payments(**found)


def wrong_payments(payments: Payments, runs: dict[str, RunHistory]) -> Iterator[str]:
    """Paid twice; paid for a run that is canceled or rolled back and not undone; undone for one that is not."""
    for key, count in payments.paid.items():
        run = key.partition("/")[0]
        if run not in runs:
            yield f"{key} was paid, and its run is not in the log"
            continue
        status = runs[run].last.status
        if count > 1:
            yield f"{key} was paid {count} times"
        if status in (Status.CANCELED, Status.ROLLED_BACK) and key not in payments.undone:
            yield f"{key} was paid, its run is {status}, and it is not undone"
        if status in (Status.COMPLETED, Status.INTERRUPTED) and key in payments.undone:
            yield f"{key} was undone, and its run is {status}"


def wrong_turns(runs: dict[str, RunHistory]) -> Iterator[str]:
    """Two runs of one thread that were at work at the same time."""
    spans: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for run, history in runs.items():
        working = [turn.at for turn in history.turns if turn.record.status is Status.RUNNING]
        if history.last.thread is not None and history.last.parent is None and working:
            spans[history.last.thread].append((working[0], history.turns[-1].at, run))
    for thread, found in spans.items():
        for (_, end, first), (begin, _, second) in pairwise(sorted(found)):
            if begin < end - _TOLERANCE_S:
                yield f"{second} began {end - begin:.3f} s before {first} had ended, both in thread {thread}"


def wrong_replacements(runs: dict[str, RunHistory]) -> Iterator[str]:
    """A run that was replaced has a later one in its thread whose policy says so; and rolled back is none that nobody
    wanted to be."""
    threads: dict[str, list[RunHistory]] = defaultdict(list)
    for history in runs.values():
        if history.last.thread is not None and history.last.parent is None:
            threads[history.last.thread].append(history)
    for thread, found in threads.items():
        for history in found:
            how = {Status.INTERRUPTED: ("interrupt", "rollback"), Status.ROLLED_BACK: ("rollback",)}.get(
                history.last.status, ()
            )
            others = [one.last for one in found if one is not history]
            if how and not any(one.turn is not None and one.turn.policy in how for one in others):
                yield f"{history.last.id} is {history.last.status}, and no run of thread {thread} has replaced it"
