"""Checkpoints on three servers with three replicas: what one has written, every other can load at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from callboard.store.blobs import Blobs
from callboard.store.checkpoints import Checkpoints, Choice
from callboard.store.errors import CheckpointMissing
from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.ids import new_token
from callboard.topics.streams import ensure_streams
from tests.actors.company import eventually
from tests.store.chains import Chain
from tests.support.nats import Cluster, private_cluster

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("cluster")
    with private_cluster(folder) as servers:
        yield servers


@pytest.fixture
async def buses(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Bus]]:
    """A connection to each server."""
    monkeypatch.delenv("NATS_URL", raising=False)
    namespace = f"t{new_token(8)}"
    connections = [
        await Bus.connect(BrokerSettings(nats_url=url, namespace=namespace, replicas=3)) for url in cluster.urls
    ]
    try:
        await ensure_streams(connections[0], connections[0].settings)
        yield connections
    finally:
        for connection in connections:
            await connection.close()


async def test_the_newest_state_is_loaded_at_every_server_right_after_it_was_written(buses: list[Bus]) -> None:
    """The leader says which is the newest; a replica that does not know a piece yet is asked again."""
    chain = await Chain(buses[0]).begin()
    others = [Checkpoints(bus, Blobs(bus)) for bus in buses]
    items: list[str] = []
    for turn in range(60):
        items.append(f"turn {turn} with some text to it")
        await chain.save({"items": items, "turn": turn}, {"items": items[-1:], "turn": None})
        for other in others:
            state = await other.load(chain.run)
            assert state is not None
            assert state.values == {"items": items, "turn": turn}


async def test_what_a_replica_does_not_have_is_asked_of_the_leader(
    buses: list[Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = await Chain(buses[0]).begin()
    await chain.save({"a": "some text", "b": 1})
    await chain.save({"a": "some text", "b": 2})

    async def behind(*_: object) -> dict[int, reads.Stored]:
        return {}

    monkeypatch.setattr(reads, "by_sequences", behind)
    state = await chain.store.load(chain.run)
    assert state is not None
    assert state.values == {"a": "some text", "b": 2}


async def gone(store: Checkpoints, run: str, names: list[str], count: int) -> bool:
    """Whether so many of these cannot be loaded: a replica may have what was removed for a moment."""
    missing = 0
    for name in names:
        try:
            await store.load(run, name)
        except CheckpointMissing:
            missing += 1
    return missing == count


@pytest.mark.proof
async def test_what_is_pruned_is_gone_at_every_server_and_what_stays_loads_there(buses: list[Bus]) -> None:
    """Over each connection in turn, with a label and a fork's hold set over another one a moment before."""
    stores = [Checkpoints(bus, Blobs(bus)) for bus in buses]
    for at, store in enumerate(stores):
        chain = await Chain(buses[at]).begin()
        for turn in range(12):
            await chain.save({"turn": turn, "fixed": "some text", "items": [f"item {one}" for one in range(turn)]})
        names = [str(sequence) for sequence, _ in chain.saved]
        other = stores[(at + 1) % len(stores)]
        await other.labels.put(chain.run, "good", names[2])
        assert await other.labels.hold(chain.run, int(names[4]), "a-fork")
        done = await store.prune(chain.run, Choice(keep=3))
        assert (done.kept, done.held, done.removed + done.carriers) == (5, 2, 7)
        assert done.removed > 0
        for one in stores:
            assert [saved.id for saved in await one.history(chain.run)] == [*names[:8:-1], names[4], names[2]]
            for sequence, values in [chain.saved[2], chain.saved[4], *chain.saved[-3:]]:
                state = await one.load(chain.run, str(sequence))
                assert state is not None
                assert state.values == values
            await eventually(partial(gone, one, chain.run, names, done.removed))
