"""What is known of the runs at this moment, from the event stream. Filled by one thread, read by another."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from callboard import Status
from callboard.topics.messages import TERMINAL

from ..agents import STEPS
from .gateway import SentEvent

KINDS = "state,custom"


@dataclass(slots=True)
class Row:
    """One run."""

    id: str
    module: str
    """What it reviews; empty for the lead."""
    status: Status = Status.QUEUED
    reason: str = ""
    attempt: int = 0
    worker: str = ""
    """The id of the worker that carries it out, or did so last."""
    losses: int = 0
    current: float = 0
    total: float | None = None
    message: str = ""
    lost_by: list[str] = field(default_factory=list)
    """The workers that died while they held it."""

    @property
    def ended(self) -> bool:
        """Whether nothing can change it any more."""
        return self.status in TERMINAL


class _Entry(msgspec.Struct):
    """The fields of a record or a custom event that are looked at; the others are not even decoded."""

    status: Status | None = None
    reason: str | None = None
    attempt: int = 0
    worker: str | None = None
    losses: int = 0
    metadata: dict[str, Any] | None = None
    type: str = ""
    data: msgspec.Raw = msgspec.Raw(b"{}")


class _Frame(msgspec.Struct):
    run: str
    entry: _Entry


class _Inline(msgspec.Struct):
    json: dict[str, Any] = {}


_decode = msgspec.json.Decoder(_Frame).decode
_decode_inline = msgspec.json.Decoder(_Inline).decode


class Board:
    """All runs of one tree. `lead` is its root; the others are reviewers."""

    def __init__(self, root: str, total: int) -> None:
        self.lock = threading.Lock()
        """Held while the rows change; take it to read several of them as of one moment."""
        self.lead = Row(root, "")
        self.rows: dict[str, Row] = {root: self.lead}
        self.total = total
        self.over = False
        """The stream has told everything, or failed with `problem`."""
        self.problem: Exception | None = None

    def apply(self, event: SentEvent) -> None:
        """Takes an event in."""
        frame = _decode(event.data)
        with self.lock:
            row = self.rows.setdefault(frame.run, Row(frame.run, ""))
            if event.kind == "state":
                self._state(row, frame.entry)
            elif frame.entry.type == "progress":
                self._progress(row, _decode_inline(frame.entry.data).json)

    @staticmethod
    def _state(row: Row, record: _Entry) -> None:
        row.module = str((record.metadata or {}).get("module", row.module))
        if record.losses > row.losses and row.worker:
            row.lost_by.append(row.worker)
        row.losses = record.losses
        row.status = record.status or row.status
        row.reason = record.reason or ""
        row.attempt = record.attempt
        row.worker = record.worker or row.worker
        if row.status is Status.COMPLETED and row.module:
            row.current, row.total = STEPS, STEPS

    @staticmethod
    def _progress(row: Row, data: dict[str, Any]) -> None:
        row.current = float(data.get("current", 0))
        row.total = data.get("total")
        row.message = str(data.get("message", ""))

    # -- questions; the lock is held by the caller ----------------------------------------------------------------

    @property
    def reviewers(self) -> Iterable[Row]:
        """All runs but the lead."""
        return (row for row in self.rows.values() if row is not self.lead)

    @property
    def ended(self) -> int:
        """How many reviewers have ended."""
        return sum(row.ended for row in self.reviewers)

    def running(self, worker: str | None = None) -> list[Row]:
        """The reviewers that are under way, all or those of one worker."""
        return [row for row in self.reviewers if row.status is Status.RUNNING and worker in (None, row.worker)]

    @property
    def moved(self) -> list[Row]:
        """The runs whose worker died under them, and what became of them."""
        return [row for row in self.rows.values() if row.lost_by]
