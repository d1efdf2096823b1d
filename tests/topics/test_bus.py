"""The connection: writes, fences, requests, subscriptions."""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec
import nats as nats_py
import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.topics import reads
from callboard.topics.bus import Bus, fence
from callboard.topics.client import Message, head_bytes
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import (
    BrokerError,
    InvalidInput,
    InvalidSubject,
    NoResponders,
    PayloadTooLarge,
    StaleFence,
    StorageFull,
    Unavailable,
)
from callboard.topics.streams import ensure_streams


def subject_of(bus: Bus, run: str, kind: str = "state") -> str:
    return bus.subjects.event(run, kind)


async def test_writes_are_acknowledged_in_the_order_of_the_calls(bus: Bus) -> None:
    writes = [bus.write(subject_of(bus, "r", "step"), str(n).encode()) for n in range(2000)]
    sequences = [await write for write in writes]
    assert sequences == sorted(sequences)
    data = [int(one.data) async for page in reads.read(bus, bus.subjects.events, bus.subjects.log("r")) for one in page]
    assert data == list(range(2000))


async def test_a_late_fenced_write_is_refused(bus: Bus) -> None:
    state = subject_of(bus, "r")
    first = await bus.write(state, b"1", fence(0))
    await bus.write(subject_of(bus, "r", "step"), b"s", fence(first, state))  # the fence is on the state, not the step
    await bus.write(subject_of(bus, "r", "step"), b"s", fence(first, state, {"traceparent": "x"}))
    with pytest.raises(StaleFence) as caught:
        await bus.write(state, b"1", fence(0))
    assert (caught.value.code, caught.value.err_code, caught.value.retryable) == ("stale_fence", 10071, False)
    second = await bus.write(state, b"2", fence(first))
    with pytest.raises(StaleFence):
        await bus.write(subject_of(bus, "r", "step"), b"late", fence(first, state))
    await bus.write(subject_of(bus, "r", "step"), b"s", fence(second, state))
    steps = [one async for page in reads.read(bus, bus.subjects.events, subject_of(bus, "r", "step")) for one in page]
    assert [one.data for one in steps] == [b"s"] * 3
    assert steps[1].headers["traceparent"] == "x"


async def test_a_refused_write_is_not_seen_live(bus: Bus) -> None:
    seen: list[bytes] = []
    state = subject_of(bus, "r")
    await bus.subscribe(bus.subjects.live_of(state), lambda message: seen.append(message.data))
    first = await bus.write(state, b"1", fence(0))
    with pytest.raises(StaleFence):
        await bus.write(state, b"refused", fence(0))
    await bus.write(state, b"2", fence(first))
    await bus.client.flush()
    assert seen == [b"1", b"2"]


async def test_what_is_seen_live_has_subject_and_sequence(bus: Bus) -> None:
    seen: list[reads.Stored] = []
    await bus.subscribe(f"{bus.subjects.live}.run.>", lambda message: seen.append(reads.Stored.of(message)))
    sequence = await bus.write(subject_of(bus, "r", "step"), b"1", head_bytes({"X": "y"}))
    await bus.client.flush()
    assert [(one.subject, one.sequence, one.data, one.headers["X"]) for one in seen] == [
        (subject_of(bus, "r", "step"), sequence, b"1", "y")
    ]


async def test_a_subject_without_a_stream_is_unavailable_at_once(bus: Bus) -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match="no stream"):
        await bus.write("nobody.stores.this", b"1")
    assert time.monotonic() - began < 1


async def test_a_full_stream_is_told_and_nothing_is_dropped(settings: BrokerSettings) -> None:
    small = settings.model_copy(update={"max_bytes": 20_000})
    bus = await Bus.connect(small)
    try:
        await ensure_streams(bus, small)
        writes = [bus.write(subject_of(bus, "r"), b"x" * 1000) for _ in range(100)]
        with pytest.raises(StorageFull) as caught:
            await asyncio.gather(*writes)
        await asyncio.gather(*writes, return_exceptions=True)
        assert caught.value.retryable
        assert (await reads.last(bus, bus.subjects.events, subject_of(bus, "r"))) is not None
        info = await bus.api(f"STREAM.INFO.{bus.subjects.events}")
        assert info is not None
        assert info["state"]["first_seq"] == 1
    finally:
        await bus.close()


async def test_headers_that_the_broker_does_not_take_are_no_matter_of_room(bus: Bus) -> None:
    with pytest.raises(PayloadTooLarge):
        await bus.write(subject_of(bus, "r"), b"1", head_bytes({"K": "x" * 70_000}))


async def test_store_repeats_while_no_stream_is_there(bus: Bus) -> None:
    task = asyncio.create_task(bus.store("late.stream", b"1"))
    await asyncio.sleep(0.05)
    name = f"{bus.subjects.namespace}_LATE"
    await bus.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": ["late.stream"]})
    assert await task == 1
    await bus.api(f"STREAM.DELETE.{name}")
    with pytest.raises(Unavailable):
        await bus.store("late.stream", b"1", patience_s=0.1)


async def test_request_and_answer(bus: Bus) -> None:
    await bus.subscribe(
        "svc.echo", lambda m: bus.publish(m.reply, m.data.upper(), head_bytes({"H": m.headers["H"]})), "q"
    )
    answer = await bus.request("svc.echo", b"abc", head=head_bytes({"H": "1"}))
    assert (answer.data, answer.headers, answer.status) == (b"ABC", {"H": "1"}, 0)


async def test_nobody_there_and_nobody_answering_are_told_apart(bus: Bus) -> None:
    with pytest.raises(NoResponders, match=r"svc\.none"):
        await bus.request("svc.none")
    await bus.subscribe("svc.silent", lambda _: None)
    with pytest.raises(Unavailable, match=r"no answer on svc\.silent within 0.1 s"):
        await bus.request("svc.silent", timeout_s=0.1)


async def test_gather_hears_everybody_and_nobody(bus: Bus, settings: BrokerSettings) -> None:
    others = [await Bus.connect(settings) for _ in range(3)]
    try:
        for n, other in enumerate(others):

            def answer(message: Message, other: Bus = other, n: int = n) -> None:
                other.publish(message.reply, str(n).encode())

            await other.subscribe("svc.all", answer)
            await other.client.flush()
        assert sorted(m.data for m in await bus.gather("svc.all")) == [b"0", b"1", b"2"]
    finally:
        for other in others:
            await other.close()
    began = time.monotonic()
    assert await bus.gather("svc.nobody", wait_s=2) == []
    assert time.monotonic() - began < 1


async def test_a_subscriber_that_raises_does_not_end_the_connection(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    def fail(message: Message) -> None:
        raise ZeroDivisionError(message.data)

    await bus.subscribe("svc.fail", fail)
    bus.publish("svc.fail", b"boom")
    await bus.client.flush()
    assert await bus.write(subject_of(bus, "r"), b"1")
    assert "failed on a message of svc.fail" in caplog.text


async def test_bytes_that_no_client_should_send_do_not_end_the_connection(nats: ServerProcess, bus: Bus) -> None:
    """A subject that is not UTF-8, header blocks that are none: passed on as well as can be."""
    seen: list[Message] = []
    await bus.subscribe("raw.*", seen.append)
    await bus.client.flush()
    reader, writer = await asyncio.open_connection("127.0.0.1", nats.port)
    head = b"NATS/1.0 abc \r\nno colon\r\n: no name\r\nK: \xff\r\n\r\n"
    writer.write(b'CONNECT {"headers":true,"verbose":false}\r\nPUB raw.\xff\xfe 1\r\nx\r\n')
    writer.write(b"HPUB raw.h \xff.r %d %d\r\n%by\r\nPING\r\n" % (len(head), len(head) + 1, head))
    await writer.drain()
    while b"PONG" not in await reader.readline():
        pass
    writer.close()
    await bus.client.flush()
    assert [message.data for message in seen] == [b"x", b"y"]
    assert seen[1].status == 0
    assert seen[1].headers["K"] == "\ufffd"
    assert await bus.write(subject_of(bus, "r"), b"1")


async def test_a_header_value_cannot_forge_a_header(bus: Bus) -> None:
    sequence = await bus.write(
        subject_of(bus, "r"), b"", head_bytes({"A": "x\r\nNats-Rollup: all\r\n\r\nbody", "B": "ü"})
    )
    stored = await reads.by_sequence(bus, bus.subjects.events, sequence)
    assert stored is not None
    assert stored.data == b""
    assert stored.headers["B"] == "ü"
    assert "Nats-Rollup" not in stored.headers


@pytest.mark.parametrize("text", ["a b", "a\r\nPUB x 0\r\n", "a\tb", "", "\x00", "\ud800"])
async def test_a_subject_cannot_forge_a_command(bus: Bus, text: str) -> None:
    """What no subject can have in it is refused where it is written, before the server sees it."""
    subject = f"svc.{text}" if text else text
    with pytest.raises(InvalidSubject):
        bus.publish(subject)
    with pytest.raises(InvalidSubject):
        bus.write(subject, b"1")
    with pytest.raises(InvalidSubject):
        await bus.store(subject, b"1")
    with pytest.raises(InvalidSubject):
        await bus.request(subject)
    with pytest.raises(InvalidSubject):
        await bus.subscribe(subject, print)
    assert await bus.write(subject_of(bus, "r"), b"1")
    assert bus.client.stats["reconnects"] == 0


async def test_a_closed_subscription_hears_no_more(bus: Bus) -> None:
    seen: list[bytes] = []
    subscription = await bus.subscribe("svc.x", lambda message: seen.append(message.data))
    bus.publish("svc.x", b"1")
    async with asyncio.timeout(10):
        while not seen:
            await bus.client.flush()
    await subscription.close()
    await subscription.close()
    bus.publish("svc.x", b"2")
    await bus.client.flush()
    assert seen == [b"1"]


async def test_streams_are_created_once_and_share_one_secret(nats: ServerProcess, settings: BrokerSettings) -> None:
    buses = [await Bus.connect(settings) for _ in range(4)]
    try:
        await asyncio.gather(*(ensure_streams(each, settings) for each in buses))
        assert len({each.salt for each in buses}) == 1
        assert buses[0].salt != settings.namespace
        await ensure_streams(buses[0], settings)
    finally:
        for each in buses:
            await each.close()


async def test_any_client_may_publish_a_task(nats: ServerProcess, bus: Bus) -> None:
    async with await nats_py.connect(nats.url) as client:
        ack = await client.jetstream().publish(f"{bus.subjects.task}.review", b'{"path": "x"}')
    stored = await reads.by_sequence(bus, bus.subjects.inbox, ack.seq)
    assert stored is not None
    assert msgspec.json.decode(stored.data) == {"path": "x"}


async def test_the_api_tells_what_is_wrong(bus: Bus) -> None:
    assert await bus.api("STREAM.INFO.NOT_THERE", missing_ok=True) is None
    with pytest.raises(BrokerError, match="stream not found") as caught:
        await bus.api("STREAM.INFO.NOT_THERE")
    assert (caught.value.status, caught.value.err_code) == (404, 10059)


async def test_a_server_that_is_not_there_is_named_without_its_password(settings: BrokerSettings) -> None:
    gone = settings.model_copy(
        update={"nats_url": "nats://user:secret@127.0.0.1:1, nats://127.0.0.1:2", "connect_timeout_s": 0.5}
    )
    with pytest.raises(Unavailable, match="set NATS_URL") as caught:
        await Bus.connect(gone)
    assert "127.0.0.1:1" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:80", "nats://127.0.0.1:port", "::"])
async def test_a_url_that_cannot_be_used_is_told(settings: BrokerSettings, url: str) -> None:
    with pytest.raises((InvalidInput, Unavailable)):
        await Bus.connect(settings.model_copy(update={"nats_url": url, "connect_timeout_s": 0.5}))


@pytest.mark.parametrize("url", ["", " ", ","])
async def test_no_server_at_all_is_told_at_once(settings: BrokerSettings, url: str) -> None:
    with pytest.raises(InvalidInput, match="names no server"):
        await Bus.connect(settings.model_copy(update={"nats_url": url}))


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_URL", "")
    monkeypatch.setenv("CALLBOARD_REPLICAS", "")
    assert (BrokerSettings().nats_url, BrokerSettings().replicas) == ("nats://127.0.0.1:4222", 1)


async def test_close_is_idempotent_and_fails_what_is_under_way(
    settings: BrokerSettings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    bus = await Bus.connect(settings)
    await bus.subscribe("svc.silent", lambda _: None)
    task = asyncio.create_task(bus.request("svc.silent", timeout_s=30))
    await asyncio.sleep(0.05)
    await bus.close()
    await bus.close()
    with pytest.raises(Unavailable):
        await task
    with pytest.raises(Unavailable):
        await bus.write("x", b"1")
    with pytest.raises(Unavailable):
        await bus.request("x")
    bus.publish("x", b"dropped")
    assert caplog.text == ""
