"""A log followed live, without gap or double: notices on the live subject say when to read, the log says what.

That holds for one run or one tree, whose logs lie under a literal prefix and are read in a millisecond. Everything at
once is followed on the live subjects alone, and read from the log where the connection was lost in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from ..topics import reads
from ..topics.bus import Bus
from ..topics.client import Message
from ..topics.errors import Unavailable
from ..topics.reads import Stored

_LOOK_S = 2.0
_LATE_S = 0.02
_BACKLOG = 100_000


async def follow_log(bus: Bus, pattern: str, after: int = 0) -> AsyncIterator[list[Stored]]:
    """Messages on `pattern` (a wildcard last) after sequence `after`, for ever, in order, each once.

    Waits while the broker is away."""
    noticed = 0
    poke = asyncio.Event()

    def heard(message: Message) -> None:
        nonlocal noticed
        noticed = max(noticed, Stored.of(message).sequence)
        poke.set()

    subscription = await bus.subscribe(bus.subjects.live_of(pattern), heard)
    bus.on_reconnect.append(poke.set)
    try:
        while True:
            poke.clear()
            try:
                page, pending = await reads.page_after(bus, bus.subjects.events, pattern, after)
            except Unavailable:
                await bus.connected()
                await asyncio.sleep(_LATE_S * 10)
                continue
            if page:
                after = page[-1].sequence
                yield page
            if not pending:
                await _wait(poke, _LATE_S if noticed > after else _LOOK_S)
    finally:
        bus.on_reconnect.remove(poke.set)
        await subscription.close()


async def _wait(poke: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await poke.wait()
    except TimeoutError:
        return


async def follow_all(bus: Bus) -> AsyncIterator[list[Stored]]:
    """Every event of every run from now on, in order, each once."""
    pattern = f"{bus.subjects.run}.>"
    queue: deque[Stored] = deque(maxlen=_BACKLOG)
    poke = asyncio.Event()
    lost = False

    def heard(message: Message) -> None:
        queue.append(Stored.of(message))
        poke.set()

    def reconnected() -> None:
        nonlocal lost
        lost = True
        poke.set()

    subscription = await bus.subscribe(bus.subjects.live_of(pattern), heard)
    bus.on_reconnect.append(reconnected)
    try:
        info = await bus.api(f"STREAM.INFO.{bus.subjects.events}")
        after = int((info or {}).get("state", {}).get("last_seq", 0))
        while True:
            await poke.wait()
            poke.clear()
            if lost or len(queue) == _BACKLOG:
                lost = False
                async for page in _missed(bus, pattern, after):
                    after = page[-1].sequence
                    yield page
            batch = [one for one in queue if one.sequence > after]
            queue.clear()
            if batch:
                after = batch[-1].sequence
                yield batch
    finally:
        bus.on_reconnect.remove(reconnected)
        await subscription.close()


async def _missed(bus: Bus, pattern: str, after: int) -> AsyncIterator[list[Stored]]:
    while True:
        try:
            async for page in reads.read(bus, bus.subjects.events, pattern, after):
                after = page[-1].sequence
                yield page
        except Unavailable:
            await bus.connected()
            await asyncio.sleep(_LATE_S * 10)
            continue
        return
