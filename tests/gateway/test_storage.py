"""Storage that is full or has lost something, as HTTP clients hear of it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import httpx
import pytest

from callboard.store.blobs import Blobs
from callboard.store.log import EventLog
from callboard.topics.bus import Bus
from callboard.topics.messages import Artifact, BlobRef, Payload, Status, encode
from tests.support.storage import damage, full, lose_chunks

from .serving import Writer
from .test_runs import problem

DATA = b'"' + b"x" * 60_000 + b'"'


async def test_without_room_in_the_log_every_write_is_refused_at_once(http: httpx.AsyncClient, bus: Bus) -> None:
    run = (await http.post("/runs", json={"agent": "nobody"})).json()["run"]
    body = {"agent": "nobody", "idempotency_key": "once"}
    async with full(bus, bus.subjects.events):
        began = time.monotonic()
        for path, sent in (
            ("/runs", body),
            (f"/runs/{run}/cancel", {}),
            ("/threads", {}),
        ):
            told = problem(await http.post(path, json=sent), 507, "storage_full")
            assert told["retryable"]
        assert time.monotonic() - began < 3
        assert (await http.get(f"/runs/{run}")).json()["status"] == "queued"
    assert (await http.post("/runs", json=body)).status_code == 202
    assert (await http.post(f"/runs/{run}/cancel", json={})).status_code == 200
    assert (await http.get(f"/runs/{run}")).json()["status"] == "canceled"


async def test_without_room_for_work_a_run_asked_for_again_is_the_same(http: httpx.AsyncClient, bus: Bus) -> None:
    body = {"agent": "nobody", "idempotency_key": "twice"}
    async with full(bus, bus.subjects.work_stream):
        problem(await http.post("/runs", json=body), 507, "storage_full")
    answers = [await http.post("/runs", json=body) for _ in range(2)]
    assert {one.status_code for one in answers} == {200}
    assert len({one.json()["run"] for one in answers}) == 1


@pytest.mark.parametrize(
    ("spoil", "status", "code"), [(lose_chunks, 410, "blob_missing"), (damage, 500, "blob_corrupt")]
)
async def test_a_blob_that_cannot_be_read_is_named_with_its_run(
    http: httpx.AsyncClient, bus: Bus, spoil: Callable[[Bus, BlobRef], Awaitable[None]], status: int, code: str
) -> None:
    blobs = Blobs(bus)
    refs = [await blobs.put(DATA + part + code.encode()) for part in (b"input", b"result", b"artifact")]
    writer = Writer(bus)
    await writer.to(Status.QUEUED, input=Payload(ref=refs[0]))
    await writer.to(Status.RUNNING, attempt=1)
    artifact = Artifact(
        at="1", attempt=1, n=1, name="report", media_type="text/plain", size=len(DATA), digest="sha256:1", ref=refs[2]
    )
    await EventLog(bus).append(writer.run, "artifact", encode(artifact), writer.state)
    await writer.to(Status.COMPLETED, result=Payload(ref=refs[1]))
    for ref in refs:
        await spoil(bus, ref)
    for path, what, ref in zip(
        ("input", "result", "artifacts/report"), ("the input", "the result", "artifact 'report'"), refs, strict=True
    ):
        told = problem(await http.get(f"/runs/{writer.run}/{path}"), status, code)
        assert told["run"] == writer.run
        assert told["blob"] == ref.name
        assert told["detail"].startswith(f"{what} of run {writer.run} cannot be read: blob {ref.name}")
