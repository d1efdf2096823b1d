"""Any NATS client, in any language, is a full client: nothing of ours is imported but the fixtures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import nats as nats_py
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from callboard.runtime.nats_server import ServerProcess
from tests.support.system import System, system


@pytest.fixture
async def whole(nats: ServerProcess, tmp_path: Path) -> AsyncIterator[System]:
    async with system(nats.url, tmp_path) as found:
        found.start("coordinator")
        found.start("worker")
        await found.ready()
        yield found


@pytest.fixture
async def bare(nats: ServerProcess) -> AsyncIterator[Client]:
    connection = await nats_py.connect(nats.url)
    yield connection
    await connection.close()


class Watcher:
    """Every state of every run, from the live subject."""

    def __init__(self) -> None:
        self.states: list[tuple[str, str]] = []
        self.changed = asyncio.Event()

    async def heard(self, message: Msg) -> None:
        record = json.loads(message.data)
        self.states.append((record["id"], record["status"]))
        self.changed.set()

    async def path_of(self, run: str | None = None, within_s: float = 15) -> list[str]:
        async with asyncio.timeout(within_s):
            while True:
                self.changed.clear()
                found = [status for one, status in self.states if run in (None, one)]
                if found and found[-1] in ("completed", "failed"):
                    return found
                await self.changed.wait()


async def test_plain_json_on_a_task_subject_becomes_a_run_that_anyone_sees(whole: System, bare: Client) -> None:
    watcher = Watcher()
    namespace = whole.settings.namespace
    await bare.subscribe(f"{namespace}.live.run.*.*.state", cb=watcher.heard)
    await bare.jetstream().publish(f"{namespace}.task.plus", b"41")
    assert await watcher.path_of() == ["queued", "running", "completed"]


async def test_the_publisher_may_choose_the_id_and_publish_twice(whole: System, bare: Client) -> None:
    watcher = Watcher()
    namespace = whole.settings.namespace
    await bare.subscribe(f"{namespace}.live.run.*.*.state", cb=watcher.heard)
    for _ in range(3):
        await bare.jetstream().publish(f"{namespace}.task.plus", b"1", headers={"Callboard-Run": "order-42"})
    assert await watcher.path_of("order-42") == ["queued", "running", "completed"]
    await asyncio.sleep(0.5)
    assert [status for _, status in watcher.states] == ["queued", "running", "completed"]


async def test_a_request_on_submit_answers_with_the_id_of_a_durable_run(whole: System, bare: Client) -> None:
    namespace = whole.settings.namespace
    body = json.dumps({"agent": "plus", "input": 1}).encode()
    answer = json.loads((await bare.request(f"{namespace}.rpc.submit", body, timeout=5)).data)
    stored = await bare.jetstream().get_last_msg(
        f"{namespace}_EVENTS", f"{namespace}.run.{answer['run']}.{answer['run']}.state"
    )
    assert json.loads(stored.data or b"")["id"] == answer["run"]


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("task.plus", b"{not json"),
        ("task.plus", b"\xff\xfe\x00"),
        ("task.plus", b"[" * 5000),
        ("cmd.some-run.dance", b"{}"),
        ("cmd.some-run.cancel", b"[]"),
        ("cmd.a.b.c", b""),
        ("work.plus", b"\x00garbage"),
    ],
)
async def test_garbage_is_set_aside_with_a_reason_and_work_goes_on(
    whole: System, bare: Client, subject: str, body: bytes
) -> None:
    namespace = whole.settings.namespace
    await bare.jetstream().publish(f"{namespace}.{subject}", body)
    async with asyncio.timeout(15):
        while (await bare.jetstream().stream_info(f"{namespace}_DEAD")).state.messages < 1:
            await asyncio.sleep(0.1)
    watcher = Watcher()
    await bare.subscribe(f"{namespace}.live.run.*.*.state", cb=watcher.heard)
    await bare.jetstream().publish(f"{namespace}.task.plus", b"1")
    assert (await watcher.path_of())[-1] == "completed"
    assert (await bare.jetstream().stream_info(f"{namespace}_DEAD")).state.messages == 1
