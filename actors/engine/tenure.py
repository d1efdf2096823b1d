"""Whether an attempt still holds its run: what is asked before it begins something that cannot be taken back.

A lease that was renewed in time ever since it was taken is enough, and asking it costs nothing. A process that stood
still for too long (stopped, swapped out, cut off from the broker) may have lost its run without knowing: its lease is
in doubt from then on, and the log is asked, each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from ...store.log import EventLog
from ...topics.errors import CallboardError
from .errors import AttemptEnded

log = logging.getLogger(__name__)

_PAUSE_S = 0.05
_PAUSE_MAX_S = 1.0


class Lease(Protocol):
    """What keeps a work message; see `runtime.lease`."""

    def good(self) -> bool:
        """Whether it was renewed in time ever since it was taken, and the broker has said so: the message is nobody
        else's."""
        ...


class Tenure:
    """Of one attempt, which writes under `fence`. `lost` is called when the run turns out to be somebody else's."""

    def __init__(
        self, lease: Lease, event_log: EventLog, run: str, fence: int, lost: Callable[[BaseException], None]
    ) -> None:
        self.sure = lease.good
        self._log, self._run, self._fence, self._lost = event_log, run, fence, lost

    async def look(self) -> None:
        """Asks the log. Raises AttemptEnded when the run has moved on, Unavailable when the broker does not answer."""
        loaded = await self._log.load_current(self._run)
        if loaded is None or loaded.sequence != self._fence:
            error = AttemptEnded(f"run {self._run} has moved on while its lease was in doubt", run=self._run)
            self._lost(error)
            raise error

    async def confirm(self) -> None:
        """Returns once it is certain that the run was still this attempt's a moment ago. Raises AttemptEnded when it is
        not. Waits while the broker is away."""
        pause = _PAUSE_S
        while not self.sure():
            try:
                await self.look()
                return
            except AttemptEnded:
                raise
            except CallboardError as error:
                log.debug("run %s could not be looked at: %s", self._run, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_MAX_S)
