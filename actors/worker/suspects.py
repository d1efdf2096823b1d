"""Runs that may be the death of the process that carries them out: a worker carries out one at a time.

A run whose process has died twice in a row may be the cause, or has stood beside the cause. Side by side they would die
together until all of them are parked as poison. So such a run begins when no other one is under way here that has
left no result yet; meanwhile its message goes back to the queue, for whoever has none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from ...topics.messages import SUSPECT_LOSSES, Claim, Grant
from ..engine.attempt import Attempt


class Suspects:
    """Those of one worker. `ask` puts a claim to a coordinator; `attempts` are those under way, by run."""

    def __init__(self, ask: Callable[[Claim], Awaitable[Grant]], attempts: Mapping[str, Attempt]) -> None:
        self._ask, self._attempts = ask, attempts
        self._run: str | None = None

    async def claim(self, claim: Claim) -> Grant:
        """Claims a run. Of those whose message was delivered so often that they may be among them, one at a time is
        claimed for the place that there is; the others are granted if they are none."""
        if claim.delivery <= SUSPECT_LOSSES:
            return await self._ask(claim)
        beside = self._is_taken(claim.run)
        takes = not beside and self._run != claim.run
        if takes:
            self._run = claim.run
        grant = await self._ask(msgspec.structs.replace(claim, beside=beside))
        is_one = grant.verdict == "granted" and (grant.record is None or grant.record.losses >= SUSPECT_LOSSES)
        if takes and not is_one:
            self.leave(claim.run)
        return grant

    def leave(self, run: str) -> None:
        """The run is not carried out here any more."""
        if self._run == run:
            self._run = None

    def _is_taken(self, run: str) -> bool:
        if self._run is None or self._run == run:
            return False
        attempt = self._attempts.get(self._run)
        return attempt is None or not attempt.got_on
