"""Leases are renewed from a thread and a connection of their own, so that code which blocks the loop cannot lose them.

The same thread sends the heartbeat and answers pings (a process that is busy is not dead), and it watches the main
loop: one that stands still is reported with the name of the function in which it stands. What no thread can survive is
a C extension that keeps the interpreter lock; then the lease runs out, and the fence keeps the late attempt out.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import threading
import time

from ..topics.bus import Bus
from ..topics.client import Message
from ..topics.config import BrokerSettings
from ..topics.errors import CallboardError
from ..topics.ids import new_token
from .config import RuntimeSettings
from .stall import StallWatch

log = logging.getLogger(__name__)

_PROGRESS = b"+WPI"
_STOP_S = 3.0
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_UNRENEWED = 2 / 3
"""The part of a lease that counts before the first renewal, which is due after a third: the message was under way for
a while before it was taken."""


class Held:
    """One lease. Times are those of a clock that goes on while the machine sleeps."""

    __slots__ = ("_good_until", "_lease_s", "run")

    def __init__(self, run: str, lease_s: float) -> None:
        self.run = run
        self._lease_s = lease_s
        self._good_until = _clock() + lease_s * _UNRENEWED

    def good(self) -> bool:
        """Whether it was renewed in time ever since it was taken, and the broker has said so."""
        return _clock() <= self._good_until

    def renewed(self, sent: float) -> None:
        """The broker has taken the renewal that was sent then. One that it took too late brings nothing back: the
        message may have been delivered to somebody else in between."""
        if self.good():
            self._good_until = max(self._good_until, sent + self._lease_s)


def _clock() -> float:
    return time.clock_gettime(_CLOCK)


class LeaseKeeper:
    """Holds the leases of a process. `add`, `remove`, `present` may be called from any thread and cost a dict write."""

    def __init__(self, broker: BrokerSettings, settings: RuntimeSettings) -> None:
        self._broker, self._settings = broker, settings
        self._held: dict[str, Held] = {}
        self._asked: dict[str, tuple[Held, float]] = {}
        self._numbers = itertools.count()
        self._inbox = ""
        self._present: tuple[str, bytes] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._stall: StallWatch | None = None
        self.renewals = 0
        """Progress acknowledgements sent so far."""

    # -- what others call ---------------------------------------------------------------------------------------

    def add(self, reply_subject: str, run: str) -> Held:
        """Keeps the message that is acknowledged on `reply_subject`, for `run`, until `remove`."""
        held = self._held[reply_subject] = Held(run, self._settings.lease_s)
        return held

    def remove(self, reply_subject: str) -> None:
        """Keeps it no longer. Call it before the acknowledgement."""
        self._held.pop(reply_subject, None)

    @property
    def held(self) -> int:
        """How many leases are held."""
        return len(self._held)

    def present(self, worker: str, beat: bytes) -> None:
        """Says what to send as the heartbeat of `worker` from now on, and to answer to pings."""
        self._present = (worker, beat)

    async def start(self) -> None:
        """Starts the thread, and the watch over the calling loop.

        Returns at once: the thread connects by itself, and goes on trying. Idempotent."""
        if self._thread is not None:
            return
        self._stall = StallWatch(asyncio.get_running_loop(), threading.get_ident(), self._settings.blocked_after_s)
        self._stall.start()
        self._thread = threading.Thread(target=self._run, name="callboard-leases", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Ends the thread and its connection, within three seconds. The leases then run out."""
        thread, self._thread = self._thread, None
        if self._stall is not None:
            self._stall.stop()
        if thread is None:
            return
        deadline = time.monotonic() + _STOP_S
        while thread.is_alive() and time.monotonic() < deadline:
            if self._loop is not None and self._ended is not None and not self._loop.is_closed():
                try:
                    self._loop.call_soon_threadsafe(self._ended.set)
                except RuntimeError:  # closed between the check and the call
                    break
            await asyncio.sleep(0.01)

    # -- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            try:
                runner.run(self._main())
            except Exception:
                log.exception("the lease thread ended; leases of this process will run out")

    async def _main(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._watch()), group.create_task(self._serve())]
            await self._ended.wait()
            for task in tasks:
                task.cancel()

    async def _watch(self) -> None:
        stall = self._stall
        assert stall is not None
        while True:
            await asyncio.sleep(self._settings.blocked_after_s / 4)
            stall.look()

    async def _serve(self) -> None:
        bus = await self._connect()
        try:
            await self._listen(bus)
            await self._renew(bus)
        finally:
            await bus.close()

    async def _connect(self) -> Bus:
        delay = 0.1
        while True:
            try:
                return await Bus.connect(self._broker, name="callboard-leases")
            except CallboardError as error:
                log.info("lease connection: %s; trying again", error)
            await asyncio.sleep(delay * (1 + random.random()))
            delay = min(delay * 2, 2.0)

    async def _listen(self, bus: Bus) -> None:
        self._inbox = f"_INBOX.{new_token(20)}"
        while True:
            try:
                await bus.subscribe(f"{self._inbox}.*", self._taken)
                return
            except CallboardError as error:
                log.info("lease connection: %s; trying again", error)
            await asyncio.sleep(0.1)

    async def _renew(self, bus: Bus) -> None:
        every = self._settings.lease_s / 3
        renew_at = beat_at = 0.0
        answering = down = False
        while True:
            now = time.monotonic()
            if now >= renew_at or (down and bus.is_up):
                self._renew_all(bus)
                renew_at = now + every
            if self._present is not None and now >= beat_at:
                worker, beat = self._present
                answering = answering or await self._answer_pings(bus, worker)
                bus.publish(f"{bus.subjects.worker}.{worker}.beat", beat)
                beat_at = now + self._settings.beat_s
            down = not bus.is_up  # renew at once when the connection is back
            wait = 0.05 if down or self._present is None else min(renew_at, beat_at) - time.monotonic()
            await asyncio.sleep(max(0.005, wait))

    async def _answer_pings(self, bus: Bus, worker: str) -> bool:
        def answer(message: Message) -> None:
            if self._present is not None and message.reply:
                bus.publish(message.reply, self._present[1])

        try:
            await bus.subscribe(bus.subjects.worker, answer)
            await bus.subscribe(f"{bus.subjects.worker}.{worker}", answer)
        except CallboardError as error:
            log.info("lease connection: %s; trying again", error)
            return False
        return True

    def _renew_all(self, bus: Bus) -> None:
        now = _clock()
        for number in [one for one, (_, sent) in self._asked.items() if now - sent > self._settings.lease_s]:
            del self._asked[number]
        for reply, held in list(self._held.items()):
            number = str(next(self._numbers))
            self._asked[number] = (held, now)
            bus.publish(reply, _PROGRESS, reply=f"{self._inbox}.{number}")
            self.renewals += 1

    def _taken(self, message: Message) -> None:
        """The broker has taken a renewal."""
        held, sent = self._asked.pop(message.subject.rpartition(".")[2], (None, 0.0))
        if held is not None:
            held.renewed(sent)
