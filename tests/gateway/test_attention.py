"""What waits for a person, over HTTP."""

from __future__ import annotations

import httpx

from callboard.store.deadletters import DeadLetters
from callboard.topics.bus import Bus
from callboard.topics.errors import InvalidMessage
from callboard.topics.messages import ErrorInfo, Status, encode

from .serving import Writer


async def test_a_failed_run_is_listed_retried_and_off_the_list(http: httpx.AsyncClient, bus: Bus) -> None:
    writer = await Writer(bus).begin()
    await writer.to(Status.FAILED, error=ErrorInfo(code="exception", message="no good"), reason="no good")
    await bus.store(bus.subjects.command(writer.run, "sweep"), encode({}))
    item = await listed(http, writer.run)
    assert (item["kind"], item["code"], item["actions"]) == ("failed", "exception", ["retry", "drop"])
    answer = await http.post(f"/runs/{writer.run}/retry")
    assert answer.status_code == 201
    again = answer.json()
    assert answer.headers["location"] == f"/runs/{again['id']}"
    assert (again["retry_of"], again["status"]) == (writer.run, "queued")
    assert (await http.post(f"/runs/{writer.run}/retry")).json()["id"] == again["id"]
    assert writer.run not in [one["id"] for one in (await http.get("/attention")).json()["items"]]
    assert (await http.post(f"/runs/{again['id']}/retry")).status_code == 409
    assert (await http.post("/runs/nowhere/retry")).status_code == 404
    assert (await http.delete(f"/attention/{writer.run}")).status_code == 404, "it does not wait any more"


async def test_a_run_can_be_dropped_from_the_list(http: httpx.AsyncClient, bus: Bus) -> None:
    writer = await Writer(bus).begin()
    await writer.to(Status.TIMED_OUT, error=ErrorInfo(code="timed_out", message="too long"))
    await bus.store(bus.subjects.command(writer.run, "sweep"), encode({}))
    await listed(http, writer.run)
    assert (await http.delete(f"/attention/{writer.run}")).status_code == 204
    assert writer.run not in [one["id"] for one in (await http.get("/attention")).json()["items"]]


async def test_dead_letters_are_on_the_list(http: httpx.AsyncClient, bus: Bus) -> None:
    letter = await DeadLetters(bus).put("task", "cb.task.x", b"{", None, InvalidMessage("not JSON"))
    item = await listed(http, f"dead:{letter}")
    assert (item["kind"], item["subject"], item["actions"]) == ("dead_letter", "cb.task.x", ["replay", "drop"])


async def listed(http: httpx.AsyncClient, id_: str) -> dict[str, object]:
    for _ in range(100):
        for item in (await http.get("/attention")).json()["items"]:
            if item["id"] == id_:
                return dict(item)
    raise AssertionError(f"{id_} is not on the list")
