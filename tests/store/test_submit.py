"""Submit, command and wait, as seen by a client; the coordinator's part is played by a responder on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from callboard.runtime.nats_server import ServerProcess
from callboard.store.blobs import Blobs
from callboard.store.log import EventLog
from callboard.store.submit import Submitter
from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.client import Message
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import (
    CallboardError,
    IdempotencyConflict,
    IllegalTransition,
    InvalidInput,
    InvalidMessage,
    InvalidRunId,
    InvalidSubject,
    NoResponders,
    NotFound,
    Unavailable,
)
from callboard.topics.ids import is_run_id, new_run_id
from callboard.topics.messages import (
    BlobRef,
    Command,
    CommandReply,
    ErrorInfo,
    Payload,
    RunRecord,
    Status,
    SubmitReply,
    TaskRequest,
    encode,
)


def record(run: str, status: Status = Status.RUNNING) -> RunRecord:
    stamp = datetime.now(UTC)
    return RunRecord(id=run, root=run, agent="a", status=status, input=Payload(), created_at=stamp, updated_at=stamp)


@pytest.fixture
def submitter(bus: Bus) -> Submitter:
    return Submitter(bus, Blobs(bus))


async def answer(bus: Bus, name: str, reply: Callable[[bytes], bytes | None]) -> None:
    """Serves `cb.rpc.{name}`; None leaves the request unanswered."""

    def respond(message: Message) -> None:
        body = reply(message.data)
        if body is not None:
            bus.publish(message.reply, body)

    await bus.subscribe(f"{bus.subjects.rpc}.{name}", respond, "coordinators")


# -- submit -----------------------------------------------------------------------------------------------------------


async def test_a_repeated_request_names_the_same_run(bus: Bus, submitter: Submitter) -> None:
    asked: list[TaskRequest] = []

    def reply(data: bytes) -> bytes | None:
        asked.append(msgspec.json.decode(data, type=TaskRequest))
        if len(asked) < 3:
            return encode(SubmitReply(error=ErrorInfo(code="unavailable", message="not now", retryable=True)))
        return encode(SubmitReply(run=asked[-1].run, status=Status.QUEUED))

    await answer(bus, "submit", reply)
    result = await submitter.submit(TaskRequest(agent="a"), b'{"x": 1}')
    assert {request.run for request in asked} == {result.run}
    assert result.run is not None
    assert is_run_id(result.run)
    assert bytes(asked[0].input) == b'{"x": 1}'


async def test_a_request_with_a_key_leaves_the_id_to_the_coordinator(bus: Bus, submitter: Submitter) -> None:
    asked: list[TaskRequest] = []

    def reply(data: bytes) -> bytes:
        asked.append(msgspec.json.decode(data, type=TaskRequest))
        return encode(SubmitReply(run="r", duplicate=True))

    await answer(bus, "submit", reply)
    assert (await submitter.submit(TaskRequest(agent="a", key="k"))).duplicate
    assert (asked[0].run, asked[0].key) == (None, "k")


async def test_submit_waits_for_a_coordinator_to_come(bus: Bus, submitter: Submitter) -> None:
    task = asyncio.create_task(submitter.submit(TaskRequest(agent="a")))
    await asyncio.sleep(0.1)
    await answer(bus, "submit", lambda _: encode(SubmitReply(run="r")))
    assert (await task).run == "r"


async def test_submit_gives_up_when_its_patience_ends(submitter: Submitter) -> None:
    with pytest.raises(NoResponders):
        await submitter.submit(TaskRequest(agent="a"), patience_s=0.2)


async def test_a_coordinator_that_is_silent_is_unavailable(bus: Bus, submitter: Submitter) -> None:
    await answer(bus, "submit", lambda _: None)
    with pytest.raises(Unavailable):
        await submitter.submit(TaskRequest(agent="a"), patience_s=0.2)


@pytest.mark.parametrize(
    ("code", "kind"),
    [("idempotency_conflict", IdempotencyConflict), ("invalid_run_id", InvalidRunId), ("strange", CallboardError)],
)
async def test_errors_come_back_as_what_they_are(
    bus: Bus, submitter: Submitter, code: str, kind: type[CallboardError]
) -> None:
    info = ErrorInfo(code=code, message="no", details={"run": "r1", "message": "kept apart"})
    await answer(bus, "submit", lambda _: encode(SubmitReply(error=info)))
    with pytest.raises(kind, match=r"^no$") as caught:
        await submitter.submit(TaskRequest(agent="a"))
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.run, caught.value.retryable) == (code, "r1", False)


async def test_an_answer_that_is_garbage_is_told(bus: Bus, submitter: Submitter) -> None:
    await answer(bus, "submit", lambda _: b"\xff[")
    with pytest.raises(InvalidMessage, match="answer"):
        await submitter.submit(TaskRequest(agent="a"))


async def test_a_large_input_goes_by_reference(bus: Bus, submitter: Submitter) -> None:
    asked: list[TaskRequest] = []

    def reply(data: bytes) -> bytes:
        asked.append(msgspec.json.decode(data, type=TaskRequest))
        return encode(SubmitReply(run="r"))

    await answer(bus, "submit", reply)
    value = b'"' + b"x" * 2_000_000 + b'"'
    await submitter.submit(TaskRequest(agent="a"), value)
    assert asked[0].input_ref is not None
    assert await Blobs(bus).get(asked[0].input_ref) == value


# -- publish ----------------------------------------------------------------------------------------------------------


async def test_a_published_task_is_plain_json_with_headers(bus: Bus, submitter: Submitter) -> None:
    run = new_run_id()
    sequence = await submitter.publish(
        "review", b'{"a":1}', run=run, thread="t", metadata={"m": ["ü\n"]}, trace="00-1-2-01\r\nX: y"
    )
    stored = await reads.by_sequence(bus, bus.subjects.inbox, sequence)
    assert stored is not None
    assert (stored.subject, stored.data) == (f"{bus.subjects.task}.review", b'{"a":1}')
    headers = stored.headers
    assert (headers["Callboard-Run"], headers["Callboard-Thread"]) == (run, "t")
    assert headers["traceparent"] == "00-1-2-01  X: y"
    assert "X" not in headers
    assert msgspec.json.decode(headers["Callboard-Metadata"]) == {"m": ["ü\n"]}


async def test_a_large_task_goes_by_reference(bus: Bus, submitter: Submitter) -> None:
    value = b"[" + b"1," * 1_500_000 + b"1]"
    stored = await reads.by_sequence(bus, bus.subjects.inbox, await submitter.publish("review", value))
    assert stored is not None
    assert stored.data == b""
    ref = msgspec.json.decode(stored.headers["Callboard-Ref"], type=BlobRef)
    assert await Blobs(bus).get(ref) == value


async def test_what_cannot_be_a_subject_or_a_run_is_refused(submitter: Submitter) -> None:
    with pytest.raises(InvalidSubject, match=r"'a\.b'"):
        await submitter.publish("a.b", b"1")
    with pytest.raises(InvalidRunId):
        await submitter.publish("a", b"1", run="not an id")
    with pytest.raises(InvalidRunId):
        await submitter.command("a b", "cancel")
    with pytest.raises(InvalidSubject):
        await submitter.command("a", "can.cel")


@pytest.mark.parametrize(
    "wrong",
    [{"key": ""}, {"key": "k" * 513}, {"run": "r", "key": "k"}, {"run": f"r~{'0' * 16}"}, {"deadline_s": 0.0},
     {"deadline_s": float("nan")}, {"wait_timeout_s": -1.0}, {"run_at": float("inf")}, {"thread": "a b"},
     {"run_at": datetime.fromisoformat("2030-01-01")}, {"policy": "reject"}, {"metadata": {"k": "x" * 40_000}}],
)  # fmt: skip
async def test_what_could_only_become_a_dead_letter_is_refused(
    bus: Bus, submitter: Submitter, wrong: dict[str, Any]
) -> None:
    before = await bus.api(f"STREAM.INFO.{bus.subjects.inbox}")
    with pytest.raises(InvalidInput):
        await submitter.publish("review", b"1", **wrong)
    after = await bus.api(f"STREAM.INFO.{bus.subjects.inbox}")
    assert before is not None
    assert after is not None
    assert after["state"]["last_seq"] == before["state"]["last_seq"]


# -- command ----------------------------------------------------------------------------------------------------------


async def test_a_command_answers_with_the_record(bus: Bus, submitter: Submitter) -> None:
    run = new_run_id()

    def reply(data: bytes) -> bytes:
        command = msgspec.json.decode(data, type=Command)
        assert (command.run, command.verb, command.reason) == (run, "cancel", "why")
        return encode(CommandReply(record=record(run, Status.CANCEL_REQUESTED)))

    await answer(bus, "command", reply)
    assert (await submitter.command(run, "cancel", "why")).status == Status.CANCEL_REQUESTED


async def test_a_refused_command_raises(bus: Bus, submitter: Submitter) -> None:
    info = ErrorInfo(code="illegal_transition", message="it is completed")
    await answer(bus, "command", lambda _: encode(CommandReply(error=info)))
    with pytest.raises(IllegalTransition, match="completed"):
        await submitter.command(new_run_id(), "cancel")


async def test_without_a_coordinator_a_command_is_stored(
    bus: Bus, submitter: Submitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callboard.store.submit._COMMAND_PATIENCE_S", 0.1)
    run = new_run_id()
    with pytest.raises(NotFound):
        await submitter.command(run, "cancel")
    await EventLog(bus).append_state(record(run), 0)
    assert (await submitter.command(run, "cancel", "why")).status == Status.RUNNING
    stored = await reads.last(bus, bus.subjects.inbox, bus.subjects.command(run, "cancel"))
    assert stored is not None
    assert msgspec.json.decode(stored.data, type=Command).reason == "why"


# -- wait -------------------------------------------------------------------------------------------------------------


async def test_wait_sees_the_end(bus: Bus, submitter: Submitter) -> None:
    log, run = EventLog(bus), new_run_id()
    sequence = await log.append_state(record(run), 0)
    waiting = asyncio.create_task(submitter.wait(run, 5))
    await asyncio.sleep(0.05)
    sequence = await log.append_state(record(run, Status.WAITING), sequence)
    await log.append_state(record(run, Status.COMPLETED), sequence)
    async with asyncio.timeout(0.3):
        assert (await waiting).status == Status.COMPLETED


async def test_wait_sees_an_end_that_was_before(bus: Bus, submitter: Submitter) -> None:
    run = new_run_id()
    await EventLog(bus).append_state(record(run, Status.FAILED), 0)
    assert (await submitter.wait(run, 1)).status == Status.FAILED
    assert not bus.on_reconnect


async def test_wait_begins_before_the_run_exists(bus: Bus, submitter: Submitter) -> None:
    run = new_run_id()
    waiting = asyncio.create_task(submitter.wait(run, 5))
    await asyncio.sleep(0.05)
    await EventLog(bus).append_state(record(run, Status.COMPLETED), 0)
    assert (await waiting).terminal


async def test_when_the_time_is_up_the_newest_record_is_the_answer(bus: Bus, submitter: Submitter) -> None:
    run = new_run_id()
    with pytest.raises(NotFound):
        await submitter.wait(run, 0.1)
    await EventLog(bus).append_state(record(run), 0)
    assert (await submitter.wait(run, 0.1)).status == Status.RUNNING
    assert not bus.on_reconnect


async def test_garbage_on_the_live_subject_is_passed_over(bus: Bus, submitter: Submitter) -> None:
    run = new_run_id()
    waiting = asyncio.create_task(submitter.wait(run, 5))
    await asyncio.sleep(0.05)
    subject = bus.subjects.live_of(bus.subjects.state(run))
    for data in (b"", b"\xff", b"{}", b"[" * 5000):
        bus.publish(subject, data)
    await EventLog(bus).append_state(record(run, Status.COMPLETED), 0)
    assert (await waiting).terminal


async def test_nothing_is_missed_however_the_end_falls(
    bus: Bus, settings: BrokerSettings, submitter: Submitter
) -> None:
    """Subscribe first, load then: the end may come before, between and after."""
    other = await Bus.connect(settings)
    log = EventLog(other)
    try:
        for _ in range(60):
            run = new_run_id()
            write = log.append_state(record(run, Status.COMPLETED), 0)
            async with asyncio.timeout(0.4):  # below the first reload
                assert (await submitter.wait(run, 1)).terminal
            await write
    finally:
        await other.close()


async def test_wait_survives_a_restart_of_the_server(nats: ServerProcess, bus: Bus, settings: BrokerSettings) -> None:
    log, run = EventLog(bus), new_run_id()
    sequence = await log.append_state(record(run), 0)
    watcher = await Bus.connect(settings)
    try:
        waiting = asyncio.create_task(Submitter(watcher, Blobs(watcher)).wait(run, 20))
        await asyncio.sleep(0.05)
        await asyncio.to_thread(nats.kill)
        await asyncio.to_thread(nats.start)
        await bus.connected()
        while True:
            try:
                await log.append_state(record(run, Status.COMPLETED), sequence)
                break
            except Unavailable:
                await asyncio.sleep(0.05)
        assert (await waiting).terminal
    finally:
        await watcher.close()


async def test_no_time_is_too_short_to_see_a_run_that_is_there(bus: Bus, submitter: Submitter) -> None:
    run = new_run_id()
    await EventLog(bus).append_state(record(run, Status.QUEUED), 0)
    for timeout_s in (0, 1e-6):
        assert (await submitter.wait(run, timeout_s)).id == run
    with pytest.raises(NotFound):
        await submitter.wait(new_run_id(), 0)
