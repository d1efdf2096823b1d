"""Blobs: content-addressed objects that every NATS client can read."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random

import msgspec
import nats as nats_py
import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.store.blobs import CHUNK_BYTES, Blobs
from callboard.store.errors import BlobCorrupt, BlobMissing
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import StorageFull, Unavailable
from callboard.topics.ids import new_token
from callboard.topics.messages import BlobRef, Payload


def content(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


async def state_of(bus: Bus, blobs: Blobs) -> dict[str, int]:
    info = await bus.api(f"STREAM.INFO.OBJ_{blobs.bucket}")
    assert info is not None
    return dict(info["state"])


@pytest.fixture
def blobs(bus: Bus) -> Blobs:
    return Blobs(bus)


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5_000_000])
async def test_what_was_put_comes_back(blobs: Blobs, size: int) -> None:
    data = content(size)
    ref = await blobs.put(data)
    assert ref == BlobRef(name=hashlib.sha256(data).hexdigest(), size=size, bucket=blobs.bucket)
    assert await blobs.get(ref) == data


async def test_the_second_put_stores_nothing(bus: Bus, blobs: Blobs) -> None:
    data = content(700_000)
    await blobs.put(data)
    before = await state_of(bus, blobs)
    await blobs.put(data)
    await Blobs(bus).put(data)
    assert await state_of(bus, blobs) == before


async def test_nats_py_reads_what_we_put(nats: ServerProcess, blobs: Blobs) -> None:
    data = content(1_000_000)
    ref = await blobs.put(data)
    async with await nats_py.connect(nats.url) as client:
        store = await client.jetstream().object_store(blobs.bucket)
        found = await store.get(ref.name)
        listed = await store.list()
    assert found.data == data
    assert (found.info.size, found.info.chunks) == (len(data), -(-len(data) // CHUNK_BYTES))
    assert [each.name for each in listed] == [ref.name]


async def test_we_read_what_nats_py_put(nats: ServerProcess, blobs: Blobs) -> None:
    data = content(1_000_000)
    bucket = f"other_{new_token(6)}"
    async with await nats_py.connect(nats.url) as client:
        store = await client.jetstream().create_object_store(bucket)
        await store.put("a name/with spaces", data)
    assert await blobs.get(BlobRef(name="a name/with spaces", size=len(data), bucket=bucket)) == data


async def test_a_missing_blob_is_named(bus: Bus, blobs: Blobs) -> None:
    await blobs.ensure()
    name = "0" * 64
    for bucket in (blobs.bucket, "nowhere"):
        with pytest.raises(BlobMissing, match=name) as caught:
            await blobs.get(BlobRef(name=name, size=3, bucket=bucket))
        assert (caught.value.blob, caught.value.bucket) == (name, bucket)


async def test_a_blob_deleted_by_another_client_is_missing_and_can_be_put_again(
    nats: ServerProcess, blobs: Blobs
) -> None:
    data = content(300_000)
    ref = await blobs.put(data)
    async with await nats_py.connect(nats.url) as client:
        await (await client.jetstream().object_store(blobs.bucket)).delete(ref.name)
    with pytest.raises(BlobMissing, match=ref.name):
        await blobs.get(ref)
    await blobs.put(data)  # although the broker still knows the message ids of the chunks that are gone
    assert await blobs.get(ref) == data


async def test_a_missing_chunk_is_told(bus: Bus, blobs: Blobs) -> None:
    ref = await blobs.put(content(500_000))
    await bus.api(f"STREAM.MSG.DELETE.OBJ_{blobs.bucket}", {"seq": 2})
    with pytest.raises(BlobMissing, match="not complete") as caught:
        await blobs.get(ref)
    assert caught.value.blob == ref.name


async def test_changed_content_is_told(bus: Bus, blobs: Blobs) -> None:
    data = content(1000)
    ref = await blobs.put(data)
    info = await bus.api(f"STREAM.MSG.GET.OBJ_{blobs.bucket}", {"seq": 1})
    assert info is not None
    subject = info["message"]["subject"]
    await bus.api(f"STREAM.MSG.DELETE.OBJ_{blobs.bucket}", {"seq": 1})
    await bus.write(subject, content(1000, seed=2))
    with pytest.raises(BlobCorrupt, match="digest"):
        await blobs.get(ref)
    with pytest.raises(BlobCorrupt, match="1000 bytes instead of 3"):
        await blobs.get(BlobRef(name=ref.name, size=3, bucket=ref.bucket))


async def test_a_description_that_is_garbage_is_told_and_mended_by_the_next_put(bus: Bus, blobs: Blobs) -> None:
    data = content(1000)
    ref = await blobs.put(data)
    await bus.write(blobs._described_on(ref.name), b"\xff{")
    with pytest.raises(BlobCorrupt, match="cannot be read"):
        await blobs.get(ref)
    await blobs.put(data)
    assert await blobs.get(ref) == data


async def test_many_put_the_same_at_once(settings: BrokerSettings, bus: Bus) -> None:
    """Several connections race with the same bytes: the chunks lie there once, in order."""
    data = content(2_000_000)
    connections = [await Bus.connect(settings) for _ in range(4)]
    try:
        refs = await asyncio.gather(*(Blobs(each).put(data) for each in connections))
    finally:
        for each in connections:
            await each.close()
    blobs = Blobs(bus)
    assert set(refs) == {refs[0]}
    assert await blobs.get(refs[0]) == data
    assert (await state_of(bus, blobs))["messages"] == -(-len(data) // CHUNK_BYTES) + 1


async def test_a_put_that_was_cut_short_is_completed_by_the_next(
    bus: Bus, blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The put is cancelled while it hands over its third chunk, so it ends at its first wait for an acknowledgement."""
    data = content(40 * CHUNK_BYTES)
    await blobs.ensure()
    write, chunks = bus.write, 0

    def cutting(subject: str, *rest: bytes) -> asyncio.Future[int]:
        nonlocal chunks
        chunks += 1
        if chunks == 3:
            put.cancel()
        return write(subject, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(bus, "write", cutting)
        put = asyncio.create_task(blobs.put(data))
        with pytest.raises(asyncio.CancelledError):
            await put
    left = (await state_of(bus, blobs))["messages"]
    assert 3 <= left < 40
    ref = await Blobs(bus).put(data)
    assert await blobs.get(ref) == data
    assert (await state_of(bus, blobs))["messages"] == 41  # nothing twice, no rubbish


async def test_foreign_chunks_do_not_get_into_a_blob(nats: ServerProcess, bus: Bus, blobs: Blobs) -> None:
    data = content(300_000)
    ref = await blobs.put(data)
    info = await bus.api(f"STREAM.MSG.GET.OBJ_{blobs.bucket}", {"seq": 1})
    assert info is not None
    await bus.api(f"STREAM.PURGE.OBJ_{blobs.bucket}")
    await bus.write(info["message"]["subject"], b"not of this blob")
    await blobs.put(data)
    assert await blobs.get(ref) == data
    assert (await state_of(bus, blobs))["messages"] == 4  # the foreign chunk is gone
    async with await nats_py.connect(nats.url) as client:
        assert (await (await client.jetstream().object_store(blobs.bucket)).get(ref.name)).data == data


async def test_where_runs_are_kept_for_a_time_a_blob_outlives_its_last_put_by_that_time(
    settings: BrokerSettings,
) -> None:
    keeping = settings.model_copy(update={"retention_days": 1.0})
    day_s, data = 86_400.0, content(10_000)
    bus = await Bus.connect(keeping)
    try:
        time_s = [10 * day_s]
        blobs = Blobs(bus, clock=lambda: time_s[0])
        ref = await blobs.put(data)
        info = await bus.api(f"STREAM.INFO.OBJ_{blobs.bucket}")
        assert info is not None
        assert info["config"]["max_age"] == int(2 * day_s * 1e9)
        time_s[0] += 0.9 * day_s
        await blobs.put(data)
        assert (await state_of(bus, blobs))["messages"] == 2
        time_s[0] += 0.2 * day_s  # another period: stored anew, the old chunks age out
        await blobs.put(data)
        assert (await state_of(bus, blobs))["messages"] == 3
        assert await blobs.get(ref) == data
    finally:
        await bus.close()


async def test_a_full_store_is_told(settings: BrokerSettings) -> None:
    bus = await Bus.connect(settings.model_copy(update={"max_bytes": 400_000}))
    try:
        with pytest.raises(StorageFull):
            await Blobs(bus).put(content(1_000_000))
    finally:
        await bus.close()


async def test_values_travel_inline_up_to_the_limit_and_by_reference_above(bus: Bus, blobs: Blobs) -> None:
    small, large = b'"' + b"x" * (bus.inline_limit - 2) + b'"', b'"' + b"x" * (bus.inline_limit - 1) + b'"'
    inline, referred = await blobs.payload(small), await blobs.payload(large)
    assert inline == Payload(json=msgspec.Raw(small))
    assert referred.ref is not None
    assert isinstance(referred.json, msgspec.UnsetType)
    assert await blobs.value(inline) == small
    assert await blobs.value(referred) == large
    assert await blobs.value(Payload()) == b"null"


async def test_a_put_survives_a_restart_of_the_server(nats: ServerProcess, bus: Bus, blobs: Blobs) -> None:
    data = content(10_000_000, seed=int.from_bytes(os.urandom(4)))
    await blobs.ensure()
    put = asyncio.create_task(blobs.put(data))
    while (await state_of(bus, blobs))["messages"] < 3:
        await asyncio.sleep(0)
    await asyncio.to_thread(nats.kill)
    with pytest.raises(Unavailable):
        await Blobs(bus).put(b"x", patience_s=0.2)
    await asyncio.to_thread(nats.start)
    ref = await put
    assert await blobs.get(ref) == data
    assert (await state_of(bus, blobs))["messages"] == -(-len(data) // CHUNK_BYTES) + 1
