"""What a coordinator knows of the agents, although words may be lost on the way to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from callboard.actors.coordinator.routing import Routing
from callboard.store.agents import AgentRegistry
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import AgentInfo
from tests.actors.company import eventually
from tests.chaos.proxy import before


@asynccontextmanager
async def routing_of(bus: Bus) -> AsyncIterator[Routing]:
    """As a coordinator keeps it."""
    found = Routing(bus, AgentRegistry(bus))
    bus.on_reconnect.append(found.reconnected)
    await found.start()
    watch = asyncio.create_task(found.watch())
    try:
        yield found
    finally:
        watch.cancel()
        await found.stop()


async def test_what_was_registered_while_the_connection_was_away_is_known_after_it(
    settings: BrokerSettings, bus: Bus
) -> None:
    """The live word was lost: a limit that stands in a registration would never hold."""
    registry = AgentRegistry(bus)
    await registry.register(AgentInfo(name="old", version="1"))
    async with before(settings.nats_url) as proxy:
        far = await Bus.connect(settings.model_copy(update={"nats_url": proxy.url}))
        async with routing_of(far) as routing:
            told = asyncio.Event()
            routing.on_registration.append(told)
            proxy.refuse()
            await eventually(lambda: not far.is_up)
            await registry.register(AgentInfo(name="new"))
            await registry.register(AgentInfo(name="old", version="2"))
            proxy.heal()
            await eventually(lambda: routing.agent("new") is not None, 10)
            assert (routing.agent("old") or AgentInfo(name="")).version == "2"
            assert told.is_set()
        await far.close()


async def test_what_was_heard_is_not_overwritten_by_what_a_replica_still_has(bus: Bus) -> None:
    registry = AgentRegistry(bus)
    await registry.register(AgentInfo(name="writer", version="1"))
    late = await registry.registrations()
    async with routing_of(bus) as routing:
        await registry.register(AgentInfo(name="writer", version="2"))
        await eventually(lambda: (routing.agent("writer") or AgentInfo(name="")).version == "2")

        async def behind() -> object:
            return late

        routing._registry.registrations = behind  # type: ignore[method-assign,assignment]
        await routing.refresh()
        assert (routing.agent("writer") or AgentInfo(name="")).version == "2"
        assert routing.agent("writer", "1") is not None
