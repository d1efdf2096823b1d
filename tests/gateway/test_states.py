"""Checkpoints and states over HTTP: pages, values, differences, labels, pruning, sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.fernet import Fernet
from pydantic import SecretStr

from callboard.store.threads import Threads
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.ids import new_token
from callboard.topics.messages import Status, ThreadHead, Tip
from tests.store.chains import Chain

from .serving import gateway
from .test_runs import problem

LONG = "some text of a certain length"


async def grown(bus: Bus, turns: int = 6, **more: Any) -> Chain:
    chain = await Chain(bus, **more).begin()
    for turn in range(turns):
        values = {"turn": turn, "items": [LONG, *range(turn + 1)], "exact": 1}
        await chain.save(values, ran=["a"], next=["b"])
    return chain


async def test_checkpoints_come_in_pages(http: httpx.AsyncClient, bus: Bus) -> None:
    chain = await grown(bus)
    ids = [str(sequence) for sequence, _ in reversed(chain.saved)]
    path = f"/runs/{chain.run}/checkpoints"
    first = (await http.get(path, params={"limit": 4})).json()
    assert [one["id"] for one in first["checkpoints"]] == ids[:4]
    newest = first["checkpoints"][0]
    assert (newest["parent"], newest["ran"], newest["next"]) == (ids[1], ["a"], ["b"])
    assert (newest["channels"], newest["changed"]) == (["exact", "items", "turn"], ["items", "turn"])
    assert (newest["step"], newest["source"], newest["agent"], newest["labels"]) == (6, "loop", "a", [])
    rest = (await http.get(path, params={"before": first["next"]})).json()
    assert [one["id"] for one in rest["checkpoints"]] == ids[4:]
    assert rest["next"] is None
    assert (await http.get(path, params={"namespace": "sub"})).json() == {"checkpoints": [], "next": None}


async def test_the_state_of_a_run_is_what_was_stored(http: httpx.AsyncClient, bus: Bus) -> None:
    chain = await grown(bus, 3)
    path = f"/runs/{chain.run}/state"
    found = (await http.get(path)).json()
    assert found["values"] == chain.saved[-1][1]
    sequence, values = chain.saved[0]
    old = (await http.get(path, params={"checkpoint": sequence})).json()
    assert (old["values"], old["checkpoint"]["id"]) == (values, str(sequence))
    inner = Chain(bus, chain.run)
    inner.owner = chain.owner
    await inner.save({"large": ["x" * 1000] * 300}, namespace="sub")
    below = (await http.get(path, params={"namespace": "sub"})).json()
    assert (below["checkpoint"]["namespace"], len(below["values"]["large"])) == ("sub", 300)
    problem(await http.get(path, params={"checkpoint": chain.owner}), 410, "checkpoint_missing")
    problem(await http.get(path, params={"checkpoint": "no-such-label"}), 400, "invalid_input")
    problem(await http.get(path, params={"namespace": "none"}), 404, "not_found")
    problem(await http.get("/runs/nobody/state"), 404, "not_found")
    empty = await Chain(bus).begin()
    problem(await http.get(f"/runs/{empty.run}/state"), 404, "not_found")


async def test_the_state_of_a_run_that_waits_is_edited(http: httpx.AsyncClient, bus: Bus) -> None:
    chain = await grown(bus, 2)
    path, body = f"/runs/{chain.run}/state", {"values": {"exact": 12345678901234567890}, "append": {"items": ["new"]}}
    problem(await http.patch(path, json=body), 409, "illegal_transition")
    await chain.state(Status.INPUT_REQUIRED)
    answer = await http.patch(path, json=body)
    assert (answer.status_code, answer.json()["source"], answer.json()["changed"]) == (
        200,
        "update",
        ["exact", "items"],
    )
    found = (await http.get(path)).json()
    assert found["checkpoint"]["id"] == answer.json()["id"]
    assert found["values"] == {"turn": 1, "exact": 12345678901234567890, "items": [LONG, 0, 1, "new"]}
    problem(await http.patch(path, json={}), 400, "invalid_input")
    problem(await http.patch(path, json={"append": {"turn": [1]}}), 400, "invalid_input")
    problem(await http.patch(path, json={"valeus": {}}), 422, "invalid_request")


async def test_the_state_of_a_thread_is_what_its_head_says(http: httpx.AsyncClient, bus: Bus) -> None:
    thread, chain = new_token(), await grown(bus, 2)
    problem(await http.get(f"/threads/{thread}/state"), 404, "not_found")
    sequence, values = chain.saved[0]
    await Threads(bus).put_head(thread, ThreadHead(tip=Tip(run=chain.run, checkpoint=sequence, agent="a")), 0)
    found = (await http.get(f"/threads/{thread}/state")).json()
    assert (found["values"], found["checkpoint"]["run"]) == (values, chain.run)


async def test_the_difference_of_two_checkpoints(http: httpx.AsyncClient, bus: Bus) -> None:
    chain, other = await grown(bus, 3), await grown(bus, 1)
    first, last = chain.saved[0][0], chain.saved[-1][0]
    found = (await http.get(f"/runs/{chain.run}/checkpoints/{first}/diff/{last}")).json()
    assert (found["old"]["id"], found["new"]["id"]) == (str(first), str(last))
    assert found["differences"] == [
        {"channel": "items", "kind": "appended", "appended": [1, 2]},
        {"channel": "turn", "kind": "changed", "old": 0, "new": 2},
    ]
    path = f"/runs/{chain.run}/checkpoints/{first}/diff/{other.saved[0][0]}"
    across = await http.get(path, params={"other_run": other.run})
    assert across.json()["differences"] == []
    problem(await http.get(path), 410, "checkpoint_missing")


async def test_labels_keep_what_pruning_would_take(http: httpx.AsyncClient, bus: Bus) -> None:
    chain = await grown(bus)
    ids = [str(sequence) for sequence, _ in chain.saved]
    path = f"/runs/{chain.run}"
    labelled = await http.post(f"{path}/checkpoints/{ids[1]}/label", json={"name": "good"})
    assert (labelled.status_code, labelled.json()["labels"]) == (200, ["good"])
    assert (await http.get(f"{path}/labels")).json() == {"run": chain.run, "labels": {"good": ids[1]}, "forks": {}}
    assert (await http.get(f"{path}/state", params={"checkpoint": "good"})).json()["checkpoint"]["id"] == ids[1]
    problem(await http.post(f"{path}/checkpoints/{ids[1]}/label", json={"name": "not good"}), 422, "invalid_request")
    problem(await http.post(f"{path}/checkpoints/{chain.owner}/label", json={"name": "x"}), 410, "checkpoint_missing")
    problem(await http.post(f"{path}/prune", json={}), 400, "invalid_input")
    problem(await http.post(f"{path}/prune", json={"keep": 0}), 422, "invalid_request")
    tried = (await http.post(f"{path}/prune", json={"keep": 1, "dry_run": True})).json()
    done = (await http.post(f"{path}/prune", json={"keep": 1})).json()
    assert tried | {"dry_run": False} == done
    assert (done["kept"], done["held"]) == (2, 1)
    assert done["removed"] > 0
    listed = (await http.get(f"{path}/checkpoints")).json()["checkpoints"]
    assert [one["id"] for one in listed] == [ids[5], ids[1]]
    assert (await http.delete(f"{path}/labels/good")).status_code == 204
    problem(await http.delete(f"{path}/labels/good"), 404, "not_found")
    assert len((await http.get(f"{path}/checkpoints")).json()["checkpoints"]) == 1


async def test_the_size_of_a_run_and_of_its_thread(http: httpx.AsyncClient, bus: Bus) -> None:
    thread, chain = new_token(), await grown(bus, 3)
    size = (await http.get(f"/runs/{chain.run}/size")).json()
    assert size["kinds"]["checkpoint"]["count"] == 3
    assert size["channels"]["turn"] == {"count": 3, "bytes": 3}
    assert size["blobs"] == {"count": 0, "bytes": 0}
    member = Chain(bus)
    member.more = {"thread": thread}
    last = (await member.begin()).owner
    await member.save({"n": 1})
    await http.get("/runs", params={"min_sequence": last})
    await http.post(f"/threads/{thread}/messages", json={"role": "user", "content": "hello"})
    whole = (await http.get(f"/threads/{thread}/size")).json()
    assert {kind: amount["count"] for kind, amount in whole["kinds"].items()} == {
        "state": 1, "checkpoint": 1, "thread": 1,
    }  # fmt: skip


async def test_encrypted_values_are_served_by_a_gateway_with_the_key_alone(
    http: httpx.AsyncClient, bus: Bus, settings: BrokerSettings, projection: Path
) -> None:
    key = Fernet.generate_key().decode()
    sealed = settings.model_copy(update={"checkpoint_keys": SecretStr(key)})
    other = await Bus.connect(sealed)
    try:
        chain = await grown(other, 2)
    finally:
        await other.close()
    path = f"/runs/{chain.run}"
    answer = problem(await http.get(f"{path}/state"), 501, "checkpoint_key_missing")
    assert "CALLBOARD_CHECKPOINT_KEYS" in answer["detail"]
    assert len((await http.get(f"{path}/checkpoints")).json()["checkpoints"]) == 2
    with gateway(settings, projection, checkpoint_keys=key) as keyed:
        found = httpx.get(f"{keyed.url}{path}/state", timeout=20).json()
    assert found["values"] == chain.saved[-1][1]


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED])
async def test_a_run_that_has_ended_keeps_its_state(http: httpx.AsyncClient, bus: Bus, status: Status) -> None:
    chain = await grown(bus, 2)
    await chain.state(status)
    assert (await http.get(f"/runs/{chain.run}/state")).json()["values"] == chain.saved[-1][1]
