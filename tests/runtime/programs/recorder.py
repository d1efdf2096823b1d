"""A process that hosts one actor, `recorder`, which notes in a file what it handles: `start|end pid key n attempt`.

Arguments: the NATS URL, the namespace, the file, and how long one message takes, in seconds. A message with `kill` set
ends the process at once, as a crash does; one with `fail` raises.
"""

import asyncio
import os
import signal
import sys
from dataclasses import dataclass

from callboard.actors.actor import Actor
from callboard.actors.context import ActorContext
from callboard.actors.handler import ask, on
from callboard.runtime.config import RuntimeSettings
from callboard.runtime.host import Host
from callboard.runtime.process import Shutdown, run_process, serve
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings

URL, NAMESPACE, FILE, TAKES_S = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])


@dataclass
class Note:
    n: int
    fail: bool = False
    kill: bool = False


def note(*words: object) -> None:
    line = " ".join(str(word) for word in words) + "\n"
    out = os.open(FILE, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(out, line.encode())
    os.close(out)


class Recorder(Actor):
    max_deliveries = 3

    @on("notes")
    async def received(self, ctx: ActorContext, message: Note) -> None:
        note("start", os.getpid(), ctx.key, message.n, ctx.attempt)
        if message.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(TAKES_S)
        if message.fail:
            raise ValueError(f"cannot handle {message.n}")
        note("end", os.getpid(), ctx.key, message.n, ctx.attempt)

    @ask
    async def pid(self, ctx: ActorContext, message: None) -> int:
        return os.getpid()


async def main(shutdown: Shutdown) -> int:
    broker = BrokerSettings(nats_url=URL, namespace=NAMESPACE)
    bus = await Bus.connect(broker)
    host = Host(bus, RuntimeSettings(beat_s=0.3, owner_lease_s=1.0, grace_s=5))
    host.add(Recorder)
    note("up", os.getpid(), "-", 0, 0)
    try:
        return await serve(host, shutdown)
    finally:
        await bus.close()


if __name__ == "__main__":
    sys.exit(run_process(main, grace_s=5))
