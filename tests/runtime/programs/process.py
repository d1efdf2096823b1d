"""A process that behaves as its first argument says; the second is the NATS URL. Prints `ready` when it waits."""

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from callboard.actors.actor import Actor
from callboard.actors.context import ActorContext
from callboard.runtime.config import RuntimeSettings
from callboard.runtime.host import Host
from callboard.runtime.process import Shutdown, run_process, serve
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings

MODE, URL = sys.argv[1], sys.argv[2]
GRACE_S = 1.0


class Idle(Actor):
    async def stopped(self, ctx: ActorContext) -> None:
        print("stopped", flush=True)

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        return [self.work]

    async def work(self) -> None:
        print("ready", flush=True)
        if MODE == "giving-up":
            raise RuntimeError("never works")
        await asyncio.Event().wait()


async def hosting(shutdown: Shutdown) -> int:
    bus = await Bus.connect(BrokerSettings(nats_url=URL, namespace="proc", connect_timeout_s=4))
    host = Host(bus, RuntimeSettings(grace_s=GRACE_S, restart_limit=2, restart_initial_s=0.01))
    host.add(Idle)
    try:
        return await serve(host, shutdown)
    finally:
        await bus.close()


async def waiting(shutdown: Shutdown) -> int:
    print("ready", flush=True)
    return await hosting(shutdown)


async def stubborn(shutdown: Shutdown) -> None:
    print("ready", flush=True)
    await shutdown.wait()
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


async def blocked(shutdown: Shutdown) -> None:
    print("ready", flush=True)
    await shutdown.wait()
    time.sleep(60)


async def failing(shutdown: Shutdown) -> None:
    raise ValueError("a defect")


async def code(shutdown: Shutdown) -> int:
    return 42


MAINS = {
    "hosting": hosting, "waiting": waiting, "giving-up": hosting, "stubborn": stubborn, "blocked": blocked,
    "failing": failing,
}  # fmt: skip

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    sys.exit(run_process(MAINS.get(MODE, code), GRACE_S))
