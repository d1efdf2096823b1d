"""Interrupts in a whole installation: answered when every process is another one, over HTTP and on the command line;
and what is said to runs that work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.topics.messages import Answer, Payload, RunRecord, Status
from tests.support import invariants
from tests.support.system import System, free_port, result, system


@pytest.fixture
async def whole(nats: ServerProcess, tmp_path: Path) -> AsyncIterator[System]:
    async with system(nats.url, tmp_path) as found:
        found.start("coordinator")
        found.start("coordinator")
        found.start("worker")
        await found.ready(coordinators=2)
        yield found


async def cli(whole: System, *words: str) -> tuple[int, str]:
    """Exit code and output of a command."""
    done = await whole.command(*words)
    return done.returncode, done.stdout + done.stderr


async def asks(whole: System, run: str, *names: str, within_s: float = 30) -> RunRecord:
    """The record once exactly these are open and the run waits for them."""
    async with asyncio.timeout(within_s):
        while True:
            record = await invariants.load(whole.bus, run)
            if record.status is Status.INPUT_REQUIRED and [one.id for one in record.interrupts or ()] == list(names):
                return record
            await asyncio.sleep(0.05)


def one(value: str) -> Payload:
    return Payload(json=msgspec.Raw(value.encode()))


async def test_an_answer_comes_when_every_process_is_another_one(whole: System) -> None:
    """The run asks; worker and coordinators are killed; new ones come up, and the answer is left for them."""
    run = await whole.submit("asker", 7)
    await asks(whole, run, "left", "right")
    await whole.submitter.resume(run, [Answer(id="right", value=one("1"))])
    await asks(whole, run, "left")
    assert whole.effects() == [f"{run} right"]
    for name in list(whole.processes):
        whole.kill(name)
    record = await whole.submitter.resume(run, [Answer(value=one("2"))])
    assert record.status is Status.INPUT_REQUIRED, "nobody is there: the answer is stored"
    whole.start("coordinator")
    whole.start("worker")
    record = await whole.finished(run)
    assert result(record) == [7, f"{run} left", f"{run} right"]
    assert sorted(whole.effects()) == [f"{run} left", f"{run} right"], "each once"
    await invariants.check(whole.bus, [run])


async def test_from_outside(whole: System) -> None:
    """Over HTTP and on the command line, side by side."""
    async with asyncio.TaskGroup() as group:
        for scene in (over_http, on_the_command_line, heard_on_the_command_line):
            group.create_task(scene(whole))


async def over_http(whole: System) -> None:
    port = free_port()
    whole.start("gateway", CALLBOARD_PORT=str(port))
    root = await whole.submit("asker_above", 3)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as http:
        async with asyncio.timeout(30):
            while len(found := await _open(http, f"/runs/{root}/interrupts")) < 2:
                await asyncio.sleep(0.1)
        child = found[0]["run"]
        assert child != root
        assert [(each["id"], each["payload"], each["answer_schema"]) for each in found] == [
            ("left", 3, {"type": "integer"}), ("right", 3, {"type": "integer"}),
        ]  # fmt: skip
        async with asyncio.timeout(30):
            while len([each for each in await _open(http, "/interrupts") if each["run"] == child]) < 2:
                await asyncio.sleep(0.1)
        await _refused(http, root, child)
        answer = await http.post(f"/runs/{root}/escalate", json={"interrupt": "left", "to": "bob", "by": "ann"})
        assert [each["to"] for each in answer.json()["interrupts"]] == ["bob", None]
        said = await http.post(f"/runs/{child}/say", json={"content": {"hurry": True}, "key": "k"})
        assert (said.status_code, said.json()["key"]) == (202, "k")
        both = [{"id": "left", "value": 1}, {"id": "right", "action": "approve"}]
        answer = await http.post(f"/runs/{root}/resume", json={"answers": both})
        assert (answer.status_code, answer.json()["id"], answer.json()["interrupts"]) == (202, root, [])
        assert result(await whole.finished(root)) == [3, f"{child} left", f"{child} right"]
        assert (await http.post(f"/runs/{root}/resume", json={"answers": both})).status_code == 202, "nothing new"
        assert (await http.post(f"/runs/{child}/say", json={"content": 1})).status_code == 409
    await invariants.check(whole.bus, [root])


async def _open(http: httpx.AsyncClient, path: str) -> list[dict[str, Any]]:
    try:
        answer = await http.get(path)
    except httpx.TransportError:
        return []
    return list(answer.json()["interrupts"]) if answer.status_code == 200 else []


async def _refused(http: httpx.AsyncClient, root: str, child: str) -> None:
    for body, status, code in (
        ({"value": 1}, 409, "interrupt_ambiguous"),
        ({"id": "middle", "value": 1}, 404, "interrupt_not_found"),
        ({"id": "left", "value": "one"}, 400, "invalid_answer"),
        ({"id": "left", "action": "expire"}, 400, "invalid_request"),
        ({"id": "left", "value": 1, "answers": []}, 400, "invalid_request"),
    ):
        answer = await http.post(f"/runs/{root}/resume", json=body)
        found = answer.json()
        assert found["code"] == code, found
        assert answer.status_code in (status, 422)
        if status in (404, 409):
            assert found["open"] == [{"run": child, "interrupt": name} for name in ("left", "right")]


async def on_the_command_line(whole: System) -> None:
    run = await whole.submit("asker", 5)
    await asks(whole, run, "left", "right")
    code, text = await cli(whole, "interrupts", "ls", "--json")
    assert code == 0, text
    found = [msgspec.json.decode(line) for line in text.splitlines()]
    assert [each["id"] for each in found if each["run"] == run] == ["left", "right"]
    code, text = await cli(whole, "interrupts", "show", run, "--id", "left")
    assert (code, "payload  5" in text) == (0, True), text
    code, text = await cli(whole, "attention", "--json")
    item = next(each for each in map(msgspec.json.decode, text.splitlines()) if each["id"] == run)
    assert (item["kind"], item["interrupts"]) == ("input_required", ["left", "right"])
    assert item["actions"] == ["resume", "escalate", "fail", "cancel"]
    code, text = await cli(whole, "interrupts", "escalate", run, "--id", "left", "--to", "bob", "--comment", "hard")
    assert (code, text.splitlines()) == (0, ["input_required", "open: left", "open: right"])
    code, text = await cli(whole, "resume", run, "--approve")
    assert (code, "interrupt_ambiguous" in text) == (5, True), text
    code, text = await cli(whole, "resume", run, 'left="x"')
    assert (code, "invalid_answer" in text) == (2, True), text
    assert (await cli(whole, "resume", run))[0] == 2
    code, text = await cli(whole, "attention", "resume", run, "left=1", "right=2", "--by", "ann", "--json")
    assert (code, msgspec.json.decode(text)["open"]) == (0, []), text
    assert result(await whole.finished(run))[0] == 5
    await invariants.check(whole.bus, [run])


async def heard_on_the_command_line(whole: System) -> None:
    run = await whole.submit("hearer")
    for word in ("one", "one", "two"):
        code, text = await cli(whole, "say", run, word, "--key", word, "--by", "ann", "--json")
        assert (code, msgspec.json.decode(text)["key"]) == (0, word), text
    assert result(await whole.finished(run)) == ["one", "two"]
    code, text = await cli(whole, "say", run, "three")
    assert (code, "illegal_transition" in text) == (5, True), text
    await invariants.check(whole.bus, [run])
