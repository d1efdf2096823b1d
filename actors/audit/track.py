"""What the audit keeps of one run while it reads the log: a few numbers, and while the run lives what its journal has
finished."""

from __future__ import annotations

import sys

from ...topics.messages import TERMINAL, RunRecord, Status, Step


class Track:
    """One run, as far as the log has been read."""

    __slots__ = (
        "_finished",
        "_seen",
        "attempt",
        "detached",
        "dispatch",
        "ended",
        "epoch",
        "late",
        "parent",
        "pinned",
        "rev",
        "sequence",
        "status",
        "tree",
    )  # fmt: skip

    def __init__(self) -> None:
        self.status: Status | None = None
        """None until the first state."""
        self.rev = self.attempt = self.dispatch = self.epoch = self.sequence = 0
        self.parent: str | None = None
        self.pinned: str | None = None
        """The version of its agent to which it is pinned."""
        self.detached = False
        self.tree = False
        """Whether all below it was to be canceled with it."""
        self.ended = False
        """Whether it has had a terminal state."""
        self.late = False
        """Whether something was written after that."""
        self._seen: set[int] | None = None
        self._finished: set[int] | None = None

    def take(self, record: RunRecord, sequence: int) -> None:
        """The next state, whatever was wrong with it."""
        self.status, self.rev, self.sequence = record.status, record.rev, sequence
        self.attempt, self.dispatch, self.epoch = record.attempt, record.dispatch, record.epoch
        self.parent, self.detached = record.parent, record.detached
        self.pinned = sys.intern(record.version) if record.pin else None
        self.tree = record.cancel is not None and record.cancel.scope == "tree"
        if record.status in TERMINAL:
            self.ended = True
            self._seen = self._finished = None

    def fresh(self, step: Step) -> bool:
        """Whether the entry comes for the first time: a repeated write may be stored twice."""
        mark = step.attempt << 40 | step.n
        if self._seen is None:
            self._seen = set()
        if mark in self._seen:
            return False
        self._seen.add(mark)
        return True

    def finish(self, step: Step) -> bool:
        """Whether the operation had not been done before. A failed one may be executed again, and a claimed effect is
        settled; what is done stays so."""
        mark = hash((step.kind, step.at))
        if self._finished is None:
            self._finished = set()
        if mark in self._finished:
            return False
        if step.status == "done":
            self._finished.add(mark)
        return True
