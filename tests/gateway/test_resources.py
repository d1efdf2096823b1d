"""Artifacts, threads, agents, dead letters, figures, pages."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import msgspec
import pytest

from callboard.store.agents import AgentRegistry
from callboard.store.blobs import Blobs
from callboard.store.deadletters import DeadLetters
from callboard.store.log import EventLog
from callboard.topics.bus import Bus
from callboard.topics.client import Message
from callboard.topics.errors import InvalidMessage
from callboard.topics.ids import new_token
from callboard.topics.messages import AgentInfo, Artifact, Status, WorkerInfo, encode

from .serving import Writer
from .test_runs import problem

STATIC = Path(__file__).parents[2] / "gateway" / "static"


async def publish(bus: Bus, writer: Writer, name: str, media_type: str, data: bytes, *, by_ref: bool = False) -> None:
    writer.n += 1
    given = {"ref": await Blobs(bus).put(data)} if by_ref else {"base64": data}
    artifact = Artifact(
        at="1", attempt=1, n=writer.n, name=name, media_type=media_type, size=len(data), digest=f"sha256:{len(data)}",
        **given,
    )  # fmt: skip
    await EventLog(bus).append(writer.run, "artifact", encode(artifact), writer.state)


async def test_artifacts(http: httpx.AsyncClient, bus: Bus) -> None:
    writer = await Writer(bus).begin()
    await publish(bus, writer, "report.md", "text/markdown", b"alt")
    await publish(bus, writer, "report.md", "text/markdown", "# Größe".encode())
    await publish(bus, writer, "dir/large.bin", "application/octet-stream", b"\0" * 5_000_000, by_ref=True)
    listed = (await http.get(f"/runs/{writer.run}/artifacts")).json()["artifacts"]
    assert [one["name"] for one in listed] == ["report.md", "dir/large.bin"]
    answer = await http.get(listed[0]["href"])
    assert answer.text == "# Größe"
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"].startswith('inline; filename="report.md"')
    again = await http.get(listed[0]["href"], headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304
    large = await http.get(listed[1]["href"])
    assert large.content == b"\0" * 5_000_000
    assert large.headers["content-disposition"].startswith('attachment; filename="large.bin"')
    problem(await http.get(f"/runs/{writer.run}/artifacts/nothing"), 404, "not_found")
    problem(await http.get("/runs/nobody/artifacts"), 404, "not_found")


async def test_artifacts_of_one_name_in_a_thread_are_versions_with_their_runs(
    http: httpx.AsyncClient, bus: Bus
) -> None:
    thread = new_token()
    first, second = Writer(bus), Writer(bus)
    for writer in (first, second):
        writer.record = msgspec.structs.replace(writer.record, thread=thread)
        await writer.begin()
        await publish(bus, writer, "report.md", "text/markdown", b"# 1")
    await publish(bus, first, "other.md", "text/markdown", b"# 2")
    last = await first.to(Status.COMPLETED, result=None)
    path, current = f"/threads/{thread}/artifacts", {"min_sequence": last}
    found = (await http.get(path, params=current)).json()
    assert [(one["name"], one["run"]) for one in found["artifacts"]] == [
        ("report.md", first.run), ("report.md", second.run), ("other.md", first.run),
    ]  # fmt: skip
    assert found["next"] is None
    assert [one["run_status"] for one in found["artifacts"]] == ["completed", "running", "completed"]
    named = (await http.get(path, params=current | {"name": "report.md", "limit": 1})).json()
    assert [one["run"] for one in named["artifacts"]] == [first.run]
    rest = (await http.get(path, params=current | {"name": "report.md", "after": named["next"]})).json()
    assert [one["run"] for one in rest["artifacts"]] == [second.run]


@pytest.mark.parametrize(
    ("name", "media_type", "expected"),
    [
        ("page.html", "text/html", "text/html; charset=utf-8"),
        ("picture.svg", "image/svg+xml", "image/svg+xml"),
        ("forged", "text/html\r\nset-cookie: a=b", "application/octet-stream"),
        ('a"; filename="b.exe', "nonsense", "application/octet-stream"),
        ("tab\tset-cookie: a=b", "text/plain;charset=latin-1", "text/plain;charset=latin-1"),
        ("größe.txt", "text/plain; charset=utf-8", "text/plain; charset=utf-8"),
    ],
)
async def test_an_artifact_cannot_attack_the_browser(
    http: httpx.AsyncClient, bus: Bus, name: str, media_type: str, expected: str
) -> None:
    writer = await Writer(bus).begin()
    await publish(bus, writer, name, media_type, b"<script>alert(1)</script>")
    (listed,) = (await http.get(f"/runs/{writer.run}/artifacts")).json()["artifacts"]
    answer = await http.get(listed["href"])
    assert answer.status_code == 200
    assert answer.headers["content-type"] == expected
    assert "set-cookie" not in answer.headers
    assert "sandbox" in answer.headers["content-security-policy"]
    if not expected.startswith("text/plain"):
        assert answer.headers["content-disposition"].startswith("attachment; ")
    plain = re.match(r'\w+; filename="([^"]*)"; filename\*=UTF-8\'\'[\w.%-]+$', answer.headers["content-disposition"])
    assert plain is not None


async def test_threads(http: httpx.AsyncClient) -> None:
    answer = await http.post("/threads", json={"metadata": {"user": "u1"}})
    assert answer.status_code == 201
    thread = answer.json()["id"]
    assert answer.headers["location"] == f"/threads/{thread}"
    assert (await http.get(f"/threads/{thread}")).json()["metadata"] == {"user": "u1"}
    same = await http.post("/threads", json={"id": thread, "metadata": {"user": "u1"}})
    assert (same.status_code, same.json()["created_at"]) == (201, answer.json()["created_at"])
    problem(await http.post("/threads", json={"id": thread, "metadata": {"user": "u2"}}), 409, "conflict")
    problem(await http.get(f"/threads/{new_token()}"), 404, "not_found")
    path = f"/threads/{thread}/messages"
    for index in range(3):
        posted = await http.post(path, json={"role": "user", "content": {"n": index}})
        assert posted.status_code == 201
    large = "x" * 2_000_000
    newest = (await http.post(path, json={"role": "agent", "content": large})).json()["sequence"]
    page = (await http.get(f"{path}?limit=3")).json()
    assert [message["content"] for message in page["messages"]] == [{"n": 0}, {"n": 1}, {"n": 2}]
    rest = (await http.get(f"{path}?limit=3&after={page['next']}")).json()
    assert [(message["sequence"], message["content"]) for message in rest["messages"]] == [(newest, None)]
    assert rest["messages"][0]["content_ref"]["size"] == len(large) + 2
    listed = (await http.get("/threads", params={"min_sequence": newest})).json()
    assert {one["id"]: one["messages"] for one in listed["threads"]}[thread] == 4


async def test_agents_and_live_workers(http: httpx.AsyncClient, bus: Bus) -> None:
    name = f"agent{new_token(6)}"
    info = AgentInfo(name=name, topics=["t"], version="3", input_schema={"type": "object"})
    await AgentRegistry(bus).register(info)
    worker = WorkerInfo(id=new_token(), agents=[name], concurrency=4, host="h", pid=7)

    def answer(message: Message) -> None:
        bus.publish(message.reply, encode(worker))

    subscription = await bus.subscribe(bus.subjects.worker, answer)
    other = await bus.subscribe(bus.subjects.worker, lambda message: bus.publish(message.reply, b"garbage"))
    await bus.client.flush()
    found = (await http.get("/agents")).json()
    (agent,) = [one for one in found["agents"] if one["name"] == name]
    assert (agent["topics"], agent["version"], agent["workers"]) == (["t"], "3", [worker.id])
    assert agent["input_schema"] == {"type": "object"}
    assert {one["id"]: one["concurrency"] for one in found["workers"]}[worker.id] == 4
    assert ["coordinator"] in [one["actors"] for one in found["workers"]]
    assert (await http.get("/agents?workers=false")).json()["workers"] == []
    await subscription.close()
    await other.close()


async def test_dead_letters(http: httpx.AsyncClient, bus: Bus) -> None:
    letters = DeadLetters(bus)
    topic = f"{bus.subjects.task}.replayed"
    ids = [
        await letters.put("task", topic, body, {"Callboard-Run": "x"}, InvalidMessage("not JSON"))
        for body in (b'{"n": 1}', b"\xff\0", b"x" * 2_000_000)
    ]
    listed = (await http.get("/deadletters?limit=2")).json()
    assert [one["id"] for one in listed["letters"]] == ids[:0:-1]
    older = (await http.get(f"/deadletters?limit=2&before={listed['next']}")).json()
    assert [one["id"] for one in older["letters"]] == ids[:1]
    one = (await http.get(f"/deadletters/{ids[0]}")).json()
    assert (one["text"], one["subject"], one["reason"]["code"]) == ('{"n": 1}', topic, "invalid_message")
    assert (await http.get(f"/deadletters/{ids[1]}")).json()["base64"] == "/wA="
    assert (await http.get(f"/deadletters/{ids[2]}")).json()["ref"]["size"] == 2_000_000
    replayed = await http.post(f"/deadletters/{ids[0]}/replay")
    assert replayed.status_code == 200
    problem(await http.get(f"/deadletters/{ids[0]}"), 404, "not_found")
    assert (await http.delete(f"/deadletters/{ids[1]}")).status_code == 204
    problem(await http.delete(f"/deadletters/{ids[1]}"), 404, "not_found")
    problem(await http.get("/deadletters/0"), 422, "invalid_request")


async def test_figures(http: httpx.AsyncClient, bus: Bus) -> None:
    writer = await Writer(bus).begin()
    end = await writer.to(Status.COMPLETED)
    await http.get("/runs", params={"min_sequence": end})
    text = (await http.get("/metrics")).text
    for name in (
        "callboard_gateway_sse_clients",
        "callboard_gateway_nats_up 1.0",
        'callboard_runs{status="completed"}',
    ):
        assert name in text
    lag = float(re.search(r"^callboard_projection_lag (\S+)", text, re.MULTILINE)[1])  # type: ignore[index]  # found
    assert lag <= 5
    assert 'route="/runs",status="200"' in text


async def test_pages_load_nothing_from_elsewhere(http: httpx.AsyncClient) -> None:
    """Every address in a page is one that this gateway serves."""
    for path in ("/", "/docs"):
        answer = await http.get(path)
        assert answer.status_code == 200
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        for address in re.findall(r'(?:src|href)="([^"]+)"', answer.text):
            assert address.startswith("/"), address
            found = await http.get(address)
            assert found.status_code == 200, address
    for file in STATIC.iterdir():
        without = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in without
        assert "https:" not in without


async def test_the_schema_names_problems_for_every_operation(http: httpx.AsyncClient) -> None:
    schema = (await http.get("/openapi.json")).json()
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            assert "application/problem+json" in operation["responses"]["default"]["content"], (method, path)
            assert "422" not in operation["responses"]
    assert msgspec.json.encode(schema).count(b"HTTPValidationError") == 0
