"""Dead letters: set aside, listed, replayed, dropped."""

from __future__ import annotations

import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.store.deadletters import DeadLetters
from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.client import head_bytes
from callboard.topics.errors import InvalidInput, InvalidMessage, NotFound, Unavailable
from callboard.topics.messages import ErrorInfo


@pytest.fixture
def letters(bus: Bus) -> DeadLetters:
    return DeadLetters(bus)


async def put(letters: DeadLetters, bus: Bus, body: bytes = b"{", n: int = 0) -> int:
    headers = {"Callboard-Run": "r", "traceparent": "00-x", "Nats-Msg-Id": "once", "Nats-Expected-Last-Sequence": "5"}
    return await letters.put("task", f"{bus.subjects.task}.t{n}", body, headers, InvalidMessage("no JSON", at=1))


async def stored_count(bus: Bus) -> int:
    info = await bus.api(f"STREAM.INFO.{bus.subjects.inbox}")
    assert info is not None
    return int(info["state"]["messages"])


async def test_a_letter_holds_the_message_and_the_reason(bus: Bus, letters: DeadLetters) -> None:
    body = b"\x00\xff not JSON"
    letter_id = await put(letters, bus, body)
    found = await letters.get(letter_id)
    assert (found.id, found.kind) == (letter_id, "task")
    letter = found.letter
    assert (letter.subject, letter.data, letter.ref) == (f"{bus.subjects.task}.t0", body, None)
    assert (letter.reason.code, letter.reason.message, letter.reason.details) == (
        "invalid_message",
        "no JSON",
        {"at": 1},
    )
    assert letter.headers is not None
    assert letter.headers["Callboard-Run"] == "r"
    assert letter.at is not None


async def test_a_reason_given_as_data_is_kept(bus: Bus, letters: DeadLetters) -> None:
    reason = ErrorInfo(code="x", message="m" * 10_000, traceback="t" * 100_000, details={"d": "d" * 100_000})
    letter = (await letters.get(await letters.put("work", "cb.work.a", b"", None, reason))).letter
    assert (letter.reason.code, len(letter.reason.message), letter.reason.details) == ("x", 4096, None)


async def test_replay_publishes_the_original_and_drops_the_letter(bus: Bus, letters: DeadLetters) -> None:
    letter_id = await put(letters, bus, b'{"a":1}')
    stored = await reads.by_sequence(bus, bus.subjects.inbox, await letters.replay(letter_id))
    assert stored is not None
    assert (stored.subject, stored.data) == (f"{bus.subjects.task}.t0", b'{"a":1}')
    assert stored.headers["Callboard-Run"] == "r"
    assert stored.headers["traceparent"] == "00-x"
    assert "Nats-Expected-Last-Sequence" not in stored.headers
    assert stored.headers["Nats-Msg-Id"] != "once"
    for act in (letters.get, letters.replay, letters.drop):
        with pytest.raises(NotFound, match=str(letter_id)):
            await act(letter_id)


async def test_a_large_body_is_kept_apart_and_replayed(bus: Bus, letters: DeadLetters) -> None:
    body = b"x" * (bus.max_payload - 4096)
    letter_id = await put(letters, bus, body)
    assert (await letters.get(letter_id)).letter.data == b""
    stored = await reads.by_sequence(bus, bus.subjects.inbox, await letters.replay(letter_id))
    assert stored is not None
    assert stored.data == body


async def test_the_letter_stays_until_the_replay_is_stored(bus: Bus, letters: DeadLetters) -> None:
    letter_id = await letters.put("task", "nobody.takes.this", b"", None, InvalidInput("x"))
    real_store = bus.store

    async def impatient(subject: str, data: bytes, head: bytes | None = None) -> int:
        return await real_store(subject, data, head, 0.1)

    bus.store = impatient  # type: ignore[method-assign, assignment]
    with pytest.raises(Unavailable):
        await letters.replay(letter_id)
    assert (await letters.get(letter_id)).letter.subject == "nobody.takes.this"


async def test_a_replay_that_was_cut_short_stores_the_message_once(
    bus: Bus, letters: DeadLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter_id = await put(letters, bus)

    async def lost(_: int) -> bool:
        raise Unavailable("cut")

    with monkeypatch.context() as patch:
        patch.setattr(letters, "_delete", lost)
        with pytest.raises(Unavailable):
            await letters.replay(letter_id)
    await letters.replay(letter_id)
    assert await stored_count(bus) == 1


async def test_pages_newest_first_and_onwards_with_gaps(bus: Bus, letters: DeadLetters) -> None:
    assert await letters.page() == []
    ids = [await put(letters, bus, n=n) for n in range(400)]
    kept = [one for n, one in enumerate(ids) if n < 10 or n % 50 == 0 or n > 395]
    for one in set(ids) - set(kept):
        await letters.drop(one)
    newest = [letter.id for letter in await letters.page(limit=6)]
    assert newest == kept[::-1][:6]
    older = [letter.id for letter in await letters.page(limit=1000, before=newest[-1])]
    assert newest + older == kept[::-1]
    assert [letter.id for letter in await letters.page(kept[3], 5)] == kept[4:9]
    assert await letters.page(ids[-1]) == []
    for one in kept:
        await letters.drop(one)
    assert await letters.page() == []


async def test_garbage_in_the_stream_is_listed_and_can_be_dropped_but_not_replayed(
    bus: Bus, letters: DeadLetters
) -> None:
    subject = bus.subjects.dead_letter("task")
    ids = [await bus.write(subject, data) for data in (b"", b"\xff\x00", b"{}", b"[1]")]
    ids.append(await bus.write(subject, b"x", b"NATS/1.0 404 None\r\n\r\n"))
    found = await letters.page()
    assert [letter.id for letter in found] == ids[::-1]
    assert {letter.letter.reason.code for letter in found} == {"invalid_message"}
    assert found[3].letter.data == b"\xff\x00"
    for one in ids:
        with pytest.raises(InvalidInput, match="drop it"):
            await letters.replay(one)
        await letters.drop(one)
    assert await letters.page() == []


@pytest.mark.parametrize("subject", ["a b", "a\r\nPUB x 0", "cb.*", ">", "", "a..b", "a\u0000"])
async def test_a_letter_cannot_be_replayed_into_the_protocol(bus: Bus, letters: DeadLetters, subject: str) -> None:
    letter_id = await letters.put("task", subject, b"", {"X": "a\r\nY: b"}, InvalidInput("x"))
    with pytest.raises(InvalidInput, match="no subject"):
        await letters.replay(letter_id)


@pytest.mark.parametrize("letter_id", [0, -1, 10**12])
async def test_an_unknown_id_is_not_found(letters: DeadLetters, letter_id: int) -> None:
    for act in (letters.get, letters.replay, letters.drop):
        with pytest.raises(NotFound):
            await act(letter_id)


async def test_a_message_that_came_by_the_wire_can_be_set_aside_as_it_is(
    nats: ServerProcess, bus: Bus, letters: DeadLetters
) -> None:
    sequence = await bus.write(f"{bus.subjects.task}.x", b"\xfe", head_bytes({"A": "ü", "B": ""}))
    stored = await reads.by_sequence(bus, bus.subjects.inbox, sequence)
    assert stored is not None
    letter_id = await letters.put("task", stored.subject, stored.data, stored.headers, InvalidMessage("x"))
    again = await reads.by_sequence(bus, bus.subjects.inbox, await letters.replay(letter_id))
    assert again is not None
    assert (again.subject, again.data) == (stored.subject, stored.data)
    assert (again.headers["A"], again.headers["B"]) == ("ü", "")
    assert again.headers["Nats-Sequence"] == str(again.sequence)


async def test_a_message_of_a_topic_is_replayed_to_its_topic(bus: Bus, letters: DeadLetters) -> None:
    sequence = await bus.write(f"{bus.subjects.topic}.reviews.k", b"1")
    stored = await reads.by_sequence(bus, bus.subjects.topics, sequence)
    assert stored is not None
    letter_id = await letters.put("topic", stored.subject, stored.data, stored.headers, InvalidMessage("x"))
    again = await reads.by_sequence(bus, bus.subjects.topics, await letters.replay(letter_id))
    assert again is not None
    assert (again.subject, again.data) == (stored.subject, b"1")
