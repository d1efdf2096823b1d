"""A server whose messages may have 64 KB: everything a run handles goes by reference in good time."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from callboard.actors.agent import agent
from callboard.actors.engine import Context
from callboard.runtime.nats_server import ServerProcess, ServerSettings
from callboard.store.artifacts import Artifacts
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import Event, Status, Step
from tests.actors.company import company, result_of
from tests.support.nats import private_server


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Instead of the usual server."""
    with private_server(tmp_path_factory.mktemp("small"), ServerSettings(max_payload_bytes=64 * 1024)) as server:
        yield server


@agent("leaf")
async def leaf(ctx: Context, text: str) -> str:
    return text[::-1]


@agent("mixed")
async def mixed(ctx: Context, text: str) -> list[str]:
    again = await ctx.step(lambda: text + "é", name="again")
    for _ in range(20):
        await ctx.emit("text", again[-6000:])
        await ctx.stream("\x01" * 3000)
    await ctx.emit("big", again)
    await ctx.artifact("text.txt", again)
    await ctx.artifact("controls.txt", "\x01" * 4000)
    await ctx.artifact("bytes", b"\xff" * 4000)
    return await ctx.gather(*(ctx.call(leaf, again[-size:]) for size in (10, 7000, 9000, 60_000, 500_000)))


async def test_everything_large(settings: BrokerSettings, bus: Bus) -> None:
    """Input, step, events, artifacts, children's inputs and results, result: any size, each as it was."""
    async with company(settings, bus, [mixed, leaf], coordinators=2) as all_:
        assert bus.max_payload == 64 * 1024
        text = "ab" * 300_000
        record = await all_.run("mixed", text)
        assert record.status is Status.COMPLETED, record.error
        assert record.result is not None
        value = msgspec.json.decode(await all_.submitter._blobs.value(record.result))
        assert value == [(text + "é")[-size:][::-1] for size in (10, 7000, 9000, 60_000, 500_000)]
        told = await all_.told(record.id)
        assert sum(isinstance(one, Event) for one in told) == 41
        assert sum(isinstance(one, Step) and one.kind == "step" for one in told) == 1
        artifacts = Artifacts(bus, all_.submitter._blobs)
        assert (await artifacts.read(record.id, "text.txt"))[1].decode() == text + "é"
        assert (await artifacts.read(record.id, "controls.txt"))[1] == b"\x01" * 4000


async def test_many_runs_with_inputs_at_the_limit(settings: BrokerSettings, bus: Bus) -> None:
    """Their records do not fit into one answer to the worker's claims: they are granted one after another, and not
    taken for lost."""
    async with company(settings, bus) as all_:
        text = "x" * (bus.inline_limit - 100)
        runs = [await all_.submit("leaf", text) for _ in range(60)]
        await all_.worker(leaf, concurrency=64)
        for run in runs:
            record = await all_.ended(run, 30)
            assert result_of(record) == text
            assert record.losses == 0


async def test_wide_fan_out_of_large_children(settings: BrokerSettings, bus: Bus) -> None:
    """A request holds few of them, an answer few of their results. However short the worker's patience is, an attempt
    reads what has ended before it is let go of: else it would be woken at once, time and again."""

    @agent("wide")
    async def wide(ctx: Context, size: int) -> int:
        parts = await ctx.gather(*(ctx.call(leaf, "x" * size) for _ in range(40)))
        return sum(len(part) for part in parts)

    async with company(settings, bus, [wide, leaf], concurrency=32, patience_s=0.0) as all_:
        size = bus.inline_limit - 200
        record = await all_.run("wide", size, within_s=60)
        assert result_of(record) == 40 * size
        assert record.attempt < 10
