"""Hosting roles in this process: connect with patience, start, say so, wait for a signal, drain.

A role starts also when NATS is down, and takes up work as soon as it can. What cannot get better by waiting (a server
that is too old, bad settings) ends it with the exit code of the error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..actors.errors import ActorGaveUp
from ..runtime import garbage
from ..runtime.config import RuntimeSettings
from ..runtime.host import Host
from ..runtime.lease import LeaseKeeper
from ..runtime.process import EXIT_GAVE_UP, Shutdown, run_process
from ..runtime.telemetry import set_up_telemetry
from ..topics.bus import Bus
from ..topics.config import BrokerSettings
from ..topics.errors import BrokerError, CallboardError
from ..topics.server import JetStreamDisabled, ServerTooOld
from ..topics.streams import ensure_streams
from .environment import Globals, broker_settings, load
from .exits import exit_code
from .wording import masked

log = logging.getLogger(__name__)

_BACKOFF_S = 0.2
_BACKOFF_MAX_S = 5.0
FATAL = (ServerTooOld, JetStreamDisabled)

Populate = Callable[[Bus, Host, LeaseKeeper | None], str]
"""Adds actors to a host; gives the words for the line that says what it is, as `worker … serves …`."""


@dataclass(frozen=True, slots=True)
class Place:
    """The settings that every role has."""

    broker: BrokerSettings
    runtime: RuntimeSettings


def place(chosen: Globals, **runtime: Any) -> Place:
    """Settings from the environment with what the command line says on top. Raises InvalidInput."""
    return Place(broker_settings(chosen), load(RuntimeSettings, **runtime))


def run_role(
    role: str,
    chosen: Globals,
    where: Place,
    main: Callable[[Shutdown], Coroutine[Any, Any, int | None]],
    *,
    end_with_stdin: bool,
) -> int:
    """Runs a role until it is told to stop; gives the exit code. Must be called in the main thread."""
    from .app import report
    from .logs import set_up

    set_up(chosen.verbose)
    end_telemetry = set_up_telemetry(role)
    if end_with_stdin:
        threading.Thread(target=_end_with_stdin, name="stdin", daemon=True).start()

    async def guarded(shutdown: Shutdown) -> int | None:
        try:
            return await main(shutdown)
        except ActorGaveUp:
            raise  # it has an exit code of its own
        except CallboardError as error:
            report(error)
            return exit_code(error)

    try:
        return run_process(guarded, where.runtime.grace_s)
    finally:
        end_telemetry()


def _end_with_stdin() -> None:
    """Whoever started this process holds the other end of its standard input; when that closes, it is gone."""
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def serving(line: str) -> None:
    """The role has started: says so in one line on standard output."""
    garbage.settle()
    announce(line)


def announce(line: str) -> None:
    """A line on standard output for whoever has started the role."""
    with suppress(OSError):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


# -- connecting -------------------------------------------------------------------------------------------------


class Patience:
    """Growing pauses, and one log line for each reason."""

    def __init__(self) -> None:
        self._delay = _BACKOFF_S
        self._why = ""

    async def pause(self, error: CallboardError) -> None:
        """Logs the reason if it is a new one, and waits."""
        if str(error) != self._why:
            self._why = str(error)
            log.warning("%s; trying again", error)
        await asyncio.sleep(self._delay * (0.5 + random.random()))
        self._delay = min(self._delay * 2, _BACKOFF_MAX_S)


async def connect(broker: BrokerSettings, role: str) -> Bus:
    """A connection to a server that is good enough, with the streams declared; waits for it.

    Raises ServerTooOld, JetStreamDisabled (said by the account), InvalidInput."""
    patience = Patience()
    while True:
        bus: Bus | None = None
        try:
            bus = await Bus.connect(broker, name=f"callboard-{role}")
            await ensure_streams(bus, broker)
            return bus
        except FATAL:
            await _close(bus)
            raise
        except BrokerError as error:
            await _close(bus)
            await patience.pause(error)
        except BaseException:
            await _close(bus)
            raise


async def _close(bus: Bus | None) -> None:
    if bus is not None:
        await bus.close()


# -- hosting ----------------------------------------------------------------------------------------------------


async def host(role: str, where: Place, shutdown: Shutdown, populate: Populate, *, leases: bool = False) -> int | None:
    """Hosts actors until the shutdown is requested or all of them are given up."""
    bus = await connect(where.broker, role)
    keeper = LeaseKeeper(where.broker, where.runtime) if leases else None
    try:
        if keeper is not None:
            await keeper.start()
        found, words = await _started(bus, where, populate, keeper)
        try:
            serving(f"{role} {found.id} {words}on NATS {masked(where.broker.nats_url)}")
            return await _until_told(shutdown, found)
        finally:
            await found.drain()
    finally:
        if keeper is not None:
            await keeper.stop()
        await bus.close()


async def _started(bus: Bus, where: Place, populate: Populate, keeper: LeaseKeeper | None) -> tuple[Host, str]:
    patience = Patience()
    while True:
        found = Host(bus, where.runtime, keeper=keeper)
        words = populate(bus, found, keeper)
        try:
            await found.start()
        except BrokerError as error:  # the connection was lost again, or the cluster has no leader yet
            await patience.pause(error)
            await bus.connected()
            continue
        return found, words


async def _until_told(shutdown: Shutdown, found: Host) -> int | None:
    told = asyncio.create_task(shutdown.wait(), name="told")
    abandoned = asyncio.create_task(found.abandoned(), name="abandoned")
    try:
        await asyncio.wait((told, abandoned), return_when=asyncio.FIRST_COMPLETED)
        return None if told.done() else EXIT_GAVE_UP
    finally:
        told.cancel()
        abandoned.cancel()
