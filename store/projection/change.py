"""From messages of the stream to what changes: `Changes` folds a batch, so that each row is written once a batch.

Only the columns are decoded; the rest of a record travels as the text it is. What cannot be decoded becomes a skipped
entry with its reason: nothing that somebody publishes on these subjects can stop the projection.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from ...topics.errors import CallboardError, InvalidMessage
from ...topics.messages import VERSION, Status
from ...topics.reads import Stored

_SWEPT = frozenset({Status.QUEUED, Status.RUNNING, Status.WAITING, Status.CANCEL_REQUESTED})
LABEL_CHARS = 1024
"""Longer keys and values of metadata cannot be searched for."""
_REASON_CHARS = 500
_LAST_MICROSECOND = 253_370_764_800 * 1_000_000 - 1  # the end of the year 9998

Count = Annotated[int, Meta(ge=0, le=2**53)]


class _Error(Struct, gc=False):
    code: str
    message: str


class _Fork(Struct, gc=False):
    run: str
    checkpoint: Count = 0


class _State(Struct):
    id: str
    root: str
    agent: str
    status: Status
    created_at: datetime
    updated_at: datetime
    v: int = VERSION
    rev: Count = 1
    parent: str | None = None
    topic: str | None = None
    thread: str | None = None
    error: _Error | None = None
    reason: str | None = None
    attempt: Count = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    steps: Count = 0
    metadata: Raw = Raw()
    version: str = ""
    pin: bool = False
    forked_from: _Fork | None = None


class _Artifact(Struct, gc=False):
    attempt: Count
    n: Count
    name: str
    media_type: str
    size: Count
    digest: str


class _Thread(Struct):
    id: str
    created_at: datetime
    metadata: Raw = Raw()


class _ThreadMessage(Struct, gc=False):
    role: str
    content: Raw
    run: str | None = None
    turn: str | None = None


_state = msgspec.json.Decoder(_State).decode
_artifacts = msgspec.json.Decoder(_Artifact | list[_Artifact]).decode
_thread = msgspec.json.Decoder(_Thread).decode
_message = msgspec.json.Decoder(_ThreadMessage).decode
_metadata = msgspec.json.Decoder(dict[str, Any]).decode


def microseconds(moment: datetime) -> int:
    """Microseconds since 1970. Raises InvalidMessage for times that no column can hold."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    found = round(moment.timestamp() * 1_000_000)
    if not 0 <= found <= _LAST_MICROSECOND:
        raise InvalidMessage(f"{moment.isoformat()} is outside of the years 1970 to 9998")
    return found


def labels_of(metadata: str | None) -> list[tuple[str, str]]:
    """The pairs by which a run can be found: text as it is, other scalars by their JSON; up to 1,024 characters."""
    if metadata is None:
        return []
    found = []
    for key, value in _metadata(metadata).items():
        if isinstance(value, dict | list):
            continue
        text = value if isinstance(value, str) else json.dumps(value)
        if len(key) <= LABEL_CHARS and len(text) <= LABEL_CHARS:
            found.append((key, text))
    return found


class ThreadChange:
    """What a batch does to one thread."""

    __slots__ = ("created", "messages", "metadata", "record", "sequence", "updated")

    def __init__(self, stored_us: int) -> None:
        self.created = self.updated = stored_us
        self.messages = self.sequence = 0
        self.metadata: str | None = None
        self.record: str | None = None


class Changes:
    """The sum of a batch of messages, ready to be written; without those up to sequence `after`, and repetitions."""

    def __init__(self, messages: Iterable[Stored], after: int) -> None:
        self.runs: dict[str, tuple[Any, ...]] = {}
        """Rows by id, in the order of the columns of `runs`."""
        self.threads: dict[str, ThreadChange] = {}
        self.said: Counter[tuple[str, str, str]] = Counter()
        """How many messages of each thread were said by each run, in whose turn."""
        self.artifacts: list[tuple[Any, ...]] = []
        self.skipped: list[tuple[int, str, str, int]] = []
        self.last = after
        """The sequence of the last message."""
        for message in messages:
            if message.sequence <= self.last:
                continue
            try:
                self._add(message)
            except (msgspec.MsgspecError, CallboardError, ValueError, RecursionError, ArithmeticError) as error:
                self.skip(message, str(error) or type(error).__name__)
            self.last = message.sequence

    def skip(self, message: Stored, reason: str) -> None:
        """Counts a message as one that cannot become a row."""
        self.skipped.append(
            (message.sequence, _storable(message.subject), _storable(reason)[:_REASON_CHARS], len(message.data))
        )

    def _add(self, message: Stored) -> None:
        tokens = message.subject.split(".")
        family, kind, size = tokens[1] if len(tokens) > 1 else "", tokens[-1], len(tokens)
        if kind == "state" and size == 5 and family == "run":
            self._state(message, tokens)
        elif kind == "artifact" and size == 5 and family == "run":
            self._artifact(message, tokens[3])
        elif family == "thread" and size == 4 and kind == "record":
            self._thread(message, tokens[2])
        elif family == "thread" and size == 4 and kind == "message":
            self._message(message, tokens[2])
        elif family == "thread" and not (size == 4 and kind in ("head", "rollback")):
            raise InvalidMessage("no subject of this form is known")
        # what is left has no rows, and a feed that filters does not even see it

    def _state(self, message: Stored, tokens: list[str]) -> None:
        text = message.data.decode()
        state = _state(message.data)
        if state.v > VERSION:
            raise InvalidMessage(f"wire version {state.v} is newer than {VERSION}: upgrade this process")
        if state.id != tokens[3] or state.root != tokens[2]:
            raise InvalidMessage(f"the record names run {state.id!r} of {state.root!r}, the subject another")
        error = state.error
        self.runs[state.id] = (
            state.id, state.root, state.parent, state.agent, state.topic, state.thread, state.status.value,
            1 if state.status in _SWEPT else 0, state.reason, microseconds(state.created_at),
            microseconds(state.updated_at), None if state.started_at is None else microseconds(state.started_at),
            None if state.ended_at is None else microseconds(state.ended_at), state.attempt, state.steps, state.rev,
            None if error is None else error.code, None if error is None else error.message,
            _object(state.metadata), message.sequence, state.version, int(state.pin),
            state.forked_from and state.forked_from.run, state.forked_from and state.forked_from.checkpoint, text,
        )  # fmt: skip

    def _artifact(self, message: Stored, run: str) -> None:
        found = _artifacts(message.data)
        stored = microseconds(message.time)
        self.artifacts += [
            (run, one.attempt, one.n, one.name, one.media_type, one.size, one.digest, stored, message.sequence)
            for one in (found if isinstance(found, list) else [found])
        ]

    def _thread(self, message: Stored, thread: str) -> None:
        text, record = message.data.decode(), _thread(message.data)
        if record.id != thread:
            raise InvalidMessage(f"the record names thread {record.id!r}, the subject another")
        created, metadata = microseconds(record.created_at), _object(record.metadata)
        change = self._change(message, thread)
        change.record, change.created, change.metadata = text, created, metadata

    def _message(self, message: Stored, thread: str) -> None:
        found = _message(message.data)
        if found.run is not None:
            self.said[thread, found.run, found.turn or found.run] += 1
        self._change(message, thread).messages += 1

    def _change(self, message: Stored, thread: str) -> ThreadChange:
        stored = microseconds(message.time)
        change = self.threads.setdefault(thread, ThreadChange(stored))
        change.updated, change.sequence = stored, message.sequence
        return change


def _storable(text: str) -> str:
    """Without what SQLite cannot hold as text."""
    return text.encode("utf-8", "backslashreplace").decode()


def _object(raw: Raw) -> str | None:
    """JSON text of an object, None for null or nothing. Raises when it is anything else."""
    data = bytes(raw)
    if not data or data == b"null":
        return None
    labels_of(text := data.decode())
    return text
