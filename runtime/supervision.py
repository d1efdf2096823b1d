"""Supervision: what fails is begun again, after a growing pause, and given up visibly when that does not help.

"Let it crash" as in Erlang's supervisors, with one difference: only failures without a success between them count,
because an actor that handles most of its messages and fails at some is served by dead letters, not by giving up.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Literal

from ..actors.actor import Actor
from ..actors.context import ActorContext
from ..actors.errors import ActorGaveUp
from ..topics.errors import CallboardError
from .config import RuntimeSettings

log = logging.getLogger(__name__)

Status = Literal["starting", "running", "restarting", "failed", "stopped"]


class Restarts:
    """Counts failures since the last success, and says how long to pause before the next try."""

    def __init__(self, settings: RuntimeSettings) -> None:
        self._settings = settings
        self._times: deque[float] = deque()

    def succeeded(self) -> None:
        """A success: what failed before does not count any more."""
        if self._times:
            self._times.clear()

    def failed(self) -> float | None:
        """A failure: the pause in seconds before the next try, or None when it is time to give up."""
        now = time.monotonic()
        self._times.append(now)
        while self._times[0] < now - self._settings.restart_window_s:
            self._times.popleft()
        if len(self._times) > self._settings.restart_limit:
            return None
        exponent = min(len(self._times) - 1, 30)
        pause = min(self._settings.restart_max_s, self._settings.restart_initial_s * 2.0**exponent)
        return pause * (0.5 + random.random())


def is_passing(error: BaseException) -> bool:
    """Whether the cause lies with the broker for the moment: tried again without end, and nobody's fault."""
    return isinstance(error, CallboardError) and error.retryable


class _Life:
    """One instance and those who use it at this moment."""

    def __init__(self, instance: Actor) -> None:
        self.instance = instance
        self.users = 0
        self.left = asyncio.Event()


class Supervisor:
    """Keeps one instance of an actor alive, for one host."""

    def __init__(
        self,
        factory: Callable[[], Actor],
        context: Callable[[Actor], ActorContext],
        settings: RuntimeSettings,
        on_give_up: Callable[[ActorGaveUp], None],
    ) -> None:
        self._factory, self._context = factory, context
        self._settings, self._on_give_up = settings, on_give_up
        self._restarts = Restarts(settings)
        self._life: _Life | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.status: Status = "starting"
        self.error: ActorGaveUp | None = None
        self.name = "?"

    async def start(self) -> Actor:
        """The first instance, once its `started` returned. Raises ActorGaveUp when it never does."""
        self._task = asyncio.create_task(self._begin(), name="actor-start")
        return (await self._wait()).instance

    async def _wait(self) -> _Life:
        while True:
            if self.error is not None:
                raise self.error
            if self._life is not None and self.status == "running":
                return self._life
            self._changed.clear()
            await self._changed.wait()

    def _set(self, status: Status) -> None:
        self.status = status
        self._changed.set()

    # -- using --------------------------------------------------------------------------------------------------

    async def enter(self) -> Actor:
        """The instance to hand a message to, once one runs; give it back with `leave`. Raises ActorGaveUp."""
        life = self._life
        if life is None or self.status != "running":
            life = await self._wait()
        life.users += 1
        return life.instance

    def leave(self, instance: Actor, error: BaseException | None = None, handled: bool = True) -> None:
        """Done with a message; `error` is what ends the instance as well, `handled` whether it counts as a success."""
        life = self._life
        if life is None or life.instance is not instance:
            return
        life.users -= 1
        life.left.set()
        if error is None:
            if handled:
                self._restarts.succeeded()
        elif self.status == "running":
            self._set("restarting")
            self._task = asyncio.create_task(self._replace(life, error), name=f"actor-restart-{self.name}")

    # -- life cycle ---------------------------------------------------------------------------------------------

    async def _replace(self, life: _Life, error: BaseException) -> None:
        pause = self._restarts.failed()
        await self._retire(life, self._settings.grace_s)
        if pause is None:
            self.give_up(error)
            return
        log.warning("actor %s failed (%s: %s); restarting in %.2f s", self.name, type(error).__name__, error, pause)
        await asyncio.sleep(pause)
        await self._begin()

    async def _begin(self) -> None:
        while True:
            try:
                instance = self._factory()
                self.name = instance.name
                await instance.started(self._context(instance))
            except Exception as error:
                pause = self._restarts_pause(error)
                if pause is None:
                    self.give_up(error)
                    return
                log.warning("actor %s did not start; again in %.2f s", self.name, pause, exc_info=error)
                await asyncio.sleep(pause)
            else:
                self._life = _Life(instance)
                self._set("running")
                return

    def _restarts_pause(self, error: BaseException) -> float | None:
        if is_passing(error):
            return self._settings.restart_max_s / 4
        return self._restarts.failed()

    async def _retire(self, life: _Life, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while life.users > 0 and (rest := deadline - time.monotonic()) > 0:
            life.left.clear()
            try:
                async with asyncio.timeout(rest):
                    await life.left.wait()
            except TimeoutError:
                break
        self._life = None
        try:
            async with asyncio.timeout(max(1.0, deadline - time.monotonic())):
                await life.instance.stopped(self._context(life.instance))
        except Exception:
            log.exception("stopped() of actor %s failed", self.name)

    def give_up(self, cause: BaseException) -> None:
        """Ends the actor for good, with an error in the log, and tells the host."""
        if self.error is not None:
            return
        self.error = ActorGaveUp(
            f"actor {self.name} is given up after {self._settings.restart_limit} restarts without a success: {cause}",
            actor=self.name,
        )
        self.error.__cause__ = cause
        log.error("%s", self.error, exc_info=cause)
        self._set("failed")
        self._on_give_up(self.error)

    async def stopping(self, limit_s: float) -> None:
        """Calls `stopping` of the instance, if one runs, within `limit_s` seconds."""
        life = self._life
        if life is None:
            return
        try:
            async with asyncio.timeout(limit_s):
                await life.instance.stopping(self._context(life.instance))
        except TimeoutError:
            log.warning("stopping() of actor %s took longer than %.1f s", self.name, limit_s)
        except Exception:
            log.exception("stopping() of actor %s failed", self.name)

    async def stop(self, limit_s: float = 1.0) -> None:
        """Ends the instance with `stopped`, and begins no other."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=1)
        life = self._life
        if self.status != "failed":
            self._set("stopped")
        if life is not None:
            await self._retire(life, limit_s)


async def keep_running(
    name: str, work: Callable[[], Awaitable[None]], settings: RuntimeSettings, give_up: Callable[[BaseException], None]
) -> None:
    """Runs a background loop until it returns; one that raises is begun again, or given up."""
    restarts = Restarts(settings)
    while True:
        begun = time.monotonic()
        try:
            await work()
        except Exception as error:
            if time.monotonic() - begun > settings.restart_max_s * 2:
                restarts.succeeded()
            pause = 1.0 if is_passing(error) else restarts.failed()
            if pause is None:
                give_up(error)
                return
            log.warning("%s failed (%s); again in %.2f s", name, error, pause, exc_info=not is_passing(error))
            await asyncio.sleep(pause)
        else:
            return
