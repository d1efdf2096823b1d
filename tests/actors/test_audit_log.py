"""A corruption of each kind in the log itself is found, and named for what it is."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.store.blobs import Blobs
from callboard.topics.bus import Bus
from callboard.topics.ids import child_run_id, new_run_id
from callboard.topics.messages import Artifact, BlobRef, Event, Payload, Status, Step, encode

from .auditing import Forger, codes, look, only

Q, R, W, C, F = Status.QUEUED, Status.RUNNING, Status.WAITING, Status.COMPLETED, Status.FAILED


@pytest.fixture
def forger(bus: Bus) -> Forger:
    return Forger(bus)


@pytest.fixture
def run() -> str:
    return str(new_run_id())


async def test_an_empty_installation_is_clean(bus: Bus) -> None:
    report = await look(bus)
    assert report.clean
    assert (report.runs, report.events, report.findings, report.counts) == (0, 0, [], {})


async def test_a_life_that_goes_well_is_clean(bus: Bus, forger: Forger, run: str) -> None:
    await forger.path(run, Q, R)
    await forger.step(run)
    await forger.step(run, n=2, at="1")
    await forger.path(run, C, attempt=1)
    report = await look(bus)
    assert report.clean
    assert (report.runs, report.live, report.events) == (1, 0, 5)


async def test_an_illegal_path(bus: Bus, forger: Forger, run: str) -> None:
    sequence = await forger.path(run, Q, C)
    found = await only(bus, "path_illegal")
    assert (found.run, found.sequence, found.severity, found.repair) == (run, sequence, "error", None)
    assert "queued (revision 1) → completed (revision 2)" in found.found
    assert "running" in found.expected


async def test_a_run_that_begins_in_the_middle(bus: Bus, forger: Forger, run: str) -> None:
    await forger.path(run, R, C)
    assert "running" in (await only(bus, "first_state_illegal")).found


async def test_a_rejected_run_begins_with_its_end(bus: Bus, forger: Forger, run: str) -> None:
    await forger.path(run, Status.REJECTED)
    assert await codes(bus) == []


@pytest.mark.parametrize("rev", [2, 4])
async def test_a_state_is_missing_or_doubled(bus: Bus, forger: Forger, run: str, rev: int) -> None:
    await forger.path(run, Q, R)
    await forger.state(run, C, rev=rev, attempt=1)
    assert (await only(bus, "revision_gap")).expected == "revision 3"


@pytest.mark.parametrize("counter", ["attempt", "dispatch", "epoch"])
async def test_a_counter_shrinks(bus: Bus, forger: Forger, run: str, counter: str) -> None:
    for status, count in ((Q, 2), (R, 2), (C, 1)):
        await forger.state(run, status, **({"attempt": 1} | {counter: count}))
    found = await only(bus, "counter_shrinks")
    assert found.found.startswith(f"{counter} 1 after 2")


@pytest.mark.parametrize("after", [{"version": "2", "pin": True}, {"version": "1"}])
async def test_a_pin_moves(bus: Bus, forger: Forger, run: str, after: dict[str, Any]) -> None:
    await forger.path(run, Q, R, version="1", pin=True)
    await forger.state(run, C, attempt=1, **after)
    assert "after version '1'" in (await only(bus, "pin_moved")).found


async def test_two_outcomes(bus: Bus, forger: Forger, run: str) -> None:
    await forger.path(run, Q, R, C, F)
    assert (await only(bus, "second_outcome")).found == "failed (revision 4) after completed"


async def test_a_run_rises_from_the_dead(bus: Bus, forger: Forger, run: str) -> None:
    await forger.path(run, Q, R, C, Q)
    await forger.work(run)
    assert (await only(bus, "write_after_end")).found == "state queued after completed"


@pytest.mark.parametrize("kind", ["step", "delta", "custom", "message", "artifact", "of_a_later_version"])
async def test_a_write_of_any_kind_after_the_end(bus: Bus, forger: Forger, run: str, kind: str) -> None:
    await forger.path(run, Q, R, C)
    first = await forger.raw(run, kind, b"{}")
    await forger.raw(run, kind, b"{}")
    found = await only(bus, "write_after_end")
    assert (found.sequence, kind in found.found) == (first, True)


@pytest.mark.parametrize("status", [Q, W, Status.CANCEL_REQUESTED])
async def test_an_entry_while_nobody_owns_the_run(bus: Bus, forger: Forger, run: str, status: Status) -> None:
    await forger.path(run, Q, R, status)
    late = await forger.step(run)
    report = await look(bus, wait_s=0)
    mine = [one for one in report.findings if one.sequence == late]
    assert [one.code for one in mine] == ["write_not_owned"]
    assert f"while the run is {status}" in mine[0].found


async def test_an_entry_of_an_attempt_that_has_lost_the_run(bus: Bus, forger: Forger, run: str) -> None:
    await forger.path(run, Q, R)
    await forger.path(run, R, attempt=2)
    event = Event(at="0", attempt=1, n=9, type="delta")
    await forger.raw(run, "delta", encode([event, event]))
    await forger.path(run, C, attempt=2)
    assert "delta of attempt 1" in (await only(bus, "write_not_owned")).found


async def test_a_finished_step_is_finished_again(bus: Bus, forger: Forger, run: str) -> None:
    await forger.path(run, Q, R)
    await forger.step(run, "0", n=1, status="started")
    await forger.step(run, "0", n=2)
    await forger.path(run, R, attempt=2)
    await forger.step(run, "0", attempt=2)
    await forger.path(run, C, attempt=2)
    assert "step 'work' at 0 is finished again by attempt 2" in (await only(bus, "step_doubled")).found


async def test_a_write_that_was_stored_twice_and_a_failed_step_tried_again_are_no_faults(
    bus: Bus, forger: Forger, run: str
) -> None:
    await forger.path(run, Q, R)
    await forger.step(run, "0", n=1)
    await forger.step(run, "0", n=1)
    await forger.step(run, "1", n=2, status="failed")
    await forger.path(run, R, attempt=2)
    await forger.step(run, "1", n=1, attempt=2)
    await forger.path(run, C, attempt=2)
    assert await codes(bus) == []


@pytest.mark.parametrize("kind", ["step", "artifact", "custom"])
async def test_an_entry_that_cannot_be_read(bus: Bus, forger: Forger, run: str, kind: str) -> None:
    await forger.path(run, Q, R)
    await forger.raw(run, kind, b'{"at": 3, \xff')
    await forger.path(run, C, attempt=1)
    assert (await only(bus, "entry_unreadable")).run == run


async def test_a_state_that_cannot_be_read(bus: Bus, forger: Forger, run: str) -> None:
    await forger.path(run, Q, R)
    await forger.raw(run, "state", b'{"id": "')
    await forger.path(run, C, attempt=1)
    assert (await only(bus, "state_unreadable")).run == run


async def test_a_state_under_another_run_s_subject(bus: Bus, forger: Forger, run: str) -> None:
    await forger.path(run, Q, R, C)
    await forger.raw(run, "state", encode(forger.record(str(new_run_id()), Q)))
    assert (await only(bus, "state_misplaced")).run == run


async def test_events_without_a_state(bus: Bus, forger: Forger, run: str) -> None:
    await forger.step(run)
    await forger.step(run, n=2, at="1")
    report = await look(bus)
    assert [one.code for one in report.findings] == ["state_missing"]
    assert report.runs == 0


async def test_a_subject_of_no_run(bus: Bus) -> None:
    await bus.write(f"{bus.subjects.run}.a.b.state.c", b"{}")
    await bus.write(f"{bus.subjects.run}.a.b.state", b"{}")
    assert await codes(bus) == ["subject_unknown", "subject_unknown"]


async def test_an_orphan_child(bus: Bus, forger: Forger, run: str) -> None:
    child = child_run_id(run, "0")
    await forger.path(child, Q, R, C, parent=run)
    found = await only(bus, "parent_missing")
    assert (found.run, run in found.found) == (child, True)


async def test_a_child_that_a_completed_parent_recorded_and_nobody_started(bus: Bus, forger: Forger, run: str) -> None:
    child = child_run_id(run, "0")
    await forger.path(run, Q, R)
    await forger.step(run, kind="child", child=child)
    assert "child_unstarted" not in await codes(bus, wait_s=0), "while its parent runs it may still be started"
    await forger.path(run, C, attempt=1)
    assert (await only(bus, "child_unstarted")).run == child


@pytest.mark.parametrize("first", [True, False])
async def test_a_child_of_somebody_else(bus: Bus, forger: Forger, run: str, first: bool) -> None:
    child, stranger = child_run_id(run, "0"), child_run_id(run, "1")
    await forger.path(run, Q, R)
    await forger.path(stranger, Q, R, C, parent=run)
    if first:
        await forger.path(child, Q, R, C, parent=stranger)
    await forger.step(run, kind="child", child=child)
    if not first:
        await forger.path(child, Q, R, C, parent=stranger)
    await forger.path(run, C, attempt=1)
    assert (await only(bus, "child_misplaced")).run == child


async def test_an_accepted_task_without_a_run(bus: Bus, forger: Forger, run: str) -> None:
    there = str(new_run_id())
    await forger.path(there, Q, R, C)
    found = await only(bus, "run_missing", expected=[there, run])
    assert found.run == run


async def test_blobs_that_are_not_there(bus: Bus, forger: Forger, run: str) -> None:
    kept, torn = await Blobs(bus).put(b"x" * 1000), await Blobs(bus).put(b"y" * 300_000)
    bucket, gone = bus.subjects.blobs, "f" * 64
    await forger.path(run, Q, R, input=Payload(ref=kept))
    await forger.step(run, value=Payload(ref=torn))
    await forger.raw(
        run, "artifact",
        encode(Artifact(
            at="1", attempt=1, n=2, name="a", media_type="text/plain", size=1, digest="",
            ref=BlobRef(gone, 5, bucket),
        )),
    )  # fmt: skip
    await forger.raw(run, "custom", encode(Event(at="1", attempt=1, n=3, type="x", data=Payload(ref=kept))))
    await forger.path(run, C, attempt=1, result=Payload(ref=BlobRef(kept.name, 7, "nowhere")))
    assert await codes(bus) == [], "blobs are looked at only when that is asked for"
    info = await bus.api(f"STREAM.INFO.OBJ_{bucket}", {"subjects_filter": f"$O.{bucket}.C.>"})
    assert info is not None
    chunk = next(subject for subject, count in info["state"]["subjects"].items() if count == 3)
    await bus.api(f"STREAM.PURGE.OBJ_{bucket}", {"filter": chunk, "keep": 2})
    report = await look(bus, blobs=True)
    assert {one.code for one in report.findings} == {"blob_missing"}
    assert [one.found.rpartition(": ")[2] for one in report.findings] == [
        "2 of its 3 chunks are there", "it is not there", "there is no such object store",
    ]  # fmt: skip


async def test_a_log_that_retention_has_cut_is_judged_by_what_is_left(bus: Bus, forger: Forger, run: str) -> None:
    child = child_run_id(run, "0")
    await forger.path(run, Q, R)
    await forger.path(child, Q, R, parent=run)
    cut = await forger.path(run, C, attempt=1)
    await forger.step(child)
    await forger.path(child, C, C, attempt=1, parent=run)
    await bus.api(f"STREAM.PURGE.{bus.subjects.events}", {"seq": cut + 1})
    report = await look(bus)
    assert [one.code for one in report.findings] == ["second_outcome"]
    assert report.truncated


async def test_many_findings_are_all_counted(bus: Bus, forger: Forger) -> None:
    for _ in range(30):
        await forger.path(str(new_run_id()), Q, C)
    report = await look(bus)
    assert report.counts == {"path_illegal": 30}
    assert len(report.findings) == 30


def test_a_step_is_known_by_its_place_and_attempt() -> None:
    """What the audit keeps of a journal are numbers; two steps of one attempt are never taken for one."""
    from callboard.actors.audit.track import Track

    track = Track()
    made = [Step(at=str(n), name="x", attempt=a, n=n) for a in (1, 2) for n in range(50)]
    assert all(track.fresh(step) for step in made)
    assert not any(track.fresh(step) for step in made)
