"""Blobs that are gone or damaged: who needs one is told which, and of which run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest

from callboard.actors.agent import Retry, agent
from callboard.actors.engine import Context
from callboard.store.blobs import Blobs
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import BlobRef, RunRecord, Status, TaskRequest
from tests.actors.company import Company, company
from tests.support.storage import damage, lose_chunks

LARGE = "x" * 60_000
Spoil = Callable[[Bus, BlobRef], Awaitable[None]]
SPOILT = [(lose_chunks, "blob_missing"), (damage, "blob_corrupt")]
spoilers: list[Spoil] = []


@agent("reader")
async def reader(ctx: Context, text: str) -> int:
    return len(text)


@agent("again", retries=Retry(max_attempts=2, initial=timedelta(milliseconds=10)))
async def again(ctx: Context) -> int:
    """Its second attempt needs the result of its first one's step."""
    text = await ctx.step(lambda: LARGE, name="large", returns=str)
    if ctx.run.attempt == 1:
        (entry,) = await firm.steps(ctx.run.id)
        assert entry.value is not None
        assert entry.value.ref is not None
        await spoilers[0](firm.bus, entry.value.ref)
        raise OSError("again")
    return len(text)


@agent("maker")
async def maker(ctx: Context) -> str:
    return LARGE + "made"


@agent("parent")
async def parent(ctx: Context) -> int:
    """Its child's result is spoilt before it is read."""
    child = await ctx.start("maker")
    record = await firm.ended(child.id)
    assert record.result is not None
    assert record.result.ref is not None
    await spoilers[0](firm.bus, record.result.ref)
    return len(await child.result())


firm: Company


@pytest.fixture(autouse=True)
async def _company(settings: BrokerSettings, bus: Bus) -> AsyncIterator[None]:
    global firm
    async with company(settings, bus, [reader, again, maker, parent]) as firm:
        yield


def told(record: RunRecord, code: str, what: str, run: str) -> None:
    assert record.status is Status.FAILED
    assert record.error is not None
    assert record.error.code == code
    assert not record.error.retryable
    assert record.error.message.startswith(f"{what} of run {run} cannot be read: blob ")
    assert record.error.details is not None
    assert record.error.details["run"] == run
    assert record.error.details["blob"] in record.error.message


@pytest.mark.parametrize(("spoil", "code"), SPOILT)
async def test_the_input_of_a_run(bus: Bus, spoil: Spoil, code: str) -> None:
    text = b'"' + LARGE.encode() + b'"'
    ref = await Blobs(bus).put(text)
    await spoil(bus, ref)
    reply = await firm.submitter.submit(TaskRequest(agent="reader", input_ref=ref))
    assert reply.run is not None
    told(await firm.ended(reply.run), code, "the input", reply.run)


@pytest.mark.parametrize(("spoil", "code"), SPOILT)
async def test_the_result_of_a_step(spoil: Spoil, code: str) -> None:
    spoilers[:] = [spoil]
    record = await firm.run("again")
    told(record, code, "the result of step 'large' (0)", record.id)


@pytest.mark.parametrize(("spoil", "code"), SPOILT)
async def test_the_result_of_a_child(spoil: Spoil, code: str) -> None:
    spoilers[:] = [spoil]
    record = await firm.run("parent")
    assert record.error is not None
    assert record.error.details is not None
    told(record, code, "the result", record.error.details["run"])
    assert record.error.details["run"].startswith(f"{record.id}~")
