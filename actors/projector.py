"""The projector: the actor that keeps a projection up to date, and sees from it which runs stand still.

A run that should go on by itself and has not changed for a while may have lost its work message or its timer in a
crash. The projector cannot know that; it tells the coordinator with the durable command `cb.cmd.{run}.sweep`, and the
coordinator compares the run with its messages and mends what is missing. A sweep of a run that is well changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

from ..store.projection import Projection, ProjectionFeed, Still
from ..topics.bus import Bus
from ..topics.client import head_bytes
from ..topics.errors import CallboardError
from ..topics.pull import consumer_info
from ..topics.subjects import INBOX_CONSUMER
from ..topics.units import now
from .actor import Actor
from .context import ActorContext

log = logging.getLogger(__name__)

_PAGE = 500
_MINUTE_S = 60.0
_LONGEST_S = 600.0
_CURRENT = 1000


class Projector(Actor):
    """Hosts a `ProjectionFeed` on the file `path`; `rebuild` empties it first.

    `older_than_s`: seconds without a change after which a run is swept. It is swept again after a minute at the
    earliest, and the longer it stands still the more rarely: after a tenth of that time, at most ten minutes. Several
    projectors share this limit, since the broker drops the second command of the same minute.
    `interval_s`: seconds between two looks. `follow_retention`: see ProjectionFeed."""

    def __init__(
        self,
        bus: Bus,
        path: str | Path,
        *,
        rebuild: bool = False,
        follow_retention: bool = False,
        older_than_s: float = 30.0,
        interval_s: float = 10.0,
    ) -> None:
        self._bus, self._path = bus, Path(path)
        self._rebuild, self._follow_retention = rebuild, follow_retention
        self._older_than_s, self._interval_s = older_than_s, interval_s
        self._projection: Projection | None = None
        self._feed: ProjectionFeed | None = None
        self._swept: dict[str, float] = {}
        self.sweeps = 0
        """Sweep commands published."""

    @property
    def projection(self) -> Projection:
        """The projection; only between `started` and `stopped`."""
        assert self._projection is not None, "the projector is not started"
        return self._projection

    @property
    def feed(self) -> ProjectionFeed:
        """The feed; only between `started` and `stopped`."""
        assert self._feed is not None, "the projector is not started"
        return self._feed

    async def started(self, ctx: ActorContext) -> None:
        """Opens the file. Raises ProjectionError when it cannot be used."""
        self._projection = await Projection.open(self._path)
        self._feed = ProjectionFeed(self._bus, self._projection, follow_retention=self._follow_retention)
        if self._rebuild:
            self._rebuild = False  # once: a restart by supervision goes on where it was
            await self._feed.rebuild()

    async def stopping(self, ctx: ActorContext) -> None:
        """Ends the feed behind the transaction under way."""
        if self._feed is not None:
            await self._feed.stop()

    async def stopped(self, ctx: ActorContext) -> None:
        """Closes the file."""
        if self._projection is not None:
            await self._projection.close()
        self._projection = self._feed = None

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        """The feed, and the look for runs that stand still."""
        return [self.feed.run, self._watch]

    async def rebuild(self) -> None:
        """Empties the projection and reads the whole log again, while it runs."""
        await self.feed.rebuild()

    async def lag(self) -> int:
        """Sequences of the stream that are not applied yet. Raises BrokerError when the server does not answer."""
        return await self.feed.lag()

    # -- sweeping -----------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.sweep()
            except CallboardError as error:
                log.info("sweeping waits: %s", error)

    async def sweep(self, moment: datetime | None = None) -> int:
        """One look: publishes a sweep for each run that stands still and is due; returns how many.

        Nothing happens while the projection is behind: what it shows may have changed long ago. Nor while the
        coordinators are: a run may stand still because they have not come to it, and more commands would only add to
        what they are behind with."""
        moment = moment or now()
        if await self.lag() > _CURRENT or self.feed.pending > _CURRENT or await self._backlog() > _CURRENT:
            return 0
        total, after = 0, None
        while page := await self.projection.still(self._older_than_s, _PAGE, after=after, now=moment):
            after = page[-1]
            total += await self._publish([one for one in page if self._due(one, moment)])
        self._forget()
        self.sweeps += total
        return total

    async def _backlog(self) -> int:
        """Tasks and commands that the coordinators have not done with."""
        info = await consumer_info(self._bus, self._bus.subjects.inbox, INBOX_CONSUMER)
        return 0 if info is None else int(info["num_pending"]) + int(info["num_ack_pending"])

    def _due(self, one: Still, moment: datetime) -> bool:
        last = self._swept.get(one.id)
        if last is None:
            return True
        still_s = (moment - one.since).total_seconds()
        return time.monotonic() - last >= min(max(still_s / 10, _MINUTE_S), _LONGEST_S)

    async def _publish(self, runs: list[Still]) -> int:
        minute = int(time.time() // _MINUTE_S)
        writes = []
        for one in runs:
            head = head_bytes({"Nats-Msg-Id": f"sweep.{one.id}.{minute}"})
            writes.append(self._bus.write(self._bus.subjects.command(one.id, "sweep"), b"", head))
        results = await asyncio.gather(*writes, return_exceptions=True)
        for one, result in zip(runs, results, strict=True):
            if not isinstance(result, BaseException):
                self._swept[one.id] = time.monotonic()
        failed = [result for result in results if isinstance(result, BaseException)]
        if failed:
            raise failed[0]
        return len(runs)

    def _forget(self) -> None:
        oldest = time.monotonic() - 2 * _LONGEST_S
        for run in [run for run, when in self._swept.items() if when < oldest]:
            del self._swept[run]
