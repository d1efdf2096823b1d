"""Large blobs on a server with max_payload 64 KB."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import nats as nats_py
import pytest

from callboard.runtime.nats_server import ServerProcess, ServerSettings
from callboard.store.blobs import Blobs
from callboard.store.deadletters import DeadLetters
from callboard.topics.bus import Bus
from callboard.topics.errors import InvalidInput, PayloadTooLarge
from tests.support.nats import private_server

LIMIT = 64 * 1024


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("nats")
    with private_server(folder, ServerSettings(name="small", max_payload_bytes=LIMIT)) as server:
        yield server


async def test_five_megabytes_go_through(nats: ServerProcess, bus: Bus) -> None:
    assert bus.max_payload == LIMIT
    blobs, data = Blobs(bus), random.Random(1).randbytes(5_000_000)
    ref = await blobs.put(data)
    assert await blobs.get(ref) == data
    async with await nats_py.connect(nats.url) as client:
        assert (await (await client.jetstream().object_store(blobs.bucket)).get(ref.name)).data == data
    await blobs.put(data)
    info = await bus.api(f"STREAM.INFO.OBJ_{blobs.bucket}")
    assert info is not None
    assert info["state"]["messages"] == -(-len(data) // (LIMIT - 512)) + 1


async def test_memory_stays_bounded(bus: Bus) -> None:
    """Besides the content itself, a put holds a window of chunks, and a get one batch and the joined copy."""
    blobs, data = Blobs(bus), random.Random(2).randbytes(20_000_000)
    await blobs.ensure()
    tracemalloc.start()
    try:
        ref = await blobs.put(data)
        put_peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert await blobs.get(ref) == data
        get_peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert put_peak < 12_000_000
    assert get_peak < 2 * len(data) + 12_000_000


async def test_an_oversize_message_is_refused_before_it_is_sent(bus: Bus) -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        bus.publish("x", b"y" * (LIMIT + 1))
    assert (caught.value.size, caught.value.limit) == (LIMIT + 1, LIMIT)
    assert (await bus.request("$JS.API.INFO")).data  # the connection stands


async def test_dead_letters_of_any_size_fit(bus: Bus) -> None:
    letters, body = DeadLetters(bus), random.Random(3).randbytes(LIMIT - 100)
    first = await letters.put("task", f"{bus.subjects.task}.x", body, None, InvalidInput("too much"))
    letter = (await letters.get(first)).letter
    assert letter.data == b""
    assert letter.ref is not None
    assert await Blobs(bus).get(letter.ref) == body
    wide = {"Small": "kept", "Large": "\u0001" * 30_000, "Trace": "t" * 100}
    second = await letters.put("task", f"{bus.subjects.task}.x", b"{}", wide, InvalidInput("m" * LIMIT))
    letter = (await letters.get(second)).letter
    assert letter.headers == {"Small": "kept", "Trace": "t" * 100}
    assert letter.reason.details == {"headers_dropped": ["Large"]}
    await letters.replay(first)
    stored = await bus.api(f"STREAM.MSG.GET.{bus.subjects.inbox}", {"last_by_subj": f"{bus.subjects.task}.x"})
    assert stored is not None
