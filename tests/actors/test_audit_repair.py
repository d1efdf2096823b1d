"""What a repair publishes is taken by a real coordinator, and mends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from callboard.actors.audit import Report
from callboard.topics.bus import Bus
from callboard.topics.client import Message
from callboard.topics.config import BrokerSettings
from callboard.topics.ids import child_run_id, new_run_id
from callboard.topics.messages import CancelOrder, Status, WorkerInfo
from callboard.topics.units import now

from .auditing import Forger, look
from .company import Company, company

Q, R, W, C = Status.QUEUED, Status.RUNNING, Status.WAITING, Status.COMPLETED


@pytest.fixture
async def troupe(settings: BrokerSettings, bus: Bus) -> AsyncIterator[Company]:
    async with company(settings, bus) as found:
        yield found


@pytest.fixture
def forger(bus: Bus) -> Forger:
    return Forger(bus)


@pytest.fixture
def run() -> str:
    return str(new_run_id())


async def mended(bus: Bus, *expected: str) -> Report:
    """A repair that mends exactly these codes, after which an audit finds nothing."""
    report = await look(bus, repair=True)
    assert sorted(one.code for one in report.findings) == sorted(expected), report.findings
    assert all(one.mended for one in report.findings), report.findings
    assert report.clean
    after = await look(bus)
    assert (after.clean, after.findings) == (True, [])
    return report


async def test_a_lost_work_message(bus: Bus, troupe: Company, forger: Forger, run: str) -> None:
    await forger.state(run, Q)
    await mended(bus, "work_missing")
    assert await troupe.waiting_messages(bus.subjects.work_stream) == 1


async def test_a_lost_work_message_behind_a_full_queue(bus: Bus, troupe: Company, forger: Forger, run: str) -> None:
    others = [str(new_run_id()) for _ in range(5)]
    for other in others:
        await forger.state(other, Q)
        await forger.work(other)
    await forger.state(run, Q)
    await mended(bus, "work_missing")
    assert await troupe.waiting_messages(bus.subjects.work_stream) == 6


async def test_a_lost_timer_of_a_backoff_fires_after_all(bus: Bus, troupe: Company, forger: Forger, run: str) -> None:
    await forger.path(run, Q, R)
    await forger.state(run, Q, attempt=1, wake_at=now() + timedelta(seconds=2))
    await mended(bus, "timer_missing")
    record = await troupe.reaches(run, Q)
    while record.wake_at is not None:
        record = await troupe.record(run)
    assert record.dispatch == 2


async def test_a_lost_timer_that_is_long_overdue(bus: Bus, troupe: Company, forger: Forger, run: str) -> None:
    await forger.path(run, Q, R)
    await forger.state(run, W, attempt=1, wake_at=now() - timedelta(hours=1))
    await mended(bus, "timer_missing")
    await troupe.reaches(run, Q)


async def test_a_lost_cancel_deadline(bus: Bus, troupe: Company, forger: Forger, run: str) -> None:
    long_ago = now() - timedelta(hours=1)
    await forger.path(run, Q, R, worker="w1", lease=17)
    await forger.state(run, Status.CANCEL_REQUESTED, attempt=1, epoch=1, worker="w1", lease=17, updated_at=long_ago)
    await mended(bus, "timer_missing")
    assert (await troupe.reaches(run, Status.CANCELED)).epoch == 1


async def test_a_run_whose_worker_is_gone(bus: Bus, troupe: Company, forger: Forger, run: str) -> None:
    await forger.path(run, Q, R, worker="w1", lease=17)
    await mended(bus, "work_unclaimed")
    record = await troupe.record(run)
    assert (record.status, record.dispatch, record.losses) == (Q, 2, 1)


async def test_a_run_that_its_worker_has_forgotten(bus: Bus, troupe: Company, forger: Forger, run: str) -> None:
    def answer(message: Message) -> None:
        bus.publish(message.reply, msgspec.json.encode(WorkerInfo(id="w1", agents=["reviewer"], concurrency=1)))

    await forger.path(run, Q, R, worker="w1", lease=17)
    subscription = await bus.subscribe(f"{bus.subjects.worker}.w1", answer)
    await mended(bus, "work_unclaimed")
    record = await troupe.record(run)
    assert (record.status, record.dispatch, record.losses) == (Q, 2, 0)
    await subscription.close()


async def test_a_forgotten_parent(bus: Bus, troupe: Company, forger: Forger, run: str) -> None:
    child = child_run_id(run, "0")
    await forger.path(run, Q, R)
    await forger.state(run, W, attempt=1, waits=[[child.partition("~")[2]]])
    await forger.path(child, Q, R, C, parent=run)
    await mended(bus, "parent_forgotten")
    assert (await troupe.record(run)).status is Q


@pytest.mark.parametrize("named", [True, False])
async def test_a_parent_that_waits_for_nobody(bus: Bus, troupe: Company, forger: Forger, run: str, named: bool) -> None:
    await forger.path(run, Q, R)
    waits = [[child_run_id(run, "0").partition("~")[2]]] if named else None
    await forger.state(run, W, attempt=1, waits=waits)
    await mended(bus, "wait_endless")
    assert (await troupe.record(run)).status is Q


@pytest.mark.parametrize("told", [True, False])
async def test_a_tree_whose_cancel_was_forgotten(
    bus: Bus, troupe: Company, forger: Forger, run: str, told: bool
) -> None:
    child, tree = child_run_id(run, "0"), CancelOrder(scope="tree")
    await forger.path(run, Q, R)
    await forger.state(child, Q, parent=run)
    await forger.state(run, Status.CANCEL_REQUESTED, attempt=1, epoch=1, cancel=tree)
    if told:
        await forger.state(child, Status.CANCELED, epoch=1, parent=run)
    else:
        await forger.work(child)
    await mended(bus, "tree_unfinished")
    await troupe.reaches(run, Status.CANCELED)
    await troupe.reaches(child, Status.CANCELED)


async def test_a_run_that_outlives_its_canceled_tree(bus: Bus, troupe: Company, forger: Forger, run: str) -> None:
    child, tree = child_run_id(run, "0"), CancelOrder(scope="tree")
    await forger.path(run, Q, R)
    await forger.state(child, Q, parent=run)
    await forger.work(child)
    await forger.state(run, Status.CANCEL_REQUESTED, attempt=1, epoch=1, cancel=tree)
    await forger.state(run, Status.CANCELED, attempt=1, epoch=1, cancel=tree)
    await mended(bus, "tree_survivor")
    assert (await troupe.record(child)).status is Status.CANCELED


async def test_many_faults_at_once(bus: Bus, troupe: Company, forger: Forger) -> None:
    for _ in range(20):
        await forger.state(str(new_run_id()), Q)
        gone = str(new_run_id())
        await forger.path(gone, Q, R, worker="w1", lease=1_000_000)
    report = await mended(bus, *(["work_missing"] * 20 + ["work_unclaimed"] * 20))
    assert report.counts == {"work_missing": 20, "work_unclaimed": 20}
    assert await troupe.waiting_messages(bus.subjects.work_stream) == 40


async def test_what_only_a_person_can_mend_stays(bus: Bus, troupe: Company, forger: Forger, run: str) -> None:
    await forger.path(run, Q, C)
    report = await look(bus, repair=True)
    assert not report.clean
    assert [(one.code, one.repair, one.mended) for one in report.findings] == [("path_illegal", None, None)]


async def test_without_repair_nothing_is_published(bus: Bus, forger: Forger, run: str) -> None:
    await forger.state(run, Q)
    await forger.path(str(new_run_id()), Q, R, worker="w1", lease=17)
    before = [await bus.api(f"STREAM.INFO.{name}") for name in (bus.subjects.inbox, bus.subjects.work_stream)]
    await look(bus)
    after = [await bus.api(f"STREAM.INFO.{name}") for name in (bus.subjects.inbox, bus.subjects.work_stream)]
    assert [info["state"]["last_seq"] for info in after if info] == [
        info["state"]["last_seq"] for info in before if info
    ]


async def test_a_repair_without_a_coordinator_says_what_it_could_not_mend(
    bus: Bus, forger: Forger, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callboard.actors.audit.auditor._MEND_S", 0.5)
    lost = str(new_run_id())
    await forger.path(lost, Q, R, worker="w1", lease=17)
    await forger.state(run, Q)
    report = await look(bus, repair=True)
    assert not report.clean
    assert {one.run: one.mended for one in report.findings} == {lost: False, run: True}
