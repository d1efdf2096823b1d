"""The journal: what the earlier attempts of a run have done, so that a later one does not do it again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from ..topics.errors import InvalidMessage, Unavailable
from ..topics.messages import Answered, Artifact, Checkpoint, Event, Step
from ..topics.reads import Stored
from .checkpoints.state import is_checkpoint
from .effects import Effects
from .log import EventLog

Entry: TypeAlias = Step | Event | Artifact

_event = msgspec.json.Decoder(Event | list[Event]).decode
_step = msgspec.json.Decoder(Step | list[Step]).decode
_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "step": _step,
    "effect": _step,
    "delta": _event,
    "custom": _event,
    "message": _event,
    "artifact": msgspec.json.Decoder(Artifact | list[Artifact]).decode,
}
_LAG_S = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)

ENTRY_KINDS = frozenset(_DECODERS)
"""The kinds of event whose bodies are entries of attempts."""


def entries(stored: Stored) -> list[Entry]:
    """The entries in one stored event: its body is one, or a list of those that waited for the same write.

    Raises InvalidMessage when the body is neither, or the event's kind has no entries (see ENTRY_KINDS)."""
    decode = _DECODERS.get(stored.kind)
    if decode is None:
        raise InvalidMessage(f"events of kind {stored.kind!r} have no entries", subject=stored.subject)
    try:
        found: Entry | list[Entry] = decode(stored.data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidMessage(
            f"message {stored.sequence} on {stored.subject} is not an entry of a run: {error}",
            subject=stored.subject,
            sequence=stored.sequence,
        ) from error
    return found if isinstance(found, list) else [found]


class Seen:
    """Which entries of a run were seen: a write that was repeated because its answer got lost may be stored twice."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[int, set[int]] = {}

    def fresh(self, entry: Entry | Checkpoint) -> bool:
        """Whether the entry comes for the first time; from now on it is seen."""
        numbers = self._seen.setdefault(entry.attempt, set())
        if entry.n in numbers:
            return False
        numbers.add(entry.n)
        return True


@dataclass(slots=True)
class Journal:
    """What is recorded of a run."""

    steps: dict[str, Step] = field(default_factory=dict)
    """The result of each finished operation, by its place in the code (`at`): of an attempt the first, and of
    attempts the last, because a later one executes a step again only if its failure was not to stand."""
    emitted: set[str] = field(default_factory=set)
    """The places whose events and artifacts are out."""
    effects: Effects = field(default_factory=Effects)
    """What was done outside. The newest entry of an effect stands in `steps` as well, where it keeps its place."""
    origin: str = ""
    """The first run of those that were retried one after the other; empty for a run that retries none."""
    behind: bool = False
    """Whether there are entries before those that were read: what a checkpoint holds instead."""
    snapshots: dict[str, int] = field(default_factory=dict)
    """The newest checkpoint of each kind of event (`checkpoint`, `checkpoint@…`) among what was read."""
    heard: int = 0
    """Stream sequence up to which the code has taken what was said to the run."""
    took: list[Answered] = field(default_factory=list)
    """Answers that the code has taken before the entries that were read."""
    sequence: int = 0
    """Stream sequence of the last event read, of any kind; 0 for a run without events."""

    def add(self, entry: Entry) -> None:
        """Takes in one entry."""
        if not isinstance(entry, Step):
            self.emitted.add(entry.at)
        elif entry.kind in ("effect", "compensation"):
            self.effects.take(entry)
            if entry.kind == "effect":
                self.steps[entry.at] = entry
        elif entry.status != "started":
            self.heard = max(self.heard, entry.heard)
            found = self.steps.setdefault(entry.at, entry)
            again = found.status == "failed" or found.kind == "child"
            if again and found.attempt < entry.attempt:
                self.steps[entry.at] = entry


async def load_journal(log: EventLog, run: str, until: int = 0, into: Journal | None = None) -> Journal:
    """The journal of a run, from all its events up to now, in a few batched reads; added to `into`, when that is given.

    Any replica of the stream may answer, also one that is a moment behind. `until` is the sequence of an event that
    must be in, such as the attempt's running state, after which no earlier attempt can have written: it is waited for,
    some seconds at most. Raises InvalidMessage for an entry that cannot be read: to skip it could mean to do a finished
    step again. Raises Unavailable when the broker does not answer, or not with all that is asked for."""
    journal, seen = into or Journal(), Seen()
    for delay_s in (*_LAG_S, None):
        async for page in log.history(run, journal.sequence):
            for stored in page:
                _add(journal, seen, stored)
        if journal.sequence >= until:
            return journal
        if delay_s is not None:
            await asyncio.sleep(delay_s)
    raise Unavailable(f"the log of run {run} ends at {journal.sequence}, before {until}: replicas are behind", run=run)


async def has_result(log: EventLog, run: str, attempt: int, after: int) -> bool:
    """Whether an attempt has left a result (a finished step, a checkpoint) after the sequence of its running state.
    Pages behind that of the first one are not read.

    An entry that cannot be read is none. Raises Unavailable."""
    async with aclosing(log.history(run, after)) as pages:
        async for page in pages:
            if any(attempt in _with_results(stored) for stored in page):
                return True
    return False


def _with_results(stored: Stored) -> list[int]:
    """The attempts whose results stand in an event."""
    try:
        if is_checkpoint(stored.kind):
            return [msgspec.json.decode(stored.data, type=Checkpoint).attempt]
        if stored.kind in ("step", "effect"):
            return [one.attempt for one in entries(stored) if isinstance(one, Step) and one.status == "done"]
    except (InvalidMessage, msgspec.MsgspecError):
        pass
    return []


def _add(journal: Journal, seen: Seen, stored: Stored) -> None:
    journal.sequence = stored.sequence
    if stored.kind in ENTRY_KINDS:
        for entry in entries(stored):
            if seen.fresh(entry):
                journal.add(entry)
    elif is_checkpoint(stored.kind):
        journal.snapshots[stored.kind] = stored.sequence
