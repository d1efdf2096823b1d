"""Forks and versions over HTTP, against the real coordinator."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
import pytest

from callboard.store.agents import AgentRegistry
from callboard.topics.bus import Bus
from callboard.topics.ids import new_token
from callboard.topics.messages import AgentInfo, Cell, Checkpoint, encode

from .test_runs import problem


@pytest.fixture
async def agent(bus: Bus) -> str:
    """An agent in two versions; new runs follow the second, which pins them. No worker serves it."""
    name = f"agent{new_token(6)}"
    for version in ("1", "2"):
        await AgentRegistry(bus).register(AgentInfo(name=name, version=version, pin=True))
    await asyncio.sleep(0.3)
    return name


async def created(http: httpx.AsyncClient, agent: str, **fields: Any) -> str:
    return str((await http.post("/runs", json={"agent": agent, "input": {"a": 1}} | fields)).json()["run"])


async def checkpoint(bus: Bus, run: str, agent: str) -> int:
    found = Checkpoint(
        attempt=1, n=1, source="loop", agent=agent, fingerprint="f", put={"x": Cell(json=msgspec.Raw(b"1"))}
    )
    return await bus.write(bus.subjects.event(run, "checkpoint"), encode(found))


async def test_a_fork_is_durable_when_the_answer_comes_and_is_found_by_what_it_forks(
    http: httpx.AsyncClient, bus: Bus, agent: str
) -> None:
    source = await created(http, agent)
    number = await checkpoint(bus, source, agent)
    body = {"checkpoint": number, "input": 1.50, "update": {"x": 2}, "as_node": "n", "metadata": {"k": "v"}}
    answer = await http.post(f"/runs/{source}/fork", json=body, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 202, answer.text
    again = await http.post(f"/runs/{source}/fork", json=body, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["run"]) == (200, answer.json()["run"])
    found = await http.get(answer.headers["location"])
    run = found.json()
    assert run["forked_from"] == {"run": source, "checkpoint": number}
    assert (run["agent"], run["version"], run["pin"], run["metadata"]) == (agent, "2", True, {"k": "v"})
    assert (await http.get(f"/runs/{run['id']}/input")).text == "1.5"
    listed = (await http.get("/runs", params={"forked_from": source, "min_sequence": run["sequence"]})).json()["runs"]
    assert [(one["id"], one["forked_from"], one["version"]) for one in listed] == [
        (run["id"], {"run": source, "checkpoint": number}, "2")
    ]


async def test_the_same_again_in_a_new_thread(http: httpx.AsyncClient, bus: Bus, agent: str) -> None:
    source = await created(http, agent, thread=new_token())
    number = await checkpoint(bus, source, agent)
    answer = (await http.post(f"/runs/{source}/fork", json={"new_thread": True, "version": "1"})).json()
    assert (answer["thread"], answer["turn"]["did"]) == (answer["run"], "forked")
    run = (await http.get(f"/runs/{answer['run']}")).json()
    assert (run["input"], run["forked_from"]["checkpoint"], run["version"]) == ({"a": 1}, number, "1")


async def test_a_checkpoint_is_named_by_its_label(http: httpx.AsyncClient, bus: Bus, agent: str) -> None:
    source = await created(http, agent)
    number = await checkpoint(bus, source, agent)
    labeled = await http.post(f"/runs/{source}/checkpoints/{number}/label", json={"name": "good"})
    assert labeled.status_code < 300, labeled.text
    await checkpoint(bus, source, agent)
    for name in ("good", str(number)):
        answer = await http.post(f"/runs/{source}/fork", json={"checkpoint": name, "new_thread": True})
        assert answer.status_code == 202, answer.text
        run = (await http.get(answer.headers["location"])).json()
        assert run["forked_from"] == {"run": source, "checkpoint": number}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"checkpoint": 4}, 410, "checkpoint_missing"),
        ({"checkpoint": "9" * 40}, 400, "invalid_input"),
        ({"checkpoint": "unknown"}, 400, "invalid_input"),
        ({"as_node": "n"}, 400, "invalid_input"),
        ({"new_thread": True, "thread": "t"}, 422, "invalid_request"),
        ({"update": 1}, 422, "invalid_request"),
        ({"cehckpoint": 1}, 422, "invalid_request"),
    ],
)
async def test_what_cannot_be_forked(
    http: httpx.AsyncClient, bus: Bus, agent: str, body: dict[str, Any], status: int, code: str
) -> None:
    source = await created(http, agent)
    problem(await http.post(f"/runs/{source}/fork", json=body), status, code)
    problem(await http.post(f"/runs/{new_token()}/fork", json={}), 404, "not_found")


async def test_versions_with_the_runs_that_are_pinned_to_them(http: httpx.AsyncClient, bus: Bus, agent: str) -> None:
    async def versions() -> list[Any]:
        found = (await http.get("/agents?workers=false")).json()["agents"]
        (shown,) = [one for one in found if one["name"] == agent]
        return [shown["version"], *([one["version"], one["current"], one["pinned"]] for one in shown["versions"])]

    run = [await created(http, agent) for _ in range(2)][-1]
    sequence = (await http.get(f"/runs/{run}")).json()["sequence"]
    await http.get("/runs", params={"min_sequence": sequence})
    assert await versions() == ["2", ["2", True, 2], ["1", False, 0]]
    assert (await http.post(f"/agents/{agent}/promote", json={"version": "1"})).json() == {
        "agent": agent, "version": "1",
    }  # fmt: skip
    assert await versions() == ["1", ["1", True, 0], ["2", False, 2]]
    await http.post(f"/runs/{run}/cancel")
    ended = (await http.get(f"/runs/{run}")).json()["sequence"]
    await http.get("/runs", params={"min_sequence": ended})
    assert await versions() == ["1", ["1", True, 0], ["2", False, 1]]
    problem(await http.post(f"/agents/{agent}/promote", json={"version": "7"}), 404, "not_found")
