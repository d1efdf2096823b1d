"""A rolling deploy with real processes: two versions at once, pinned runs, and one that was interrupted in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.store.log import EventLog
from callboard.topics.messages import Answer, Payload, RunRecord, Status
from tests.support.system import System, result, system

MODULE = str(Path(__file__).with_name("versioned_agents.py"))


async def cli(whole: System, *words: str) -> str:
    """What a command prints."""
    done = await whole.command(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def versions(whole: System) -> list[tuple[str, bool, int, int]]:
    """Of agent `custodian`, as `callboard agents` shows them: version, whether it is current, workers, pinned runs."""
    text = await cli(whole, "agents", "--json")
    shown = [msgspec.json.decode(line) for line in text.splitlines()]
    (custodian,) = [one for one in shown if one["name"] == "custodian"]
    return [(one["version"], one["current"], len(one["workers"]), one["pinned"]) for one in custodian["versions"]]


async def until(whole: System, run: str, accept: Callable[[RunRecord], bool], within_s: float = 30) -> RunRecord:
    """The record of a run, once it is as wished."""
    deadline = time.monotonic() + within_s
    while True:
        loaded = await EventLog(whole.bus).load(run)
        if loaded is not None and accept(loaded.record):
            return loaded.record
        assert time.monotonic() < deadline, f"{loaded}\n{whole.logs()}"
        await asyncio.sleep(0.05)


async def tell(whole: System, run: str, word: str) -> None:
    """Answers a run once it asks."""
    await until(whole, run, lambda record: record.status is Status.INPUT_REQUIRED)
    await whole.submitter.resume(run, [Answer(value=Payload(json=msgspec.Raw(msgspec.json.encode(word))))])


async def answered(whole: System, run: str, word: str) -> RunRecord:
    """The end of a run that is told `word`."""
    await tell(whole, run, word)
    return await whole.finished(run)


@pytest.mark.system
async def test_a_rolling_deploy(nats: ServerProcess, tmp_path: Path) -> None:
    async with system(nats.url, tmp_path) as whole:
        whole.start("coordinator", CALLBOARD_UNSERVED_AFTER_S="1")
        old = whole.start("worker", MODULE, AGENT_VERSION="1")
        await whole.ready()
        pinned = await whole.submit("custodian", True)
        asked = await whole.submit("review", {})
        await until(whole, asked, lambda record: record.status is Status.INPUT_REQUIRED)
        await until(whole, pinned, lambda record: record.status is Status.INPUT_REQUIRED)

        whole.start("worker", MODULE, AGENT_VERSION="2")
        await whole.ready(1, 2)
        assert await versions(whole) == [("2", True, 1, 0), ("1", False, 1, 1)]
        assert result(await whole.finished(await whole.submit("custodian", False))) == "2"

        whole.kill(old)
        record = await answered(whole, asked, "yes")
        assert result(record)["log"] == ["written by 1", "yes, told to 2", "A draft by Lovelace, Ada"]
        assert (record.version, record.pin) == ("2", False)

        await tell(whole, pinned, "go")
        waits = await until(whole, pinned, lambda one: "no worker has agent 'custodian'" in (one.reason or ""))
        assert (waits.status, waits.version) == (Status.QUEUED, "1")
        assert "queue:custodian@1" in await cli(whole, "attention")

        forked = (await cli(whole, "fork", asked, "--checkpoint", await first(whole, asked))).strip()
        again = await answered(whole, forked, "no")
        assert result(again)["log"] == ["written by 1", "no, told to 2", "A draft by Lovelace, Ada"]
        shown = await cli(whole, "runs", "show", forked)
        assert f"run {asked} at checkpoint" in shown

        whole.start("worker", MODULE, AGENT_VERSION="1")
        assert result(await whole.finished(pinned)) == "1"
        assert result(await whole.finished(await whole.submit("custodian", False))) == "2"
        assert await versions(whole) == [("2", True, 1, 0), ("1", False, 1, 0)]


async def first(whole: System, run: str) -> str:
    """The id of the last checkpoint that version 1 has written."""
    from callboard.store.blobs import Blobs
    from callboard.store.checkpoints import Checkpoints

    history: list[Any] = await Checkpoints(whole.bus, Blobs(whole.bus)).history(run)
    return str(next(one.id for one in history if one.checkpoint.version == "1"))
