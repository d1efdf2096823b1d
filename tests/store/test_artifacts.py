"""Artifacts of a run."""

from __future__ import annotations

import pytest

from callboard.store.artifacts import Artifacts
from callboard.store.blobs import Blobs
from callboard.store.errors import BlobMissing
from callboard.topics.bus import Bus
from callboard.topics.errors import InvalidRunId, NotFound
from callboard.topics.ids import new_run_id
from callboard.topics.messages import Artifact, BlobRef, encode


def artifact(
    name: str, n: int, text: str | None = None, base64: bytes | None = None, ref: BlobRef | None = None
) -> Artifact:
    return Artifact(
        at=str(n),
        attempt=1,
        n=n,
        name=name,
        media_type="text/plain",
        size=0,
        digest="sha256:",
        text=text,
        base64=base64,
        ref=ref,
    )


async def test_the_newest_version_of_each_name_counts(bus: Bus) -> None:
    artifacts, run = Artifacts(bus, Blobs(bus)), new_run_id()
    subject = bus.subjects.event(run, "artifact")
    large = bytes(range(256)) * 4000
    ref = await Blobs(bus).put(large)
    await bus.write(subject, encode([artifact("a", 1, "old"), artifact("b", 2, base64=b"\x00\xff")]))
    await bus.write(subject, encode(artifact("a", 3, "new ü")))
    await bus.write(subject, encode(artifact("large/name with spaces.bin", 4, ref=ref)))
    await bus.write(subject, encode(artifact("a", 1, "old")))  # a write that was repeated late
    await bus.write(bus.subjects.event(new_run_id(), "artifact"), encode(artifact("of another run", 1)))
    assert [(one.name, one.n) for one in await artifacts.list(run)] == [
        ("a", 3), ("b", 2), ("large/name with spaces.bin", 4),
    ]  # fmt: skip
    assert (await artifacts.read(run, "a"))[1] == "new ü".encode()
    assert (await artifacts.read(run, "b"))[1] == b"\x00\xff"
    found, content = await artifacts.read(run, "large/name with spaces.bin")
    assert (found.ref, content) == (ref, large)


async def test_what_is_not_there_is_told(bus: Bus) -> None:
    artifacts, run = Artifacts(bus, Blobs(bus)), new_run_id()
    assert await artifacts.list(run) == []
    with pytest.raises(NotFound, match=run):
        await artifacts.read(run, "a")
    with pytest.raises(InvalidRunId):
        await artifacts.list("a.b")
    ref = BlobRef(name="0" * 64, size=1, bucket=bus.subjects.blobs)
    await bus.write(bus.subjects.event(run, "artifact"), encode(artifact("a", 1, ref=ref)))
    with pytest.raises(BlobMissing):
        await artifacts.read(run, "a")


async def test_garbage_is_left_out(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    artifacts, run = Artifacts(bus, Blobs(bus)), new_run_id()
    subject = bus.subjects.event(run, "artifact")
    for data in (b"", b"\xff", b"{}", encode(artifact("a", 1, "x"))):
        await bus.write(subject, data)
    assert [one.name for one in await artifacts.list(run)] == ["a"]
    assert caplog.text.count("left out") == 3
