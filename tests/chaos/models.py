"""What each kind of work must come to: plain models of the agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

CHILD_STEPS = 2
"""Of the child in each round of the graph."""
EXPIRES_S = 2.5
NOBODY = "nobody"
"""What is taken where nobody has answered in time."""
REJECTED = "rejected"
"""What the code makes of a rejection."""
_NOTED = "u"
"""An answer that begins so brings an edit of the state with it, which leaves the answer in the result once more."""

LOOSE = ("rounds-async", "rounds-exit")
"""Graphs whose supersteps may run again until the root's state behind them is stored."""

Model = Callable[[Mapping[str, str]], Any]


class Asking(NamedTuple):
    """The result of a run that asks: it follows from the answers that were taken. `ids`: of all its questions; `notes`:
    what was written into its state when it was forked."""

    ids: frozenset[str]
    model: Model
    notes: Mapping[str, str] = {}

    def wrong(self, found: Any) -> str | None:
        """What is wrong with a result."""
        answers = answers_in(found)
        if answers.keys() != self.ids:
            return f"answers to {sorted(answers)}, not to {sorted(self.ids)}"
        expected = self.model(answers)
        if NOTES in expected:
            expected[NOTES] = {**self.notes, **noted(answers)}
            found = {NOTES: {}} | found
        return None if found == expected else f"{found!r}, not {expected!r}"


NOTES = "notes"


def noted(answers: Mapping[str, str]) -> dict[str, str]:
    """Of these answers those that brought an edit."""
    return {id_: value for id_, value in answers.items() if value.startswith(_NOTED)}


def edit(agent: str, id_: str, value: str) -> dict[str, Any] | None:
    """The edit of a state that leaves a note in it; None for an agent that keeps none."""
    if agent == "looper":
        return {f"note-{id_}": value}
    return {NOTES: {id_: value}} if agent.startswith("rounds") else None


def notes_in(state: Mapping[str, Any]) -> dict[str, str]:
    """The notes in the state of a function."""
    return {name[5:]: value for name, value in state.items() if name.startswith("note-")}


def answer_of(number: int, *, edits: bool) -> str:
    """An answer like no other."""
    return f"{_NOTED if edits else 'a'}{number}"


class Unordered(NamedTuple):
    """A result that has each of these once; `channel`: where they stand in a state."""

    each: list[str]
    channel: str = ""

    def wrong(self, found: Any) -> str | None:
        """What is wrong with a result."""
        there = found.get(self.channel) if self.channel and isinstance(found, dict) else found
        if isinstance(there, list) and sorted(there) == sorted(self.each):
            return None
        return f"{there!r}, not {self.each!r} in some order"


def answers_in(result: Any) -> dict[str, str]:
    """The answers in the result of a run that asks."""
    if not isinstance(result, dict):
        return {}
    return result["answers"] if isinstance(result.get("answers"), dict) else result


def words(count: int) -> list[str]:
    """What is said to a run that waits for so many messages."""
    return [f"w{number}" for number in range(count)]


def asked_by_rounds(asked: Mapping[str, Any]) -> Asking:
    """The graph, without an engine: one round after the other, everything in the order in which it is reconciled."""

    def model(answers: Mapping[str, str]) -> dict[str, Any]:
        said: list[str] = []
        for turn in range(asked["rounds"]):
            said += [f"plan{turn}", *(f"item{turn}.{number}" for number in range(asked["width"]))]
            said += [f"first{turn}", f"question{turn}", f"last{turn}", f"child {CHILD_STEPS}"]
            said += [f"ask{turn}", f"decide{turn}"]
        total = asked["rounds"] * asked["width"] * (asked["width"] + 1) // 2
        ended = {"round": asked["rounds"], "words": said, "total": total, "answers": dict(answers), NOTES: {}}
        return {"rounds": asked["rounds"], "width": asked["width"]} | ended

    ids = {f"{kind}-{turn}" for turn in range(asked["rounds"]) for kind in ("inner", "ask")}
    return Asking(frozenset(ids), model)


def asked_by_looper(asked: Mapping[str, Any]) -> Asking:
    """So many turns, every fourth with an answer."""
    turns = range(asked["turns"])
    said = [str(turn) for turn in turns]
    ids = {f"q{turn}" for turn in turns if turn % 4 == 3}
    return Asking(frozenset(ids), lambda answers: {"words": said, "answers": dict(answers), NOTES: {}})


def asked_by_asker(asked: Mapping[str, Any]) -> Asking:
    """Its answers."""
    return Asking(frozenset(f"q{number}" for number in range(asked["questions"])), dict)
