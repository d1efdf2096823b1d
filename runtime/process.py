"""A process that runs until it is told to stop: signals, grace time, exit codes.

| event | what happens | exit code |
| --- | --- | --- |
| SIGTERM or SIGINT | `Shutdown.wait()` returns; the process drains within its grace time | 0 |
| the same before the start was finished | the start is cancelled | 0 |
| a second signal | it ends at once; what it held is taken over by others as after a crash | 128 + signal |
| the grace time and two seconds pass | what still runs is cancelled, then left | 8 |
| an actor was given up | the process drains and ends | 7 |
| an error nobody handled | it is logged | 1 |

None of this needs the broker: a process whose NATS is down ends in the same way.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from ..actors.errors import ActorGaveUp
from ..topics.errors import CallboardError
from .host import Host

log = logging.getLogger(__name__)

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_GAVE_UP = 7
EXIT_LATE = 8
_LATE_S = 2.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Shutdown:
    """Whether the process was told to stop. Made by `run_process`, given to its main function."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._awaited = False
        self.signal: int | None = None

    @property
    def requested(self) -> bool:
        """Whether it was."""
        return self._event.is_set()

    @property
    def awaited(self) -> bool:
        """Whether the main function has come to wait for it: before that, a signal cancels the start."""
        return self._awaited

    def request(self, number: int | None = None) -> None:
        """Asks for it, as a signal does."""
        self.signal = number
        self._event.set()

    async def wait(self) -> None:
        """Returns once the process was told to stop."""
        self._awaited = True
        await self._event.wait()


Main = Callable[[Shutdown], Coroutine[Any, Any, int | None]]


def run_process(main: Main, grace_s: float = 10.0) -> int:
    """Runs `main` on a fresh event loop (uvloop where there is one) until it returns, and gives the exit code.

    `main` awaits `shutdown.wait()`, then drains; its int is the exit code, None is 0. It must be called in the main
    thread. See the module for signals and codes."""
    last_resort = threading.Timer(grace_s + _LATE_S + 1, _leave, (EXIT_LATE, "it does not end: leaving"))
    last_resort.daemon = True  # a thread, because a blocked loop would watch nothing
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_supervise(main, grace_s, last_resort))
    finally:
        last_resort.cancel()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _supervise(main: Main, grace_s: float, last_resort: threading.Timer) -> int:
    shutdown = Shutdown()
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(_guarded(main, shutdown), name="main")
    for number in _SIGNALS:
        loop.add_signal_handler(number, _signalled, number, shutdown, task, last_resort)
    told = asyncio.create_task(shutdown._event.wait(), name="shutdown")  # noqa: SLF001  # not the main's own wait
    try:
        await asyncio.wait((task, told), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            return await _within(task, grace_s + _LATE_S)
        return task.result()
    finally:
        told.cancel()


async def _guarded(main: Main, shutdown: Shutdown) -> int:
    try:
        return await main(shutdown) or EXIT_OK
    except asyncio.CancelledError:
        if shutdown.requested:
            return EXIT_OK
        raise
    except ActorGaveUp as error:
        log.error("the process ends: %s", error)  # noqa: TRY400  # supervision has logged the trace
        return EXIT_GAVE_UP
    except CallboardError as error:
        log.error("the process ends: %s", error)  # noqa: TRY400  # meant for people: no trace
        return EXIT_ERROR
    except Exception:
        log.exception("the process ends because of an error")
        return EXIT_ERROR


def _signalled(number: int, shutdown: Shutdown, main: asyncio.Task[int], last_resort: threading.Timer) -> None:
    name = signal.Signals(number).name
    if shutdown.signal is not None:
        _leave(128 + number, f"{name} again: ending at once")
    log.info("%s: stopping", name)
    last_resort.start()
    shutdown.request(number)
    if not shutdown.awaited:
        main.cancel()


async def _within(main: asyncio.Task[int], limit_s: float) -> int:
    done, _ = await asyncio.wait((main,), timeout=limit_s)
    if done:
        return main.result()
    log.error("not stopped after %.1f s: leaving what still runs", limit_s)
    main.cancel()
    await asyncio.wait((main,), timeout=0.5)
    return EXIT_LATE  # what ignores its cancellation meets the last resort


def _leave(code: int, why: str) -> None:
    log.warning(why)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def serve(host: Host, shutdown: Shutdown) -> int:
    """Runs a host until the process is told to stop or all its actors are given up, then drains it; the exit code."""
    await host.start()
    told = asyncio.create_task(shutdown.wait(), name="told")
    abandoned = asyncio.create_task(host.abandoned(), name="abandoned")
    try:
        await asyncio.wait((told, abandoned), return_when=asyncio.FIRST_COMPLETED)
        await host.drain()
    finally:
        told.cancel()
        abandoned.cancel()
        await host.stop()
    return EXIT_GAVE_UP if not shutdown.requested and host.gave_up else EXIT_OK
