"""Storage that fails: a stream without room for one more message, a blob whose content is gone or damaged."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.messages import BlobRef


@asynccontextmanager
async def full(bus: Bus, *streams: str) -> AsyncIterator[None]:
    """Inside the block these streams hold no byte more (`discard: new`); after it they are without a limit again."""
    before = [await _config(bus, stream) for stream in streams]
    for stream, config in zip(streams, before, strict=True):
        await _limit(bus, stream, config)
    try:
        yield
    finally:
        for stream, config in zip(streams, before, strict=True):
            await bus.api(f"STREAM.UPDATE.{stream}", config | {"max_bytes": -1})


async def _limit(bus: Bus, stream: str, config: dict[str, Any]) -> None:
    """What is written meanwhile is let in: the limit is what the stream holds at that moment."""
    info = await bus.api(f"STREAM.INFO.{stream}")
    assert info is not None
    await bus.api(f"STREAM.UPDATE.{stream}", config | {"max_bytes": max(1, info["state"]["bytes"]), "discard": "new"})


async def _config(bus: Bus, stream: str) -> dict[str, Any]:
    info = await bus.api(f"STREAM.INFO.{stream}")
    assert info is not None
    config: dict[str, Any] = info["config"]
    return config


async def lose_chunks(bus: Bus, ref: BlobRef) -> None:
    """The blob's description stays, its content is gone."""
    await bus.api(f"STREAM.PURGE.OBJ_{ref.bucket}", {"filter": await _chunks_of(bus, ref)})


async def damage(bus: Bus, ref: BlobRef) -> None:
    """Other bytes stand where the blob's content was; for blobs of one chunk."""
    subject = await _chunks_of(bus, ref)
    await lose_chunks(bus, ref)
    await bus.write(subject, b"?" * ref.size)


async def _chunks_of(bus: Bus, ref: BlobRef) -> str:
    name = urlsafe_b64encode(ref.name.encode()).decode()
    stored = await reads.last(bus, f"OBJ_{ref.bucket}", f"$O.{ref.bucket}.M.{name}")
    assert stored is not None
    return f"$O.{ref.bucket}.C.{msgspec.json.decode(stored.data)['nuid']}"
