"""The journal of a run: what its attempts have recorded."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest

from callboard.store.journal import ENTRY_KINDS, Seen, entries, has_result, load_journal
from callboard.store.log import EventLog
from callboard.topics.bus import Bus
from callboard.topics.errors import InvalidMessage, StaleFence, Unavailable
from callboard.topics.ids import new_run_id
from callboard.topics.messages import Artifact, Checkpoint, Event, Payload, RunRecord, Status, Step, encode
from callboard.topics.reads import Stored


def record(run: str, status: Status = Status.RUNNING) -> RunRecord:
    stamp = datetime.now(UTC)
    return RunRecord(
        id=run, root=run, agent="a", status=status, input=Payload(), created_at=stamp, updated_at=stamp
    )  # fmt: skip


def step(at: str, n: int, attempt: int = 1, value: str = "1", **more: object) -> Step:
    return Step(at=at, name="s", attempt=attempt, n=n, value=Payload(json=msgspec.Raw(value.encode())), **more)  # type: ignore[arg-type]


def stored(kind: str, data: bytes, sequence: int = 7) -> Stored:
    return Stored(f"cb.run.r.r.{kind}", sequence, data, None, "2026-01-01T00:00:00Z")


async def test_an_empty_run_has_an_empty_journal(bus: Bus) -> None:
    journal = await load_journal(EventLog(bus), new_run_id())
    assert (journal.steps, journal.emitted, journal.sequence) == ({}, set(), 0)


@pytest.mark.parametrize(
    ("kind", "body", "is_one"),
    [
        ("step", [step("1", 1, 2, status="started"), step("1", 2, 2)], True),
        ("step", [step("1", 1, 2, status="started"), step("1", 2, 2, status="failed")], False),
        ("step", [step("1", 1, 1)], False),
        ("effect", [step("1", 1, 2, kind="effect", status="claimed")], False),
        ("effect", [step("1", 1, 2, kind="effect")], True),
        ("checkpoint", Checkpoint(attempt=2, n=1, source="loop", agent="a"), True),
        ("checkpoint@sub", Checkpoint(attempt=2, n=1, source="loop", agent="a"), True),
        ("checkpoint", Checkpoint(attempt=0, n=0, source="update", agent="a"), False),
        ("delta", [Event(at="1", attempt=2, n=1, type="delta")], False),
        ("step", {"no": "entry"}, False),
    ],
)
async def test_what_is_a_result_of_an_attempt(bus: Bus, kind: str, body: object, is_one: bool) -> None:
    log, run = EventLog(bus), new_run_id()
    before = await log.append_state(record(run), 0)
    await log.append(run, "step", encode(step("0", 9, 2)), before)
    owner = await log.append_state(record(run), before)
    assert not await has_result(log, run, 2, owner)
    await log.append(run, kind, encode(body), owner)
    assert await has_result(log, run, 2, owner) == is_one


async def test_results_and_emissions_are_found(bus: Bus) -> None:
    log, run = EventLog(bus), new_run_id()
    owner = await log.append_state(record(run), 0)
    await log.append(run, "step", encode(step("1", 1, status="started")), owner)
    await log.append(run, "step", encode([step("1", 2, value="11"), step("2", 3, value="22")]), owner)
    await log.append(run, "delta", encode(Event(at="3", attempt=1, n=4, type="delta")), owner)
    await log.append(run, "custom", encode([Event(at="4", attempt=1, n=5, type="progress")]), owner)
    artifact = Artifact(at="5", attempt=1, n=6, name="a", media_type="text/plain", size=0, digest="sha256:", text="")
    last = await log.append(run, "artifact", encode(artifact), owner)
    journal = await load_journal(log, run)
    assert {at: bytes(one.value.json) for at, one in journal.steps.items() if one.value} == {"1": b"11", "2": b"22"}  # type: ignore[arg-type]
    assert journal.emitted == {"3", "4", "5"}
    assert journal.sequence == last


async def test_a_step_that_only_started_has_no_result(bus: Bus) -> None:
    log, run = EventLog(bus), new_run_id()
    owner = await log.append_state(record(run), 0)
    await log.append(run, "step", encode(step("1", 1, status="started")), owner)
    assert (await load_journal(log, run)).steps == {}


async def test_the_first_result_of_a_place_holds_and_a_repeated_write_counts_once(bus: Bus) -> None:
    log, run = EventLog(bus), new_run_id()
    owner = await log.append_state(record(run), 0)
    await log.append(run, "step", encode(step("1", 1, value='"first"')), owner)
    await log.append(run, "step", encode(step("1", 1, value='"first"')), owner)
    await log.append(run, "step", encode(step("1", 1, attempt=2, value='"second"')), owner)
    payload = (await load_journal(log, run)).steps["1"].value
    assert payload == Payload(json=msgspec.Raw(b'"first"'))


async def test_the_journal_of_a_child_is_its_own(bus: Bus) -> None:
    log, run = EventLog(bus), new_run_id()
    child = f"{run}~{'0' * 16}"
    for each in (run, child):
        owner = await log.append_state(record(each), 0)
        await log.append(each, "step", encode(step("1", 1, value=f'"{each}"')), owner)
    payload = (await load_journal(log, child)).steps["1"].value
    assert payload == Payload(json=msgspec.Raw(f'"{child}"'.encode()))


async def test_thousands_of_entries_come_in_batches(bus: Bus) -> None:
    log, run = EventLog(bus), new_run_id()
    owner = await log.append_state(record(run), 0)
    writes = [log.append(run, "step", encode(step(str(n), n)), owner) for n in range(1, 1801)]
    for write in writes:
        await write
    assert len((await load_journal(log, run)).steps) == 1800


async def test_a_late_attempt_cannot_write(bus: Bus) -> None:
    """The fence is the run's state: when it has moved on, the broker refuses and nothing is stored."""
    log, run = EventLog(bus), new_run_id()
    old = await log.append_state(record(run), 0)
    new = await log.append_state(record(run), old)
    with pytest.raises(StaleFence):
        await log.append(run, "step", encode(step("1", 1)), old)
    with pytest.raises(StaleFence):
        await log.append_state(record(run, Status.COMPLETED), old)
    await log.append(run, "step", encode(step("2", 1)), new)
    assert list((await load_journal(log, run)).steps) == ["2"]


async def test_the_event_that_must_be_in_is_waited_for(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a replica that is behind would hide: the newest events come later."""
    log, run = EventLog(bus), new_run_id()
    owner = await log.append_state(record(run), 0)
    loading = asyncio.create_task(load_journal(log, run, until=owner + 2))
    await asyncio.sleep(0.03)
    await log.append(run, "step", encode(step("1", 1)), owner)
    newest = await log.append_state(record(run), owner)
    journal = await loading
    assert (list(journal.steps), journal.sequence) == (["1"], newest)
    monkeypatch.setattr("callboard.store.journal._LAG_S", (0.01,))
    with pytest.raises(Unavailable, match=f"before {newest + 1}"):
        await load_journal(log, run, until=newest + 1)


async def test_a_journal_that_cannot_be_read_is_an_error_that_names_the_message(bus: Bus) -> None:
    log, run = EventLog(bus), new_run_id()
    await log.append_state(record(run), 0)
    sequence = await bus.write(bus.subjects.event(run, "step"), b"\xff\x00")
    with pytest.raises(InvalidMessage, match=rf"message {sequence} on .*{run}\.step") as caught:
        await load_journal(log, run)
    assert caught.value.sequence == sequence


@pytest.mark.parametrize("kind", sorted(ENTRY_KINDS))
@pytest.mark.parametrize("data", [b"", b"null", b"7", b'"x"', b"{}", b"[1]", b"[[]]", b"{", b"\xff", b'{"at":"1"}'])
def test_garbage_is_refused(kind: str, data: bytes) -> None:
    with pytest.raises(InvalidMessage):
        entries(stored(kind, data))


def test_one_entry_and_a_list_are_the_same() -> None:
    one = step("1", 1)
    assert entries(stored("step", encode(one))) == entries(stored("step", encode([one]))) == [one]
    assert entries(stored("step", b"[]")) == []


def test_events_without_entries_are_refused() -> None:
    with pytest.raises(InvalidMessage, match="'state'"):
        entries(stored("state", b"{}"))


def test_an_entry_is_fresh_once() -> None:
    seen = Seen()
    assert [seen.fresh(step("1", n, attempt)) for n, attempt in ((1, 1), (1, 2), (1, 1), (2, 1))] == [
        True, True, False, True,
    ]  # fmt: skip
