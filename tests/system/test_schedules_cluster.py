"""A schedule on three servers, the leader of the inbox killed between its due times."""

from __future__ import annotations

import asyncio
from pathlib import Path

from callboard.store.schedules import Schedules
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.ids import new_token
from callboard.topics.streams import ensure_streams
from tests.actors.company import company
from tests.support.invariants import check
from tests.support.nats import private_cluster

from .test_schedules import each_second, has_runs, ticker


async def test_an_election_delays_fires_and_loses_none(tmp_path: Path) -> None:
    with private_cluster(tmp_path) as cluster:
        settings = BrokerSettings(nats_url=cluster.url, namespace=f"t{new_token(8)}", replicas=3)
        bus = await Bus.connect(settings)
        try:
            await ensure_streams(bus, settings)
            async with company(settings, bus, [ticker], coordinators=2):
                schedules = Schedules(bus)
                await schedules.put("e", every_s=1, agent="ticker")
                await has_runs(bus, "e", 3)
                info = await bus.api(f"STREAM.INFO.{bus.subjects.inbox}")
                assert info is not None
                leader = info["cluster"]["leader"]
                index = next(n for n, node in enumerate(cluster.nodes) if node.settings.name == leader)
                await asyncio.to_thread(cluster.kill, index)
                each_second(await has_runs(bus, "e", 12, 60))
                await schedules.remove("e")
                await asyncio.sleep(1)
            await check(bus)
        finally:
            await bus.close()
