"""Runs over HTTP, against the real coordinator."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
import pytest

from callboard.store.agents import AgentRegistry
from callboard.store.log import EventLog
from callboard.topics.bus import Bus
from callboard.topics.ids import new_token
from callboard.topics.messages import AgentInfo, BlobRef, Payload, Status, Step, encode

from .serving import Writer, all_events


@pytest.fixture
async def agent(bus: Bus) -> str:
    """An agent that is registered and that no worker serves: its runs stay queued."""
    name = f"agent{new_token(6)}"
    await AgentRegistry(bus).register(AgentInfo(name=name, topics=[f"topic-{name}"]))
    await asyncio.sleep(0.3)
    return name


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code), body
    assert {"type", "title", "detail", "instance", "retryable"} <= set(body)
    assert "Traceback" not in answer.text
    return body


# --- create --------------------------------------------------------------------------------------------------------


async def test_a_run_is_durable_when_the_answer_comes(http: httpx.AsyncClient, bus: Bus, agent: str) -> None:
    answer = await http.post("/runs", json={"agent": agent, "input": {"a": [1, 2.5, None]}, "metadata": {"team": "x"}})
    assert answer.status_code == 202
    body = answer.json()
    assert body["duplicate"] is False
    assert answer.headers["location"] == body["links"]["self"] == f"/runs/{body['run']}"
    loaded = await EventLog(bus).load(body["run"])
    assert loaded is not None
    run = (await http.get(answer.headers["location"])).json()
    assert (run["status"], run["agent"], run["terminal"]) == ("queued", agent, False)
    assert run["input"] == {"a": [1, 2.5, None]}
    assert run["metadata"] == {"team": "x"}
    assert run["sequence"] == loaded.sequence


async def test_a_topic_gives_a_run_for_each_agent_that_serves_it(http: httpx.AsyncClient, bus: Bus, agent: str) -> None:
    other = f"other{new_token(6)}"
    await AgentRegistry(bus).register(AgentInfo(name=other, topics=[f"topic-{agent}"]))
    await asyncio.sleep(0.3)
    body = (await http.post("/runs", json={"topic": f"topic-{agent}", "input": 1})).json()
    agents = {(await http.get(f"/runs/{run}")).json()["agent"] for run in body["runs"]}
    assert agents == {agent, other}
    assert body["run"] in body["runs"]


async def test_a_topic_that_nobody_serves_gives_a_run_that_waits_with_the_reason(http: httpx.AsyncClient) -> None:
    body = (await http.post("/runs", json={"topic": f"nobody{new_token(6)}"})).json()
    run = (await http.get(f"/runs/{body['run']}")).json()
    assert (run["status"], run["agent"]) == ("queued", "")
    assert "no agent serves" in run["reason"]


@pytest.mark.parametrize("where", ["body", "header"])
async def test_the_same_key_and_request_give_the_same_run(http: httpx.AsyncClient, agent: str, where: str) -> None:
    key = new_token()
    headers = {"idempotency-key": key} if where == "header" else {}
    task = {"agent": agent, "input": {"n": 1}} | ({"idempotency_key": key} if where == "body" else {})
    first, *others = await asyncio.gather(*(http.post("/runs", json=task, headers=headers) for _ in range(5)))
    assert len({answer.json()["run"] for answer in (first, *others)}) == 1
    assert sorted(answer.status_code for answer in (first, *others)) == [200] * 4 + [202]
    assert sorted(answer.json()["duplicate"] for answer in (first, *others)) == [False, True, True, True, True]
    other = await http.post("/runs", json=task | {"input": {"n": 2}}, headers=headers)
    problem(other, 409, "idempotency_conflict")


async def test_two_different_keys_are_refused(http: httpx.AsyncClient, agent: str) -> None:
    answer = await http.post("/runs", json={"agent": agent, "idempotency_key": "a"}, headers={"idempotency-key": "b"})
    problem(answer, 400, "bad_request")


async def test_the_caller_may_choose_the_id(http: httpx.AsyncClient, agent: str) -> None:
    run = f"mine-{new_token()}"
    first = await http.post("/runs", json={"agent": agent, "run": run, "input": 1})
    assert (first.status_code, first.json()["run"]) == (202, run)
    again = await http.post("/runs", json={"agent": agent, "run": run, "input": 1})
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    other = await http.post("/runs", json={"agent": agent, "run": run, "input": 2})
    assert other.status_code == 409


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "malformed_body"),
        (b'{"agent": "a", "input": NaN}', 400, "malformed_body"),
        (b'{"agent": "a", "input": "\\ud800"}', 400, "malformed_body"),
        (b'{"agent": "a", "input": "\xff"}', 400, "malformed_body"),
        (b"[" * 100_000, 400, "malformed_body"),
        (b"", 422, "invalid_request"),
        (b"[]", 422, "invalid_request"),
        (b'{"input": 1}', 422, "invalid_request"),
        (b'{"agent": "a", "topic": "b"}', 422, "invalid_request"),
        (b'{"agent": "a.b"}', 422, "invalid_request"),
        (b'{"agent": "a", "run": "x~y"}', 422, "invalid_request"),
        (b'{"agent": "a", "inptu": 1}', 422, "invalid_request"),
    ],
)
async def test_bad_bodies(http: httpx.AsyncClient, body: bytes, status: int, code: str) -> None:
    answer = await http.post("/runs", content=body, headers={"content-type": "application/json"})
    problem(answer, status, code)


async def test_a_form_is_not_taken_for_json(http: httpx.AsyncClient) -> None:
    """What a page of another origin can send without asking is refused."""
    answer = await http.post("/runs", content=b'{"agent": "a"}', headers={"content-type": "text/plain"})
    problem(answer, 415, "unsupported_media_type")


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_above_the_limit(http: httpx.AsyncClient, declared: bool) -> None:
    data = b'{"agent": "a", "input": "' + b"x" * 9 * 1024 * 1024 + b'"}'

    async def pieces() -> Any:
        for start in range(0, len(data), 65536):
            yield data[start : start + 65536]

    headers = {"content-type": "application/json"}
    answer = await http.post("/runs", content=data if declared else pieces(), headers=headers)
    problem(answer, 413, "body_too_large")


async def test_metadata_that_does_not_fit_into_the_record(http: httpx.AsyncClient, agent: str) -> None:
    answer = await http.post("/runs", json={"agent": agent, "metadata": {"a": "x" * 100_000}})
    problem(answer, 413, "body_too_large")


async def test_five_megabytes_in_and_out(http: httpx.AsyncClient, bus: Bus, agent: str) -> None:
    value = msgspec.json.encode({"text": "ä" * 2_500_000, "digits": 1})
    task = b'{"agent": "%b", "input": %b}' % (agent.encode(), value)
    answer = await http.post("/runs", content=task, headers={"content-type": "application/json"})
    assert answer.status_code == 202
    run = answer.json()["run"]
    shown = (await http.get(f"/runs/{run}")).json()
    assert shown["input"] is None
    assert shown["input_ref"]["size"] == len(value)
    assert (await http.get(f"/runs/{run}/input")).content == value
    problem(await http.get(f"/runs/{run}/result"), 404, "not_found")
    log = EventLog(bus)
    loaded = await log.require(run)
    ref = BlobRef(**shown["input_ref"])
    ended = msgspec.structs.replace(loaded.record, status=Status.COMPLETED, result=Payload(ref=ref), rev=9)
    await log.append_state(ended, loaded.sequence)
    assert (await http.get(f"/runs/{run}/result")).content == value


async def test_numbers_keep_their_digits(http: httpx.AsyncClient, agent: str) -> None:
    raw = b'{"agent": "%b", "input": [123456789012345678901234567890, 1.10, -0.0]}' % agent.encode()
    run = (await http.post("/runs", content=raw, headers={"content-type": "application/json"})).json()["run"]
    assert (await http.get(f"/runs/{run}/input")).content == b"[123456789012345678901234567890, 1.10, -0.0]"


# --- look ----------------------------------------------------------------------------------------------------------


async def test_lists_say_how_far_they_have_read_and_wait_for_a_sequence(http: httpx.AsyncClient, agent: str) -> None:
    runs = []
    for index in range(5):
        task = {"agent": agent, "thread": f"t-{agent}", "metadata": {"n": index, "all": "yes"}}
        runs.append((await http.post("/runs", json=task)).json()["run"])
    newest = (await http.get(f"/runs/{runs[-1]}")).json()["sequence"]
    answer = await http.get("/runs", params={"agent": agent, "min_sequence": newest, "limit": 2})
    page = answer.json()
    assert page["applied"] >= newest
    assert answer.headers["callboard-applied-sequence"] == str(page["applied"])
    listed = [run["id"] for run in page["runs"]]
    while page["next"]:
        page = (await http.get("/runs", params={"agent": agent, "limit": 2, "cursor": page["next"]})).json()
        listed += [run["id"] for run in page["runs"]]
    assert listed == runs[::-1]

    async def found(**filters: Any) -> set[str]:
        return {run["id"] for run in (await http.get("/runs", params={"agent": agent, **filters})).json()["runs"]}

    assert await found(status="queued") == set(runs)
    assert await found(status=["completed", "failed"]) == set()
    assert await found(thread=f"t-{agent}") == set(runs)
    assert await found(metadata="n:3") == {runs[3]}
    assert await found(metadata=["n:3", "all:yes"]) == {runs[3]}
    assert await found(metadata=["n:3", "all:no"]) == set()
    created = (await http.get(f"/runs/{runs[2]}")).json()["created_at"]
    assert await found(created_after=created) == set(runs[3:])
    assert await found(created_before=created) == set(runs[:2])
    page = (await http.get(f"/threads/t-{agent}/runs")).json()
    assert [run["id"] for run in page["runs"]] == runs[::-1]


async def test_a_sequence_that_does_not_come(http: httpx.AsyncClient) -> None:
    body = problem(await http.get("/runs", params={"min_sequence": 2**40}), 503, "projection_behind")
    assert body["sequence"] == 2**40


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=501", "status=nonsense", "created_after=yesterday", "created_after=2026-01-01T00:00:00",
     "metadata=nocolon", "metadata=k:a&metadata=k:b", "min_sequence=-1"],
)  # fmt: skip
async def test_bad_filters(http: httpx.AsyncClient, query: str) -> None:
    problem(await http.get(f"/runs?{query}"), 422, "invalid_request")


async def test_a_time_that_no_run_can_have(http: httpx.AsyncClient) -> None:
    problem(await http.get("/runs?created_before=0001-01-01T00:00:00%2B23:59"), 400, "invalid_message")


async def test_a_bad_cursor(http: httpx.AsyncClient) -> None:
    problem(await http.get("/runs?cursor=abc"), 400, "invalid_input")


async def test_the_tree_below_a_run(http: httpx.AsyncClient, bus: Bus) -> None:
    root = await Writer(bus).begin()
    child = await Writer(bus, f"{root.run}~{'1' * 16}", parent=root.run).begin()
    grandchild = await Writer(bus, f"{root.run}~{'2' * 16}", parent=child.run).begin()
    await grandchild.to(Status.COMPLETED)
    whole = (await http.get(f"/runs/{root.run}/tree")).json()
    assert [(run["id"], run["parent"]) for run in whole["runs"]] == [
        (root.run, None), (child.run, root.run), (grandchild.run, child.run),
    ]  # fmt: skip
    assert whole["counts"] == {"running": 2, "completed": 1}
    part = (await http.get(f"/runs/{child.run}/tree")).json()
    assert (part["root"], [run["id"] for run in part["runs"]]) == (root.run, [child.run, grandchild.run])
    problem(await http.get("/runs/nobody/tree"), 404, "not_found")


async def test_the_journal(http: httpx.AsyncClient, bus: Bus) -> None:
    writer = await Writer(bus).begin()
    log = EventLog(bus)
    steps = [
        Step(at=str(n), name=f"s{n}", attempt=1, n=n, value=Payload(json=msgspec.Raw(b"[%d]" % n))) for n in range(1, 8)
    ]
    for body in (
        encode(steps[0]),
        encode(steps[1:4]),
        b"garbage",
        encode(steps[4]),
        encode(steps[4]),
        encode(steps[5:]),
    ):
        await log.append(writer.run, "step", body, writer.state)
    found = (await http.get(f"/runs/{writer.run}/steps")).json()
    assert [(step["name"], step["value"]) for step in found["steps"]] == [(f"s{n}", [n]) for n in range(1, 8)]
    assert found["next"] is None
    page = (await http.get(f"/runs/{writer.run}/steps?limit=2")).json()
    names = [step["name"] for step in page["steps"]]
    while page["next"]:
        page = (await http.get(f"/runs/{writer.run}/steps?limit=2&after={page['next']}")).json()
        names += [step["name"] for step in page["steps"]]
    assert list(dict.fromkeys(names)) == [f"s{n}" for n in range(1, 8)]


# --- wait, cancel --------------------------------------------------------------------------------------------------


async def test_waiting_for_the_end(http: httpx.AsyncClient, bus: Bus) -> None:
    writer = await Writer(bus).begin()
    early = await http.get(f"/runs/{writer.run}/wait?timeout=0.2")
    assert (early.status_code, early.json()["status"]) == (202, "running")
    waiting = asyncio.create_task(http.get(f"/runs/{writer.run}/wait?timeout=20"))
    await asyncio.sleep(0.2)
    await writer.to(Status.COMPLETED, result=Payload(json=msgspec.Raw(b'{"done":true}')))
    answer = await waiting
    assert (answer.status_code, answer.json()["result"]) == (200, {"done": True})
    assert (await http.get(f"/runs/{writer.run}/wait")).status_code == 200
    problem(await http.get("/runs/nobody/wait?timeout=10"), 404, "not_found")


async def test_a_queued_run_is_cancelled(http: httpx.AsyncClient, agent: str) -> None:
    run = (await http.post("/runs", json={"agent": agent})).json()["run"]
    answer = await http.post(f"/runs/{run}/cancel", json={"reason": "not needed"})
    assert answer.status_code in {200, 202}
    record = (await http.get(f"/runs/{run}/wait?timeout=10")).json()
    assert record["status"] == "canceled"
    assert "not needed" in record["reason"]
    events = await all_events(http, f"/runs/{run}/events")
    assert events[-2].entry["status"] == "canceled"
    problem(await http.post("/runs/nobody/cancel"), 404, "not_found")


async def test_a_cancel_answers_for_what_it_was_meant_for(http: httpx.AsyncClient, agent: str) -> None:
    """Nothing lives below the run, so all that was asked for has ended, although the run itself goes on."""
    run = (await http.post("/runs", json={"agent": agent})).json()["run"]
    answer = await http.post(f"/runs/{run}/cancel", json={"scope": "children"})
    assert answer.status_code == 200
    assert answer.json()["alive"] == []
    assert answer.json()["status"] == "queued"


# --- refusals ------------------------------------------------------------------------------------------------------


async def test_every_refusal_is_a_problem(http: httpx.AsyncClient) -> None:
    problem(await http.get("/nothing/here"), 404, "route_not_found")
    answer = await http.delete("/runs")
    problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, POST"
    problem(await http.get("/runs/a%20b"), 400, "invalid_run_id")
    problem(await http.get("/runs/..%2f..%2fetc"), 404, "route_not_found")
    problem(await http.get("/static/../app.py"), 404, "route_not_found")
    problem(await http.get("/static/nothing.js"), 404, "route_not_found")
