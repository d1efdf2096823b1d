"""What is said to a run that has not ended: messages, and answers that come while a worker holds it.

Each is an event in the run's log, written under the fence of the state, so that nothing is said to a run that has
ended meanwhile. A worker gets a notice; a run that waits for a message is woken. What was said while an attempt ended
is found by the look that the state after it owes.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from ...store.log import EventLog, Loaded
from ...store.words import Spoken
from ...store.words import Words as Log
from ...topics import crash, units
from ...topics.bus import Bus
from ...topics.errors import (
    IllegalTransition,
    InterruptAnswered,
    InvalidInput,
    NotFound,
    StaleFence,
    Unavailable,
    WriteInFlight,
)
from ...topics.ids import new_token
from ...topics.messages import ASKING, NOTHING, Answer, Command, RunRecord, Status, Word, encode
from .answering import remembered
from .ledger import Ledger
from .run_commands import Resume, Wake

log = logging.getLogger(__name__)

_TRIES = 12
_PAUSE_S = 0.02
_KEY_CHARS = 255


class Words:
    """Says things to runs."""

    def __init__(
        self, bus: Bus, event_log: EventLog, ledger: Ledger, settle: Callable[[Loaded], Awaitable[None]]
    ) -> None:
        self._bus, self._events, self._ledger, self._settle = bus, event_log, ledger, settle
        self._log = Log(bus)

    async def say(self, command: Command) -> RunRecord:
        """A message to a run. Again with the same key nothing is said twice, and the run is given also when it has
        ended since. Raises NotFound; IllegalTransition for a run that has ended, or is to."""
        key = command.key or new_token()
        if len(key) > _KEY_CHARS or not key.isprintable():
            raise InvalidInput(f"the key of a message has 1 to {_KEY_CHARS} printable characters", run=command.run)
        word = Word(key=key, at=units.now(), by=command.by or None, content=command.value or NOTHING)
        said = await self._said(command.run, word)
        assert said is not None
        return said[0].record

    async def answer(self, run: str, answers: Sequence[Answer]) -> bool:
        """Accepted answers to a run that a worker holds: the first answer to an interrupt counts. False when no worker
        holds it any more, or it has been answered in its record: that decides then. Raises InterruptAnswered."""
        for answer in answers:
            word = Word(key=f"{answer.key or new_token()}/{answer.id}", at=units.now(), answer=answer)
            said = await self._said(run, word)
            if said is None:
                return False
            for other in await self._log.of(run, said[1]):
                if other.word.answer is not None and other.word.answer.id == answer.id:
                    if not other.word.answer.mark.same(answer.mark):
                        raise InterruptAnswered(
                            f"interrupt {answer.id!r} of run {run} was answered before", run=run, interrupt=answer.id
                        )
                    break
        return True

    async def has(self, run: str, answers: Sequence[Answer]) -> bool:
        """Whether all of these answers were said to the run, each as the first to its interrupt."""
        first: dict[str, Answer] = {}
        for one in await self._log.of(run):
            if one.word.answer is not None:
                first.setdefault(one.word.answer.id, one.word.answer)
        return all(answer.id in first and first[answer.id].mark.same(answer.mark) for answer in answers)

    async def _said(self, run: str, word: Word) -> tuple[Loaded, int] | None:
        """The run, and the sequence under which its log has the word now. None for an answer that is not to be said:
        said and recorded answers have one order only because none is said but to a worker, under the state that it
        works in, and none recorded but by a later state, when what was said before has been looked at."""
        for _ in range(_TRIES):
            loaded = await self._ledger.load(run)
            if loaded is None:
                raise NotFound(f"there is no run {run}", run=run)
            if word.answer is not None and not _by_word(loaded.record, word.answer):
                return None
            before = await self._log.of(run)
            sequence = next((one.sequence for one in before if _same(one.word, word)), 0)
            if sequence and not _hears(loaded.record):
                return loaded, sequence
            if not sequence:
                _require_live(loaded.record)
                try:
                    sequence = await self._events.append(run, "said", encode(word), loaded.sequence, _name(run, word))
                except (StaleFence, WriteInFlight) as error:
                    log.debug("say to %s: %s", run, error)
                    await asyncio.sleep(_PAUSE_S)
                    continue
            crash.point("coordinator.after-said")
            return await self._told(loaded, sequence), sequence
        raise Unavailable(f"run {run} could not be told: its state does not settle; try again", run=run)

    async def _told(self, loaded: Loaded, sequence: int) -> Loaded:
        """Has the word heard: by the worker that holds the run, or else by the run itself, if it waits for it. It may
        have begun to wait while this was said to its worker."""
        record = loaded.record
        if record.status is Status.RUNNING and record.worker:
            notice = Command(run=record.id, verb="said", sequence=sequence)
            self._bus.publish(f"{self._bus.subjects.worker}.{record.worker}.notice", encode(notice))
        waits = record.hears or record.status in ASKING
        return await self.look(record.id) or loaded if waits else loaded

    async def look(self, run: str) -> Loaded | None:
        """Takes into the record, or wakes the run for, what was said since its last attempt has read it."""
        loaded = await self._ledger.load(run)
        if loaded is None or loaded.record.status not in (Status.QUEUED, Status.WAITING, *ASKING):
            return loaded
        record = loaded.record
        if record.status is Status.QUEUED and not record.interrupts:
            return loaded
        found = await self._log.of(run)  # an answer may be older than a message that was heard
        answers = _open_answers(record, [one.word.answer for one in found if one.word.answer is not None])
        if answers:
            applied = await self._ledger.apply(run, Resume(answers, record.rev))
        elif record.hears and record.status is not Status.QUEUED and any(_unheard(record, one) for one in found):
            applied = await self._ledger.apply(run, Wake("a message has come"))
        else:
            return loaded
        if applied.verdict == "changed" and applied.loaded is not None:
            await self._settle(applied.loaded)
        return applied.loaded


def _hears(record: RunRecord) -> bool:
    return not (record.terminal or record.status is Status.CANCEL_REQUESTED)


def _require_live(record: RunRecord) -> None:
    if not _hears(record):
        raise IllegalTransition(
            f"run {record.id} is {record.status}: nothing can be said to it any more",
            run=record.id, status=str(record.status),
        )  # fmt: skip


def _unheard(record: RunRecord, spoken: Spoken) -> bool:
    return spoken.word.answer is None and spoken.sequence > record.heard


def _by_word(record: RunRecord, answer: Answer) -> bool:
    """Whether an answer reaches the run as a word to its worker."""
    return record.status is Status.RUNNING and remembered(record, answer.id) is None


def _name(run: str, word: Word) -> str:
    """Names the word to the broker, which stores it once: two coordinators may be told it at the same time, and a
    reader may come between their two writes."""
    return hashlib.blake2b(f"said {run} {word.key}".encode(), digest_size=15).hexdigest()


def _same(one: Word, other: Word) -> bool:
    """Whether both are the same word: by their key, and of an answer also by what it says."""
    if one.answer is not None and other.answer is not None:
        return one.answer.mark.same(other.answer.mark)
    return one.key == other.key and (one.answer is None) == (other.answer is None)


def _open_answers(record: RunRecord, answers: Sequence[Answer]) -> list[Answer]:
    """Of each open interrupt the first answer."""
    open_ = {one.id for one in record.interrupts or ()}
    found: dict[str, Answer] = {}
    for answer in answers:
        if answer.id in open_ and remembered(record, answer.id) is None:
            found.setdefault(answer.id, answer)
    return list(found.values())
