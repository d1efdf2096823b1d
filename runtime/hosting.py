"""One actor in one host: its supervised instance, what brings it messages, its background loops, and its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from ..actors.actor import Actor
from ..actors.errors import ActorGaveUp
from ..actors.handler import Handlers, handlers_of
from ..topics.bus import Bus
from .config import RuntimeSettings
from .context import HostContext
from .envelope import Envelope
from .handling import Handling
from .mailbox import Mailbox
from .partitions import Partitions
from .presence import Presence
from .sources import QueueRunner, RpcRunner, Runner, SignalRunner, runner_of
from .supervision import Supervisor, keep_running

log = logging.getLogger(__name__)


class HostedActor:
    """See the module."""

    def __init__(
        self,
        bus: Bus,
        worker: str,
        factory: Callable[[], Actor],
        settings: RuntimeSettings,
        presence: Presence,
        on_give_up: Callable[[ActorGaveUp], None],
    ) -> None:
        self._bus, self._worker, self._settings, self._presence = bus, worker, settings, presence
        self._on_give_up = on_give_up
        self.supervisor = Supervisor(factory, self._context, settings, self._gave_up)
        self._instance: Actor | None = None
        self._runners: list[Runner] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._mailbox: Mailbox[Envelope] | None = None
        self._partitions: Partitions | None = None
        self._closing: asyncio.Task[None] | None = None
        self.ready = False
        """Whether it takes messages."""

    def _context(self, actor: Actor) -> HostContext:
        return HostContext(self._bus, actor.name)

    @property
    def name(self) -> str:
        """The actor's name."""
        return self.supervisor.name

    @property
    def owned(self) -> list[int]:
        """The partitions of its keys that this host holds; empty for a system actor."""
        return self._partitions.owned if self._partitions is not None else []

    def beat(self) -> dict[str, Any]:
        """What the instance adds to the heartbeat."""
        return self._instance.beat() if self._instance is not None and self.supervisor.error is None else {}

    # -- start --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts the instance, then its messages, then its loops. Raises ActorGaveUp, BrokerError."""
        instance = self._instance = await self.supervisor.start()
        handlers = handlers_of(type(instance))
        for source in instance.sources():
            runner = runner_of(self._bus, instance, source)
            self._runners.append(runner)
            await runner.start()
        for work in instance.tasks():
            name = f"{instance.name}.{getattr(work, '__name__', 'task')}"
            running = keep_running(name, work, self._settings, self.supervisor.give_up)
            self._tasks.append(asyncio.create_task(running, name=name))
        self.ready = True
        if handlers:
            await self._subscribe(instance, handlers)

    async def _subscribe(self, instance: Actor, handlers: Handlers) -> None:
        handling = Handling(self._bus, instance.name, handlers, self.supervisor, instance.max_deliveries)
        self._mailbox = Mailbox(handling.handle, self._left, instance.capacity, instance.concurrency)
        self._partitions = Partitions(
            self._bus, self._worker, instance.name, handlers, self._mailbox, instance.capacity,
            self._settings, self._presence,
        )  # fmt: skip
        self._presence.changed()
        await self._partitions.start()

    def _left(self, envelope: Envelope, error: BaseException | None) -> None:
        envelope.partition.left()
        if error is not None and not isinstance(error, asyncio.CancelledError):
            log.error("actor %s: a message was not handled", self.name, exc_info=error)
        if self._partitions is not None:
            self._partitions.room_grew()

    def _gave_up(self, error: ActorGaveUp) -> None:
        self.ready = False
        self._closing = asyncio.create_task(self._end(0.0), name=f"give-up-{self.name}")
        self._on_give_up(error)

    # -- end ----------------------------------------------------------------------------------------------------

    async def drain(self, grace_s: float) -> None:
        """Takes no new message, lets the instance finish or hand back, and ends it: `grace_s` and at most 5 seconds."""
        self.ready = False
        if self._closing is not None:
            await asyncio.wait((self._closing,), timeout=grace_s + 1)
        else:
            await self._end(grace_s)

    async def _end(self, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        signals = [runner for runner in self._runners if isinstance(runner, SignalRunner)]
        others = [runner for runner in self._runners if isinstance(runner, QueueRunner | RpcRunner)]
        await self._each(runner.stop() for runner in others)
        await self._each([self.supervisor.stopping(grace_s), self._release(grace_s)])
        mailboxes: list[Mailbox[Any]] = [runner.mailbox for runner in others]
        mailboxes += [self._mailbox] if self._mailbox is not None else []
        for mailbox in mailboxes:
            mailbox.close()
            if not await mailbox.join(max(0.0, deadline - time.monotonic())):
                log.warning("actor %s: %d messages were not finished in time", self.name, len(mailbox))
                await mailbox.cancel()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)
        await self._each(runner.stop() for runner in signals)
        await self.supervisor.stop(max(1.0, deadline - time.monotonic()))

    async def _release(self, grace_s: float) -> None:
        if self._partitions is not None:
            await self._partitions.release(grace_s)

    async def _each(self, ends: Any) -> None:
        for result in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(result, Exception):
                log.error("actor %s: ending failed", self.name, exc_info=result)
