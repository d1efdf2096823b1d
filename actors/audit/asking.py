"""Runs that ask, or wait for a message: whether there is a question, and whether what was said has reached them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ...store.words import Words
from ...topics.bus import Bus
from ...topics.messages import ASKING, RunRecord
from . import remedies
from .findings import Suspect, suspect


async def unanswered(bus: Bus, record: RunRecord, sequence: int) -> AsyncIterator[Suspect]:
    """What is wrong with how a run waits for people. Raises BrokerError."""
    asking = record.status in ASKING
    if asking and not (record.interrupts or record.unknown):
        yield suspect("question_missing", record.id, f"it is {record.status} and asks nothing", sequence=sequence)
    if not (record.hears or (asking and record.interrupts)):
        return
    open_ = {one.id for one in record.interrupts or ()}
    for spoken in await Words(bus).of(record.id, after=record.heard):
        answer = spoken.word.answer
        if (answer.id in open_) if answer is not None else record.hears:
            what = f"the answer to {answer.id!r}" if answer is not None else "a message"
            yield suspect(
                "word_unheard", record.id, f"{what}, said at {spoken.sequence}, has not reached it",
                sequence=sequence, remedy=remedies.sweep(bus.subjects, record.id),
            )  # fmt: skip
            return
