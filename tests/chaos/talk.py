"""What was asked, answered and said, judged against the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from callboard.store.deadletters import Letter
from callboard.topics.messages import Status
from tests.chaos.history import RunHistory
from tests.chaos.models import NOBODY, answers_in
from tests.chaos.people import Key, People

_TOO_LATE = {"interrupt_answered", "interrupt_not_found", "illegal_transition"}
_MAY_BE_LATE = (".resume", ".say")


def wrong_answers(people: People, runs: dict[str, RunHistory]) -> Iterator[str]:
    """A question that was taken twice; an answer taken that was not accepted, or not the one that was."""
    for key, sent in people.sent.items():
        accepted = {one.value for one in sent if one.outcome == "accepted"}
        if len(accepted) > 1:
            yield f"{key.id} of {key.run}: {sorted(accepted)} were all accepted"
        for one in sent:
            if one.outcome not in {"sent", "accepted", "stored"} | _TOO_LATE:
                yield f"{key.id} of {key.run}: {one.value} was refused as {one.outcome}"
    for run, history in runs.items():
        for id_, taken in history.taken.items():
            yield from _wrong_taken(Key(run, id_), taken, people)


def _wrong_taken(key: Key, taken: list[str | None], people: People) -> Iterator[str]:
    if len(taken) > 1:
        yield f"{key.id} of {key.run} was taken {len(taken)} times: {taken}"
    sent = people.sent.get(key, [])
    outcomes = {one.outcome for one in sent if one.value == taken[0]}
    accepted = {one.value for one in sent if one.outcome == "accepted"}
    if accepted and taken[0] not in accepted:
        yield f"{key.id} of {key.run}: {sorted(accepted)} was accepted, and {taken[0]} was taken"
    elif taken[0] != NOBODY and not outcomes:
        yield f"{key.id} of {key.run}: {taken[0]} was taken, and nobody has sent it"
    elif "interrupt_answered" in outcomes:
        yield f"{key.id} of {key.run}: {taken[0]} was taken, and refused as another one than the one taken"


def wrong_results(runs: dict[str, RunHistory], results: dict[str, object]) -> Iterator[str]:
    """A result with another answer than the one that was taken, by the run, by one below it, or by what it forked."""
    for run, result in results.items():
        for id_, value in answers_in(result).items():
            taken = _taken(run, id_, runs)
            if taken != value:
                yield f"{run}: {id_} is {value!r} in the result, and {taken!r} was taken"


def _taken(run: str, id_: str, runs: dict[str, RunHistory]) -> str | None:
    below = [history for name, history in runs.items() if name == run or name.startswith(f"{run}~")]
    for history in below:
        if id_ in history.taken:
            return history.taken[id_][0]
    source = runs[run].last.forked_from
    return None if source is None else _taken(source.run, id_, runs)


def wrong_letters(letters: list[Letter]) -> Iterator[str]:
    """What was set aside, but for answers and messages that came too late."""
    for one in letters:
        if not _late(one):
            yield f"{one.letter.subject} was set aside: {one.letter.reason.code}: {one.letter.reason.message}"


def _late(one: Letter) -> bool:
    return one.letter.subject.endswith(_MAY_BE_LATE) and one.letter.reason.code in _TOO_LATE


def totals(people: People, runs: dict[str, RunHistory], letters: list[Letter]) -> dict[str, int]:
    """The figures."""
    taken = Counter(
        value == NOBODY for history in runs.values() for values in history.taken.values() for value in values
    )
    outcomes = Counter(one.outcome for sent in people.sent.values() for one in sent)
    ended = sum(history.last.status is Status.COMPLETED and bool(history.taken) for history in runs.values())
    return {
        **dict(sorted(people.done.items())),
        "answers accepted": outcomes["accepted"],
        "answers left for a coordinator": outcomes["stored"],
        "answers refused": sum(outcomes[code] for code in _TOO_LATE),
        "answers taken": taken[False],
        "answers by expiry taken": taken[True],
        "runs that asked and completed": ended,
        "messages acknowledged": len(people.said),
        "late answers and messages set aside": sum(map(_late, letters)),
    }
