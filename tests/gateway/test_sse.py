"""Event streams: the log, then the live tail, over real HTTP from a gateway process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from callboard.topics.bus import Bus
from callboard.topics.messages import Status

from .serving import Gateway, Sse, Writer, all_events, events


async def test_a_finished_run_is_replayed_and_the_stream_ends(http: httpx.AsyncClient, bus: Bus) -> None:
    writer = await Writer(bus).begin()
    await asyncio.gather(*(writer.write(writer.event()) for _ in range(2500)))
    end = await writer.to(Status.COMPLETED)
    found = await all_events(http, f"/runs/{writer.run}/events")
    assert [event.event for event in found] == ["state", "state", *["delta"] * 2500, "state", "end"]
    assert [event.entry["n"] for event in found if event.event == "delta"] == list(range(1, 2501))
    ids = [int(event.id) for event in found[:-1]]
    assert ids == sorted(set(ids))
    assert ids[-1] == end
    assert found[-1].data == {"sequence": end, "ended": True}
    first = found[0].data
    assert (first["run"], first["kind"], first["sequence"]) == (writer.run, "state", ids[0])
    assert first["time"].startswith("20")


async def test_history_and_live_events_are_joined(http: httpx.AsyncClient, bus: Bus) -> None:
    writer = await Writer(bus).begin()
    await asyncio.gather(*(writer.write(writer.event()) for _ in range(50)))
    found: list[Sse] = []

    async def watch() -> None:
        async for event in events(http, f"/runs/{writer.run}/events"):
            found.append(event)

    watching = asyncio.create_task(watch())
    for _ in range(200):
        await writer.write(writer.event())
        await asyncio.sleep(0.001)
    await writer.to(Status.COMPLETED)
    await asyncio.wait_for(watching, 10)
    assert [event.entry["n"] for event in found if event.event == "delta"] == list(range(1, 251))


async def test_entries_of_a_list_have_ids_of_their_own(http: httpx.AsyncClient, bus: Bus) -> None:
    writer = await Writer(bus).begin()
    sequence = await writer.write(*(writer.event() for _ in range(4)))
    await writer.to(Status.COMPLETED)
    path = f"/runs/{writer.run}/events?kinds=delta"
    found = await all_events(http, path)
    assert [event.id for event in found[:-1]] == [f"{sequence}.1", f"{sequence}.2", f"{sequence}.3", str(sequence)]
    rest = await all_events(http, f"{path}&after={sequence}.2")
    assert [event.entry["n"] for event in rest[:-1]] == [3, 4]
    assert [event.event for event in await all_events(http, f"{path}&after={sequence}")] == ["end"]


async def test_last_event_id_wins_over_after(http: httpx.AsyncClient, bus: Bus) -> None:
    writer = await Writer(bus).begin()
    sequences = [await writer.write(writer.event()) for _ in range(5)]
    await writer.to(Status.COMPLETED)
    path = f"/runs/{writer.run}/events?kinds=delta&after={sequences[0]}"
    found = await all_events(http, path, headers={"last-event-id": str(sequences[3])})
    assert [event.entry["n"] for event in found[:-1]] == [5]


async def test_kinds_restrict(http: httpx.AsyncClient, bus: Bus) -> None:
    writer = await Writer(bus).begin()
    await writer.write(writer.event())
    await writer.write(writer.event(), kind="custom")
    await writer.to(Status.COMPLETED)
    found = await all_events(http, f"/runs/{writer.run}/events?kinds=state,custom")
    assert [event.event for event in found] == ["state", "state", "custom", "state", "end"]


async def test_a_client_that_has_seen_all_is_told_not_to_come_again(http: httpx.AsyncClient, bus: Bus) -> None:
    writer = await Writer(bus).begin()
    end = await writer.to(Status.FAILED)
    answer = await http.get(f"/runs/{writer.run}/events", headers={"last-event-id": str(end)})
    assert answer.status_code == 204


@pytest.mark.parametrize("tree", ["", "&tree=true"])
async def test_a_browser_that_asked_for_few_kinds_is_told_so_too(http: httpx.AsyncClient, bus: Bus, tree: str) -> None:
    """It comes again with the id of the last frame that had one: were that its last event, it would come for ever."""
    writer = await Writer(bus).begin()
    await writer.write(writer.event())
    await writer.to(Status.COMPLETED)
    path = f"/runs/{writer.run}/events?kinds=delta{tree}"
    found = await all_events(http, path)
    assert [event.event for event in found] == ["delta", "end"]
    assert (await http.get(path, headers={"last-event-id": found[-1].id})).status_code == 204


@pytest.mark.parametrize("place", ["0.1", "-1", "1.2.3", "9" * 19, "x"])
async def test_a_place_that_is_none_is_refused(http: httpx.AsyncClient, bus: Bus, place: str) -> None:
    writer = await Writer(bus).begin()
    path = f"/runs/{writer.run}/events"
    for answer in (await http.get(f"{path}?after={place}"), await http.get(path, headers={"last-event-id": place})):
        assert answer.status_code == 422
        assert answer.json()["code"] == "invalid_request"


async def test_follow_false_ends_at_the_newest_event(http: httpx.AsyncClient, bus: Bus) -> None:
    writer = await Writer(bus).begin()
    newest = await writer.write(writer.event())
    found = await all_events(http, f"/runs/{writer.run}/events?follow=false")
    assert [event.event for event in found] == ["state", "state", "delta", "end"]
    assert found[-1].data == {"sequence": newest, "ended": False}


async def test_a_tree_ends_when_its_root_and_every_descendant_have_ended(http: httpx.AsyncClient, bus: Bus) -> None:
    root = await Writer(bus).begin()
    child = await Writer(bus, f"{root.run}~{'0' * 16}", parent=root.run).begin()
    found: list[Sse] = []

    async def watch() -> None:
        async for event in events(http, f"/runs/{child.run}/events?tree=true"):
            found.append(event)

    watching = asyncio.create_task(watch())
    await child.write(child.event())
    await root.to(Status.COMPLETED)
    await asyncio.sleep(0.3)
    assert not watching.done()
    await child.to(Status.FAILED)
    await asyncio.wait_for(watching, 10)
    assert found[-1].event == "end"
    assert {event.data["run"] for event in found[:-1]} == {root.run, child.run}
    assert [event.entry["status"] for event in found if event.event == "state"] == [
        "queued", "running", "queued", "running", "completed", "failed",
    ]  # fmt: skip
    alone = await all_events(http, f"/runs/{child.run}/events")
    assert {event.data["run"] for event in alone[:-1]} == {child.run}


async def test_silence_is_filled_with_comments(http: httpx.AsyncClient, bus: Bus) -> None:
    writer = await Writer(bus).begin()
    comments: list[str] = []

    async def watch() -> None:
        async for _ in events(http, f"/runs/{writer.run}/events", comments):
            pass

    watching = asyncio.create_task(watch())
    await asyncio.sleep(1.4)
    await writer.to(Status.COMPLETED)
    await asyncio.wait_for(watching, 10)
    assert comments[0].startswith("retry: ")
    assert comments.count(": ping") >= 2


async def test_news_of_other_kinds_are_silence_too(http: httpx.AsyncClient, bus: Bus) -> None:
    """A client that asked for states alone hears pings while the run streams text."""
    writer = await Writer(bus).begin()
    comments: list[str] = []

    async def watch() -> None:
        async for _ in events(http, f"/runs/{writer.run}/events?kinds=state", comments):
            pass

    watching = asyncio.create_task(watch())
    for _ in range(14):
        await writer.write(writer.event())
        await asyncio.sleep(0.1)
    await writer.to(Status.COMPLETED)
    await asyncio.wait_for(watching, 10)
    assert comments.count(": ping") >= 2


async def test_a_write_stored_twice_is_shown_once(http: httpx.AsyncClient, bus: Bus) -> None:
    writer = await Writer(bus).begin()
    twice, other = writer.event(), writer.event()
    for event in (twice, other, twice):
        await writer.write(event)
    await writer.to(Status.COMPLETED)
    found = await all_events(http, f"/runs/{writer.run}/events?kinds=delta")
    assert [event.entry["n"] for event in found[:-1]] == [1, 2]


@pytest.mark.parametrize("live", [True, False])
async def test_a_client_that_connects_again_behind_a_write_is_not_shown_its_second_copy(
    http: httpx.AsyncClient, bus: Bus, live: bool
) -> None:
    writer = await Writer(bus).begin()
    twice, other = writer.event(), writer.event()
    seen = await writer.write(twice)

    async def go_on() -> None:
        await writer.write(twice)
        await writer.write(other)
        await writer.to(Status.COMPLETED)

    async def watch() -> list[Sse]:
        return await all_events(http, f"/runs/{writer.run}/events?kinds=delta&after={seen}")

    if live:
        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.3)
        await go_on()
        found = await watching
    else:
        await go_on()
        found = await watch()
    assert [event.entry["n"] for event in found[:-1]] == [2]


@pytest.mark.parametrize(
    "body", [b"not json", b"[1, 2", b'{"a":\n1,\r\n"b": 2}', b"\xff\xfe", b"7", b"", b"[]", b"null"]
)
async def test_a_body_written_by_hand_cannot_break_the_frames(http: httpx.AsyncClient, bus: Bus, body: bytes) -> None:
    writer = await Writer(bus).begin()
    await bus.write(bus.subjects.event(writer.run, "custom"), body)
    await writer.write(writer.event())
    await writer.to(Status.COMPLETED)
    found = await all_events(http, f"/runs/{writer.run}/events")
    kinds = [event.event for event in found]
    assert [kind for kind in kinds if kind != "custom"] == ["state", "state", "delta", "state", "end"]
    assert kinds.count("custom") == (0 if body == b"[]" else 1)


async def test_a_slow_client_gets_everything_and_costs_no_memory(
    served: Gateway, http: httpx.AsyncClient, bus: Bus
) -> None:
    """The client reads nothing while 30 MB are written, far more than the tail and the buffers hold."""
    writer = await Writer(bus).begin()
    reader, closer = await asyncio.open_connection("127.0.0.1", served.port, limit=4096)
    closer.write(f"GET /runs/{writer.run}/events?kinds=delta HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    await reader.readuntil(b"retry: ")
    before = _memory(served)
    for _ in range(30):
        await asyncio.gather(*(writer.write(writer.event("x" * 10_000)) for _ in range(100)))
    await writer.to(Status.COMPLETED)
    assert await _count(reader) == 3000
    closer.close()
    growth = _memory(served) - before
    assert growth < 150 * 1024 * 1024, growth


async def _count(reader: asyncio.StreamReader) -> int:
    data = bytearray()
    while b"event: end\n" not in data[-500:]:
        part = await asyncio.wait_for(reader.read(1 << 16), 10)
        assert part, "the stream was cut"
        data += part
    return data.count(b"\nevent: delta\n")


def _memory(served: Gateway) -> int:
    assert served.process is not None
    return int(Path(f"/proc/{served.process.pid}/statm").read_text(encoding="ascii").split()[1]) * 4096


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("after=x", 422, "invalid_request"),
        ("after=1.2.3", 422, "invalid_request"),
        ("kinds=state,nonsense", 422, "invalid_request"),
        ("kinds=", 422, "invalid_request"),
        ("tree=perhaps", 422, "invalid_request"),
    ],
)
async def test_wrong_parameters(http: httpx.AsyncClient, bus: Bus, query: str, status: int, code: str) -> None:
    writer = await Writer(bus).begin()
    answer = await http.get(f"/runs/{writer.run}/events?{query}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_no_such_run(http: httpx.AsyncClient) -> None:
    answer = await http.get("/runs/nobody/events")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_events_of_a_foreign_writer_are_kept_as_they_are(http: httpx.AsyncClient, bus: Bus) -> None:
    """Numbers keep their digits: what was stored is passed on unread."""
    writer = await Writer(bus).begin()
    raw = b'{"attempt":1,"n":1,"value":123456789012345678901234567890.10}'
    await bus.write(bus.subjects.event(writer.run, "custom"), raw)
    await writer.to(Status.COMPLETED)
    text = (await http.get(f"/runs/{writer.run}/events?kinds=custom")).text
    assert f'"entry":{raw.decode()}}}' in text
