"""Runs that were recorded once replay on today's engine: no step is carried out again, the result is the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from callboard.store.log import EventLog, decode_record
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import RunRecord, Status, Work, encode
from tests.actors.company import company
from tests.histories import agents

FOLDER = Path(__file__).parents[1] / "histories"
HISTORIES = sorted(FOLDER.glob("*.json"))


async def restore(bus: Bus, history: dict[str, Any], until: int) -> None:
    """Writes the log as it was, up to message `until`, and the work messages of all runs that have not ended."""
    log = EventLog(bus)
    prefix = history["log"][0]["subject"].partition(".")[0]
    newest: dict[str, int] = {}
    for message in history["log"][:until]:
        subject = bus.subjects.namespace + message["subject"].removeprefix(prefix)
        newest[subject] = await bus.write(subject, json.dumps(message["body"]).encode())
    for record in await log.tree(history["run"]):
        if record.status is Status.RUNNING:  # as a coordinator writes it for a worker that was lost
            body = json.loads(encode(record))
            body |= {"status": "queued", "rev": record.rev + 1, "dispatch": record.dispatch + 1}
            lost = decode_record(json.dumps({k: v for k, v in body.items() if k not in ("worker", "lease")}).encode())
            await log.append_state(lost, newest[bus.subjects.state(record.id)])
            await work(bus, lost)
        elif not record.terminal:
            await work(bus, record)


async def work(bus: Bus, record: RunRecord) -> None:
    message = Work(run=record.id, dispatch=record.dispatch)
    await bus.store(f"{bus.subjects.work}.{record.agent}", encode(message))


def cuts(history: dict[str, Any]) -> list[int]:
    """Behind the last word of the first attempt, and half-way through it."""
    bodies = [message["body"] for message in history["log"]]
    running = [
        index for index, body in enumerate(bodies)
        if isinstance(body, dict) and body.get("id") == history["run"] and body.get("status") == "running"
    ]  # fmt: skip
    return [running[1], (running[0] + running[1]) // 2]


@pytest.mark.parametrize("file", HISTORIES, ids=lambda file: file.stem)
@pytest.mark.parametrize("cut", [0, 1], ids=["whole", "half"])
async def test_recorded_run_replays(settings: BrokerSettings, bus: Bus, file: Path, cut: int) -> None:
    history = json.loads(file.read_text())
    bus.salt = history["salt"]
    await restore(bus, history, cuts(history)[cut])
    agents.executed.clear()
    async with company(settings, bus, list(agents.AGENTS.values())) as all_:
        record = await all_.ended(history["run"])
        assert record.status is Status.COMPLETED, record.error
        assert record.result is not None
        assert json.loads(await all_.submitter._blobs.value(record.result)) == history["result"]
        if cut == 0:
            assert agents.executed == []
        places = [step.at for step in await all_.steps(history["run"])]
        assert len(set(places)) == len(places)


def test_there_are_histories() -> None:
    assert HISTORIES
