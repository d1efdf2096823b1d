"""What live runs are owed and do not have is found; what is there, or on its way, is not."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from callboard.topics import reads
from callboard.topics.bus import Bus
from callboard.topics.client import Message
from callboard.topics.ids import child_run_id, derived_run_id, keyed_run_id, new_run_id
from callboard.topics.messages import Answer, CancelOrder, Interrupt, Status, Word, WorkerInfo, encode
from callboard.topics.units import now

from .auditing import WAIT_S, Forger, codes, look, only

Q, R, W, C = Status.QUEUED, Status.RUNNING, Status.WAITING, Status.COMPLETED
SOON = timedelta(minutes=5)


@pytest.fixture
def forger(bus: Bus) -> Forger:
    return Forger(bus)


@pytest.fixture
def run() -> str:
    return str(new_run_id())


# -- queued ---------------------------------------------------------------------------------------------------------


async def test_a_queued_run_without_a_work_message(bus: Bus, forger: Forger, run: str) -> None:
    sequence = await forger.state(run, Q)
    found = await only(bus, "work_missing")
    assert (found.run, found.sequence, found.severity) == (run, sequence, "error")
    assert found.repair == f"{bus.subjects.work}.reviewer"
    await forger.work(run)
    assert await codes(bus) == []


@pytest.mark.parametrize(("dispatch", "queue"), [(1, "reviewer"), (2, "writer")])
async def test_a_work_message_of_another_dispatch_or_queue_does_not_count(
    bus: Bus, forger: Forger, run: str, dispatch: int, queue: str
) -> None:
    await forger.state(run, Q, dispatch=2)
    await forger.work(run, dispatch, queue)
    assert f"there is dispatch {dispatch} on {queue}" in (await only(bus, "work_missing")).found
    await forger.work(run, 2)
    assert await codes(bus) == []


async def test_a_task_that_waits_for_an_agent_is_parked_under_its_topic(bus: Bus, forger: Forger, run: str) -> None:
    await forger.state(run, Q, agent="", topic="news")
    assert (await only(bus, "work_missing")).repair == f"{bus.subjects.work}.@news"
    await forger.work(run, queue="@news")
    assert await codes(bus) == []


async def test_a_backoff_without_its_timer(bus: Bus, forger: Forger, run: str) -> None:
    at = now() + SOON
    await forger.path(run, Q, R)
    await forger.state(run, Q, attempt=1, wake_at=at)
    found = await only(bus, "timer_missing")
    assert found.repair == f"{bus.subjects.timer}.{run}.due"
    await forger.timer(run, "due", at, dispatch=7)
    assert "there is one of dispatch 7" in (await only(bus, "timer_missing")).found
    await forger.timer(run, "due", at, dispatch=1)
    assert await codes(bus) == []


# -- running --------------------------------------------------------------------------------------------------------


async def test_a_running_run_with_its_unacknowledged_message_is_well(bus: Bus, forger: Forger, run: str) -> None:
    lease = await forger.work(run)
    await forger.path(run, Q, R, worker="w1", lease=lease)
    assert await codes(bus) == []


async def test_a_running_run_whose_message_and_worker_are_gone(bus: Bus, forger: Forger, run: str) -> None:
    await forger.path(run, Q, R, worker="w1", lease=17)
    found = await only(bus, "work_unclaimed")
    assert "its worker w1 is gone" in found.found
    assert found.repair == bus.subjects.command(run, "sweep")


@pytest.mark.parametrize("holds", [True, False])
async def test_a_running_run_whose_worker_lives(bus: Bus, forger: Forger, run: str, holds: bool) -> None:
    def answer(message: Message) -> None:
        info = WorkerInfo(id="w1", agents=["reviewer"], concurrency=1, running=[run] if holds else [])
        bus.publish(message.reply, msgspec.json.encode(info))

    await forger.path(run, Q, R, worker="w1", lease=17)
    subscription = await bus.subscribe(f"{bus.subjects.worker}.w1", answer)
    if holds:
        assert await codes(bus) == []
    else:
        found = await only(bus, "work_unclaimed")
        assert "is alive and does not hold it" in found.found
        assert found.repair == bus.subjects.command(run, "outcome")
    await subscription.close()


# -- waiting --------------------------------------------------------------------------------------------------------


async def waiting(forger: Forger, run: str, *children: str, **fields: object) -> None:
    await forger.path(run, Q, R)
    waits = [[child.partition("~")[2] for child in children]] if children else None
    await forger.state(run, W, attempt=1, waits=waits, **fields)


async def test_a_forgotten_parent(bus: Bus, forger: Forger, run: str) -> None:
    children = [child_run_id(run, str(n)) for n in range(3)]
    await waiting(forger, run, *children)
    for child in children:
        await forger.state(child, Q, parent=run)
        await forger.work(child)
    for child in children[:2]:
        await forger.path(child, R, C, parent=run, attempt=1)
    assert await codes(bus) == [], "one child is still to be waited for"
    await forger.path(children[2], R, C, parent=run, attempt=1)
    found = await only(bus, "parent_forgotten")
    assert (found.run, found.repair) == (run, bus.subjects.command(run, "child"))
    await forger.command(run, "child")
    assert await codes(bus) == [], "it will be told"


async def test_one_group_that_has_ended_is_enough(bus: Bus, forger: Forger, run: str) -> None:
    one, two = child_run_id(run, "1"), child_run_id(run, "2")
    await forger.path(run, Q, R)
    waits = [[one.partition("~")[2]], [two.partition("~")[2]]]
    await forger.state(run, W, attempt=1, waits=waits)
    await forger.state(one, Q, parent=run)
    await forger.work(one)
    await forger.path(two, Q, R, C, parent=run)
    assert (await only(bus, "parent_forgotten")).run == run


async def test_a_parent_that_waits_for_a_child_that_does_not_exist(bus: Bus, forger: Forger, run: str) -> None:
    child = child_run_id(run, "0")
    await waiting(forger, run, child)
    found = await only(bus, "wait_endless")
    assert (child in found.found, found.repair) == (True, bus.subjects.command(run, "wake"))


async def test_a_run_that_waits_for_nothing(bus: Bus, forger: Forger, run: str) -> None:
    await waiting(forger, run)
    assert (await only(bus, "wait_endless")).found == "it waits for nothing"


async def test_a_sleep_without_its_timer(bus: Bus, forger: Forger, run: str) -> None:
    at = now() + SOON
    await waiting(forger, run, wake_at=at)
    assert (await only(bus, "timer_missing")).repair == f"{bus.subjects.timer}.{run}.wake"
    await forger.timer(run, "wake", at)
    assert await codes(bus) == []


async def test_a_cancel_without_its_deadline(bus: Bus, forger: Forger, run: str) -> None:
    lease = await forger.work(run)
    await forger.path(run, Q, R, worker="w1", lease=lease)
    await forger.state(run, Status.CANCEL_REQUESTED, attempt=1, epoch=1, worker="w1", lease=lease)
    found = await only(bus, "timer_missing")
    assert found.repair == f"{bus.subjects.timer}.{run}.cancel_deadline"
    await forger.timer(run, "cancel_deadline", now() + SOON, epoch=1)
    assert await codes(bus) == []


TREE = CancelOrder(scope="tree")


async def test_a_canceled_tree_with_a_run_that_was_not_told(bus: Bus, forger: Forger, run: str) -> None:
    child = child_run_id(run, "0")
    await forger.path(run, Q, R)
    await forger.state(child, Q, parent=run)
    await forger.work(child)
    await forger.state(run, Status.CANCEL_REQUESTED, attempt=1, epoch=1, cancel=TREE)
    found = await only(bus, "tree_unfinished")
    assert (found.run, found.repair) == (run, bus.subjects.command(run, "sweep"))
    assert f"{child} below it is queued, uncanceled" in found.found
    lease = await forger.work(child)
    await forger.state(child, R, attempt=1, worker="w1", lease=lease, parent=run)
    await forger.state(child, Status.CANCEL_REQUESTED, attempt=1, epoch=1, worker="w1", lease=lease, parent=run)
    await forger.timer(child, "cancel_deadline", now() + SOON, epoch=1)
    assert await codes(bus) == [], "it waits for the child's worker"
    await forger.state(child, Status.CANCELED, attempt=1, epoch=1, parent=run)
    assert "all below it has ended, and it has not" in (await only(bus, "tree_unfinished")).found


async def test_a_run_that_outlives_its_canceled_tree(bus: Bus, forger: Forger, run: str) -> None:
    child, grandchild, detached = (child_run_id(run, str(n)) for n in range(3))
    await forger.path(run, Q, R)
    await forger.path(child, Q, R, C, parent=run)
    await forger.state(grandchild, Q, parent=child)
    await forger.state(detached, Q, parent=run, detached=True)
    await forger.work(grandchild)
    await forger.work(detached)
    await forger.state(run, Status.CANCEL_REQUESTED, attempt=1, epoch=1, cancel=TREE)
    await forger.state(run, Status.CANCELED, attempt=1, epoch=1, cancel=TREE)
    found = await only(bus, "tree_survivor")
    assert (found.run, found.repair) == (grandchild, bus.subjects.command(grandchild, "cancel"))


async def test_a_cancel_of_one_run_lets_its_children_live(bus: Bus, forger: Forger, run: str) -> None:
    child = child_run_id(run, "0")
    await forger.path(run, Q, R)
    await forger.state(child, Q, parent=run)
    await forger.work(child)
    await forger.state(run, Status.CANCEL_REQUESTED, attempt=1, epoch=1, cancel=CancelOrder())
    await forger.state(run, Status.CANCELED, attempt=1, epoch=1, cancel=CancelOrder())
    assert await codes(bus) == []


# -- on its way -----------------------------------------------------------------------------------------------------


async def test_a_run_that_a_command_or_task_in_the_inbox_is_about_is_not_judged(
    bus: Bus, forger: Forger, run: str
) -> None:
    await forger.state(run, Q)
    await forger.command(run, "sweep")
    assert await codes(bus) == []
    keyed = keyed_run_id(bus.salt, "key", "k1")
    await forger.state(keyed, Q)
    await bus.write(f"{bus.subjects.task}.news", b"1", b"NATS/1.0\r\nCallboard-Key: k1\r\n\r\n")
    named = str(new_run_id())
    await forger.state(named, Q)
    await bus.write(f"{bus.subjects.task}.news", b"1", f"NATS/1.0\r\nCallboard-Run: {named}\r\n\r\n".encode())
    assert await codes(bus) == []
    report = await look(bus)
    assert (report.tasks, report.commands) == (2, 1)


async def test_the_run_of_a_plain_task_is_known_beforehand(bus: Bus, forger: Forger) -> None:
    sequence = await bus.write(f"{bus.subjects.task}.news", b"1")
    stored = await reads.by_sequence(bus, bus.subjects.inbox, sequence)
    assert stored is not None
    stored_ms = (stored.time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    await forger.state(derived_run_id(bus.salt, stored_ms, "task", str(sequence)), Q)
    assert await codes(bus) == []


async def test_what_is_mended_during_the_grace_time_is_no_finding(bus: Bus, forger: Forger, run: str) -> None:
    await forger.state(run, Q)

    async def dispatch() -> None:
        await asyncio.sleep(WAIT_S)
        await forger.work(run)

    began = asyncio.get_running_loop().time()
    report, _ = await asyncio.gather(look(bus, wait_s=20), dispatch())
    assert report.clean
    assert asyncio.get_running_loop().time() - began < 19, "the grace time ends when nothing is suspected any more"


async def test_a_run_that_moves_during_the_grace_time_is_no_finding(bus: Bus, forger: Forger, run: str) -> None:
    await forger.state(run, Q)

    async def move() -> None:
        await asyncio.sleep(WAIT_S)
        await forger.state(run, Q, dispatch=2)

    report, _ = await asyncio.gather(look(bus, wait_s=4 * WAIT_S), move())
    assert report.clean, "what it lacks now it has lacked for a moment only"


# -- the INBOX ------------------------------------------------------------------------------------------------------


async def test_tasks_and_commands_that_nobody_takes(bus: Bus, forger: Forger, run: str) -> None:
    await bus.write(f"{bus.subjects.task}.news", b"1")
    await bus.write(f"{bus.subjects.task}.news", b"2")
    await bus.write(f"{bus.subjects.task}.other", b"3")
    await forger.command(run, "cancel")
    assert await codes(bus) == [], "they have not waited for long"
    await asyncio.sleep(0.3)
    report = await look(bus, pending_s=0.2)
    assert not report.clean
    assert [one.code for one in report.findings] == ["task_pending", "task_pending", "command_pending"]
    assert all(one.severity == "warning" for one in report.findings)
    assert report.findings[0].found.startswith("2 wait, the oldest on ")
    assert "no coordinator has ever been here" in report.findings[0].found
    assert (report.tasks, report.commands) == (3, 1)


async def test_dead_letters_are_counted_and_are_no_fault(bus: Bus) -> None:
    await bus.write(bus.subjects.dead_letter("task"), b"{}")
    report = await look(bus)
    assert report.clean
    assert report.dead_letters == 1
    assert [(one.code, one.severity) for one in report.findings] == [("dead_letters", "note")]


# -- asking ---------------------------------------------------------------------------------------------------------


async def test_a_run_that_asks_nothing(bus: Bus, forger: Forger, run: str) -> None:
    await forger.path(run, Q, R, Status.INPUT_REQUIRED)
    await only(bus, "question_missing")


async def test_an_interrupt_with_an_end_has_its_timer(bus: Bus, forger: Forger, run: str) -> None:
    at = now() + SOON
    asked = [Interrupt(id="a", at="0", created_at=now(), expires_at=at)]
    await forger.path(run, Q, R)
    await forger.state(run, Status.INPUT_REQUIRED, attempt=1, interrupts=asked)
    assert (await only(bus, "timer_missing")).repair == f"{bus.subjects.timer}.{run}.interrupt_due"
    await forger.timer(run, "interrupt_due", at)
    assert await codes(bus) == []


async def test_an_answer_or_a_message_that_has_not_reached_the_run(bus: Bus, forger: Forger, run: str) -> None:
    other = str(new_run_id())
    asked = [Interrupt(id="a", at="0", created_at=now())]
    for name, word in ((run, Word(key="k", at=now(), answer=Answer(id="a"))), (other, Word(key="k", at=now()))):
        await forger.path(name, Q, R)
        await forger.raw(name, "said", encode(word))
    await forger.state(run, Status.INPUT_REQUIRED, attempt=1, interrupts=asked)
    await forger.state(other, W, attempt=1, hears=True)
    found = (await look(bus)).findings
    assert sorted((one.run, one.code) for one in found) == sorted((name, "word_unheard") for name in (run, other))
    assert {one.repair for one in found} == {bus.subjects.command(name, "sweep") for name in (run, other)}
