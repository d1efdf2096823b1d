"""Schedules and delayed runs over HTTP, against the real coordinator."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from callboard.topics.ids import new_token

from .test_runs import problem


@pytest.fixture
def name() -> str:
    return f"s{new_token(8)}"


async def test_a_schedule_is_created_shown_and_gives_runs(http: httpx.AsyncClient, name: str) -> None:
    asked = {
        "name": name, "every_s": 1, "agent": "nobody", "input": {"n": 1.0}, "thread": "th", "metadata": {"team": "x"},
    }  # fmt: skip
    answer = await http.post("/schedules", json=asked)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/schedules/{name}"
    body = answer.json()
    assert (body["name"], body["every_s"], body["agent"], body["paused"]) == (name, 1.0, "nobody", False)
    assert body["input"] == {"n": 1.0}
    assert "token" not in answer.text
    assert datetime.fromisoformat(body["next"]) > datetime.fromisoformat(body["created_at"])
    last = await _last(http, name)
    run = (await http.get(f"/runs/{last['run']}")).json()
    assert (run["agent"], run["thread"]) == ("nobody", "th")
    assert run["metadata"] == {"team": "x", "schedule": name, "scheduled_for": last["scheduled_for"]}
    listed = (await http.get("/schedules")).json()["schedules"]
    assert name in [one["name"] for one in listed]
    assert (await http.delete(f"/schedules/{name}")).status_code == 204
    problem(await http.get(f"/schedules/{name}"), 404, "not_found")


async def _last(http: httpx.AsyncClient, name: str) -> dict[str, Any]:
    for _ in range(100):
        last = (await http.get(f"/schedules/{name}")).json()["last"]
        if last is not None:
            found: dict[str, Any] = last
            return found
        await asyncio.sleep(0.1)
    raise AssertionError("no run within 10 s")


async def test_pause_resume_replace(http: httpx.AsyncClient, name: str) -> None:
    asked = {"cron": "0 0 9 * * mon", "zone": "Europe/Berlin", "topic": "t"}
    created = await http.put(f"/schedules/{name}", json=asked)
    assert created.status_code == 201, created.text
    assert created.json()["spec"] == "cron 0 0 9 * * mon (Europe/Berlin)"
    paused = (await http.post(f"/schedules/{name}/pause")).json()
    assert (paused["paused"], paused["next"]) == (True, None)
    assert (await http.post(f"/schedules/{name}/resume")).json()["next"] is not None
    replaced = await http.put(f"/schedules/{name}", json={"every_s": 3600, "topic": "u", "missed": "skip"})
    assert replaced.status_code == 200
    body = replaced.json()
    assert (body["cron"], body["every_s"], body["topic"], body["missed"]) == (None, 3600.0, "u", "skip")
    problem(await http.post("/schedules", json={"name": name, **asked}), 409, "conflict")
    await http.delete(f"/schedules/{name}")


@pytest.mark.parametrize(
    "wrong",
    [
        {"every_s": 1},
        {"every_s": 1, "agent": "a", "topic": "t"},
        {"agent": "a"},
        {"agent": "a", "cron": "0 9 * * *"},
        {"agent": "a", "cron": "@daily", "zone": "Mars/Base"},
        {"agent": "a", "every_s": 0.1},
        {"agent": "a", "at": "2020-01-01T00:00:00Z"},
        {"agent": "a", "at": "2099-01-01T00:00:00"},
        {"agent": "a", "at": "1700000000"},
        {"agent": "a", "at": 4e9},
        {"agent": "a", "every_s": 5, "missed": "twice"},
        {"agent": "a", "every_s": 5, "surprise": 1},
    ],
)
async def test_what_cannot_be_is_refused(http: httpx.AsyncClient, name: str, wrong: dict[str, Any]) -> None:
    answer = await http.post("/schedules", json={"name": name, **wrong})
    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem(await http.get(f"/schedules/{name}"), 404, "not_found")


async def test_actions_on_nothing_are_not_found(http: httpx.AsyncClient, name: str) -> None:
    for method, path in (("POST", "/pause"), ("POST", "/resume"), ("DELETE", ""), ("GET", "")):
        problem(await http.request(method, f"/schedules/{name}{path}"), 404, "not_found")


# --- run_at --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["time", "seconds"])
async def test_a_delayed_run_is_there_at_once(http: httpx.AsyncClient, form: str) -> None:
    moment = datetime.now(UTC) + timedelta(seconds=60)
    answer = await http.post("/runs", json={"agent": "later", "run_at": moment.isoformat() if form == "time" else 60})
    assert answer.status_code == 202, answer.text
    run = (await http.get(answer.headers["location"])).json()
    assert run["status"] == "queued"
    assert run["reason"].startswith("begins at ")
    assert abs(datetime.fromisoformat(run["wake_at"]) - moment) < timedelta(seconds=5)
    canceled = await http.post(f"{answer.headers['location']}/cancel")
    assert canceled.json()["status"] == "canceled"


@pytest.mark.parametrize(
    "wrong",
    ["tomorrow", "2030-01-01T00:00:00", -1, "60", True, 1e12, "9999-12-31T23:59:59-05:00", "2262-01-01T00:00:00Z"],
)
async def test_what_is_no_time_is_refused(http: httpx.AsyncClient, wrong: Any) -> None:
    answer = await http.post("/runs", json={"agent": "later", "run_at": wrong})
    assert answer.status_code in (400, 422), answer.text
    assert not any(sign in answer.text for sign in ("<", "[func", "Value error")), "names what we are made of"
