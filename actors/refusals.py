"""Late writes: what an attempt wanted to write after it had lost its run, and what became of that: nothing."""

from __future__ import annotations

import logging
from collections import Counter

log = logging.getLogger(__name__)


class Refusals:
    """Counts them by kind since the process began: `step`, `effect`, `checkpoint`, `artifact`, `custom`, `delta`,
    `message` (the kinds of events), `said` (a message of a thread), `child`, `outcome`."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def note(self, kind: str, run: str, attempt: int) -> None:
        """One was refused."""
        self._counts[kind] += 1
        log.info("run %s: attempt %d had lost it; its %s came too late and was refused", run, attempt, kind)

    @property
    def counts(self) -> dict[str, int]:
        """How many, by kind."""
        return dict(self._counts)
