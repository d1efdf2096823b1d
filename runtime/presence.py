"""Who is there: the heartbeat of this host, its answers to pings, and the other hosts it hears.

`cb.worker.{id}.beat` carries a `HostBeat`; the same is answered to a request on `cb.worker.{id}` and, by everybody, on
`cb.worker`. With a LeaseKeeper both come from its thread, so that a blocked loop does not look dead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from ..topics.bus import Bus, Subscription
from ..topics.client import Message
from ..topics.messages import WorkerInfo
from .lease import LeaseKeeper

log = logging.getLogger(__name__)

MISSED_BEATS = 3


class HostBeat(WorkerInfo, frozen=True, kw_only=True, omit_defaults=True):
    """A worker's heartbeat with what concerns actors."""

    owned: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """Partitions held, by actor."""
    failed: list[str] = msgspec.field(default_factory=list)
    """Actors that were given up."""


_decode = msgspec.json.Decoder(HostBeat).decode


class Presence:
    """Sends this host's beat every `beat_s` seconds, and keeps a view of the others."""

    def __init__(
        self, bus: Bus, worker: str, compose: Callable[[], dict[str, Any]], beat_s: float, keeper: LeaseKeeper | None
    ) -> None:
        self._bus, self._worker, self._compose = bus, worker, compose
        self._beat_s, self._keeper = beat_s, keeper
        self._beat = b"{}"
        self._heard: dict[str, tuple[HostBeat, float]] = {}
        self._subscriptions: list[Subscription] = []
        self._task: asyncio.Task[None] | None = None
        self._telling = False
        self.on_change: list[Callable[[], None]] = []
        """Called when another host comes, goes, drains, or holds other actors or partitions."""

    async def start(self, listen: bool) -> None:
        """Begins to beat; with `listen` also to hear the others. Raises Unavailable."""
        subject = self._bus.subjects.worker
        if listen:
            self._subscriptions.append(await self._bus.subscribe(f"{subject}.*.beat", self._hear))
        if self._keeper is None:
            self._subscriptions.append(await self._bus.subscribe(subject, self._answer))
            self._subscriptions.append(await self._bus.subscribe(f"{subject}.{self._worker}", self._answer))
        self.beat()
        self._task = asyncio.create_task(self._run(), name="presence")

    async def stop(self) -> None:
        """Falls silent."""
        if self._task is not None:
            self._task.cancel()
        for subscription in self._subscriptions:
            await subscription.close()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._beat_s)
            self.beat(send=self._keeper is None)

    def beat(self, send: bool = True) -> None:
        """Composes the beat anew, and sends it now."""
        try:
            self._beat = msgspec.json.encode(self._compose())
        except Exception:
            log.exception("the heartbeat could not be composed")
        if self._keeper is not None:
            self._keeper.present(self._worker, self._beat)
        if send:
            self._bus.publish(f"{self._bus.subjects.worker}.{self._worker}.beat", self._beat)

    def _answer(self, message: Message) -> None:
        if message.reply:
            self._bus.publish(message.reply, self._beat)

    def _hear(self, message: Message) -> None:
        try:
            beat = _decode(message.data)
        except msgspec.MsgspecError as error:
            log.debug("not a heartbeat on %s: %s", message.subject, error)
            return
        before = self._heard.get(beat.id)
        self._heard[beat.id] = (beat, time.monotonic())
        if beat.id == self._worker:
            return
        if before is None or _concerns(before[0]) != _concerns(beat):
            for callback in self.on_change:
                callback()

    def hosts_of(self, actor: str) -> list[str]:
        """The other hosts, heard within three beats, that have the actor and do not drain."""
        return [beat.id for beat in self._present() if actor in beat.actors and not beat.draining]

    def changed(self) -> None:
        """What this host holds has changed: the others are told in the next turn of the loop."""
        if not self._telling and self._task is not None:
            self._telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._telling = False
        self.beat()

    def is_present(self, worker: str, beats: float = MISSED_BEATS) -> bool:
        """Whether the host was heard within so many beats."""
        found = self._heard.get(worker)
        return found is not None and time.monotonic() - found[1] <= beats * self._beat_s

    def forget(self, worker: str) -> None:
        """A host whose connection is gone, as a ping showed."""
        self._heard.pop(worker, None)

    def _present(self) -> list[HostBeat]:
        limit = time.monotonic() - MISSED_BEATS * self._beat_s
        for worker in [worker for worker, (_, at) in self._heard.items() if at < limit]:
            del self._heard[worker]
        return [beat for beat, _ in self._heard.values() if beat.id != self._worker]


def _concerns(beat: HostBeat) -> tuple[Any, ...]:
    return beat.actors, beat.owned, beat.draining
