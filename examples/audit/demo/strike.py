"""The kill: one worker is ended with SIGKILL while it holds half-done work."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from .board import Board
from .stage import Role, Stage


class Strike:
    """Looks at the board after each event, and kills once: when half of the reviewers have ended, the worker that has
    the most of the others under way."""

    def __init__(self, stage: Stage, board: Board) -> None:
        self._stage, self._board = stage, board
        self.victim: Role | None = None
        self.worker = ""
        """The victim's worker id."""
        self.at = 0.0
        """When it was killed, by the monotonic clock."""
        self.moment = datetime.now(UTC)
        """The same by the clock."""
        self.done = 0
        """How many reviewers had ended."""
        self.held: list[str] = []
        """Ids of the runs that it held, as far as the events had told."""

    def look(self) -> None:
        """Kills, if the moment has come."""
        board = self._board
        if self.victim is not None:
            return
        with board.lock:
            done = board.ended
            if done < board.total // 2:
                return
            held = {worker: board.running(worker) for worker in self._stage.workers}
        worker = max(held, key=lambda one: len(held[one]), default="")
        if not worker or not held[worker]:
            return
        self.worker, self.done, self.held = worker, done, [row.id for row in held[worker]]
        self.at, self.moment = time.monotonic(), datetime.now(UTC)
        victim = self._stage.workers[worker]
        victim.kill()
        self.victim = victim
