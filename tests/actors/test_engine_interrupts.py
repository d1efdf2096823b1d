"""Interrupts of code agents: the run is gone while it asks, and goes on behind the answer; answers in any order, held
against what was asked for; nothing before is executed again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from callboard.actors.agent import agent
from callboard.actors.answer import Answer as Given
from callboard.actors.answer import Escalate, InterruptExpired, InterruptRejected
from callboard.actors.engine import Context
from callboard.store.deadletters import DeadLetters
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import (
    CallboardError,
    IllegalTransition,
    InterruptAmbiguous,
    InterruptAnswered,
    InterruptNotFound,
    InvalidAnswer,
    InvalidInput,
)
from callboard.topics.messages import Answer, Command, Interrupt, Payload, RunRecord, Status, Word, encode
from tests.actors.company import Company, company, eventually, result_of
from tests.support import invariants

DONE: Counter[str] = Counter()
"""What was executed, by run and name."""


@dataclass
class Draft:
    text: str
    words: int = 0


def note(run: str, what: str) -> str:
    DONE[f"{run} {what}"] += 1
    return what


@agent("writer")
async def writer(ctx: Context, title: str) -> list[Any]:
    """Asks for a review of its draft."""
    await ctx.step(note, ctx.run.id, "write")
    draft = await ctx.interrupt(Draft(title), id="review", returns=Draft)
    await ctx.step(note, ctx.run.id, "publish")
    return [type(draft).__name__, draft.text, draft.words]


@agent("pair")
async def pair(ctx: Context) -> list[Any]:
    """Two branches ask, each has work behind its answer."""

    async def branch(name: str) -> list[Any]:
        got = await ctx.interrupt(name, id=name)
        return [name, got, await ctx.step(note, ctx.run.id, name)]

    return await ctx.gather(branch("left"), branch("right"))


@agent("whole")
async def whole(ctx: Context) -> Any:
    got = await ctx.interrupt("go?", returns=Given)
    return [got.id, got.action, got.value, got.by, got.comment, got.approved]


@agent("strict")
async def strict(ctx: Context) -> str:
    try:
        return str(await ctx.interrupt("go?", actions=["approve", "reject"]))
    except InterruptRejected as error:
        return f"{error.code} by {error.answer.by}: {error.answer.comment}"


@agent("hasty")
async def hasty(ctx: Context, default: bool) -> Any:
    try:
        more: dict[str, Any] = {"default": 7} if default else {}
        return await ctx.interrupt("how many?", returns=int, expires=timedelta(milliseconds=200), **more)
    except InterruptExpired as error:
        return error.code


@agent("parent")
async def parent(ctx: Context) -> list[Any]:
    return await ctx.gather(ctx.call(whole), ctx.call(writer, "below"))


@agent("login")
async def login(ctx: Context) -> str:
    await ctx.interrupt({"url": "https://example.org/login"}, auth=True)
    return "in"


@agent("changed")
async def changed(ctx: Context) -> Any:
    return await ctx.interrupt("one", id=f"id-{DONE['changed']}")


@agent("same_id")
async def same_id(ctx: Context) -> None:
    for _ in range(2):
        await ctx.interrupt(id="again")


@agent("judge")
async def judge(ctx: Context, question: str) -> Any:
    return {"how many?": 12}.get(question, "what?")


@agent("passing")
async def passing(ctx: Context, question: str) -> int:
    return int(
        await ctx.interrupt(question, returns=int, escalate=Escalate(timedelta(milliseconds=100), agent="judge"))
    )


@agent("beside_a_child")
async def beside_a_child(ctx: Context) -> list[Any]:
    async def child() -> str:
        await ctx.call(quick)
        return await ctx.step(note, ctx.run.id, "after the child")

    return await ctx.gather(ctx.interrupt(id="slow"), child())


@agent("quick")
async def quick(ctx: Context) -> str:
    await ctx.sleep(0.3)
    return "quick"


@agent("busy")
async def busy(ctx: Context) -> list[Any]:
    """One branch works for long, so that the answer finds the attempt alive."""

    async def work() -> int:
        await ctx.interrupt(id="first")
        await ctx.step(asyncio.sleep, 1.0)
        return ctx.run.attempt

    return [*await ctx.gather(ctx.interrupt(id="second"), work()), ctx.run.attempt]


AGENTS = [
    writer, pair, whole, strict, hasty, parent, login, changed, same_id, judge, passing, beside_a_child, quick, busy,
]  # fmt: skip


@pytest.fixture
async def troupe(settings: BrokerSettings, bus: Bus) -> AsyncIterator[Company]:
    DONE.clear()
    async with company(settings, bus, AGENTS, coordinators=2, lease_s=20.0, patience_s=0.2) as found:
        yield found


def inline(value: Any) -> Payload:
    return Payload(json=msgspec.Raw(msgspec.json.encode(value)))


def only(record: RunRecord) -> Interrupt:
    """The open interrupt."""
    assert record.interrupts is not None
    assert len(record.interrupts) == 1
    return record.interrupts[0]


async def asking(troupe: Company, run: str, status: Status = Status.INPUT_REQUIRED) -> RunRecord:
    return await troupe.reaches(run, status)


async def test_a_run_goes_on_behind_the_answer_and_nothing_before_is_executed_again(troupe: Company) -> None:
    run = await troupe.submit("writer", "a title")
    record = await asking(troupe, run)
    one = only(record)
    assert (one.id, one.at, one.actions) == ("review", "1", ("respond", "approve", "edit", "reject"))
    assert (record.worker, record.lease) == (None, 0)
    await eventually(lambda: _no_work(troupe))
    await troupe.submitter.resume(
        run, [Answer(id="review", action="edit", value=inline({"text": "better", "words": 1}))]
    )
    record = await troupe.ended(run)
    assert result_of(record) == ["Draft", "better", 1]
    assert (record.attempt, record.interrupts, record.answers) == (2, None, None)
    assert {f"{run} write": 1, f"{run} publish": 1} == DONE
    await invariants.check(troupe.bus, [run])


async def _no_work(troupe: Company) -> bool:
    return await troupe.waiting_messages(troupe.bus.subjects.work_stream) == 0


@pytest.mark.parametrize("together", [True, False])
async def test_several_are_answered_in_any_order_or_together(troupe: Company, together: bool) -> None:
    run = await troupe.submit("pair")
    await asking(troupe, run)
    right, left = Answer(id="right", value=inline(2)), Answer(id="left", value=inline(1))
    for answers in [[right, left]] if together else [[right], [left]]:
        await troupe.submitter.resume(run, answers)
    record = await troupe.ended(run)
    assert result_of(record) == [["left", 1, "left"], ["right", 2, "right"]]
    assert max(DONE.values()) == 1
    await invariants.check(troupe.bus, [run])


async def test_what_stays_open_is_asked_again_without_a_second_record(troupe: Company) -> None:
    run = await troupe.submit("pair")
    before = await asking(troupe, run)
    await troupe.submitter.resume(run, [Answer(id="right", value=inline(2))])
    await eventually(lambda: DONE[f"{run} right"])
    record = await asking(troupe, run)
    assert only(record) == (before.interrupts or [])[0]
    assert [one.id for one in record.interrupts or ()] == ["left"]
    assert ([one.id for one in record.answered or ()], record.answers) == (["right"], None)


async def test_answers_to_nothing_twice_or_to_one_of_several_are_errors_that_list_what_is_open(troupe: Company) -> None:
    run, submitter = await troupe.submit("pair"), troupe.submitter
    await asking(troupe, run)
    open_ = [{"run": run, "interrupt": "left"}, {"run": run, "interrupt": "right"}]
    with pytest.raises(InterruptNotFound) as missing:
        await submitter.resume(run, [Answer(id="middle")])
    assert missing.value.open == open_
    with pytest.raises(InterruptAmbiguous) as ambiguous:
        await submitter.resume(run, [Answer()])
    assert ambiguous.value.open == open_
    await submitter.resume(run, [Answer(id="left", value=inline(1))])
    await submitter.resume(run, [Answer(id="left", value=inline(1))])
    with pytest.raises(InterruptAnswered):
        await submitter.resume(run, [Answer(id="left", value=inline(2))])
    for wrong in ([], [Answer(id="a"), Answer(id="a")], [Answer(action="expire")], [Answer(id="a"), Answer()]):
        with pytest.raises(InvalidInput):
            await submitter.resume(run, wrong)
    await submitter.resume(run, [Answer(id="right")])
    assert result_of(await troupe.ended(run)) == [["left", 1, "left"], ["right", None, "right"]]
    with pytest.raises(IllegalTransition):
        await submitter.resume(run, [Answer(id="middle")])
    await submitter.resume(run, [Answer(id="left", value=inline(1))])


async def test_an_answer_is_held_against_the_schema_before_it_is_accepted(troupe: Company) -> None:
    run, submitter = await troupe.submit("writer", "a"), troupe.submitter
    await asking(troupe, run)
    for value in (7, {"text": 1}, {"words": 1}):
        with pytest.raises(InvalidAnswer) as wrong:
            await submitter.resume(run, [Answer(id="review", value=inline(value))])
        assert wrong.value.faults
    subject = troupe.bus.subjects.command(run, "resume")
    await troupe.bus.store(subject, encode(Command(answers=[Answer(value=inline(7))])))
    letters = DeadLetters(troupe.bus)
    await eventually(letters.page)
    assert [one.letter.reason.code for one in await letters.page()] == ["invalid_answer"]
    assert (await troupe.record(run)).status is Status.INPUT_REQUIRED
    await submitter.resume(run, [Answer(action="approve", by="ann")])
    assert result_of(await troupe.ended(run)) == ["Draft", "a", 0]


async def test_answers_of_every_action(troupe: Company) -> None:
    submitter, found = troupe.submitter, {}
    for answer in (
        Answer(action="approve", by="ann"), Answer(action="edit", value=inline("stop")),
        Answer(action="reject", comment="no", by="bob"), Answer(value=inline([1])),
    ):  # fmt: skip
        run = await troupe.submit("whole")
        await asking(troupe, run)
        await submitter.resume(run, [answer])
        found[answer.action] = result_of(await troupe.ended(run))
    assert found == {
        "approve": ["0", "approve", "go?", "ann", None, True],
        "edit": ["0", "edit", "stop", None, None, True],
        "reject": ["0", "reject", None, "bob", "no", False],
        "respond": ["0", "respond", [1], None, None, False],
    }
    run = await troupe.submit("strict")
    await asking(troupe, run)
    with pytest.raises(InvalidAnswer, match="approve, reject"):
        await submitter.resume(run, [Answer(value=inline(1))])
    await submitter.resume(run, [Answer(action="reject", by="ann", comment="not yet")])
    assert result_of(await troupe.ended(run)) == "interrupt_rejected by ann: not yet"


@pytest.mark.parametrize(("default", "expected"), [(True, 7), (False, "interrupt_expired")])
async def test_without_an_answer_in_time_the_default_is_taken(troupe: Company, default: bool, expected: Any) -> None:
    record = await troupe.run("hasty", default)
    assert result_of(record) == expected
    states = await troupe.states(record.id)
    (answer,) = next(one.answers for one in states if one.answers)
    assert answer.by == "expiry"
    await invariants.check(troupe.bus, [record.id])


async def test_a_child_s_interrupts_are_answered_at_the_root(troupe: Company) -> None:
    run, submitter = await troupe.submit("parent"), troupe.submitter
    await troupe.reaches(run, Status.WAITING)
    tree = await troupe.log.tree(run)
    below = {one.agent: one.id for one in tree if one.id != run}
    await asyncio.gather(*(asking(troupe, one) for one in below.values()))
    with pytest.raises(InterruptAmbiguous) as ambiguous:
        await submitter.resume(run, [Answer()])
    assert {one["run"] for one in ambiguous.value.open} == set(below.values())
    record = await submitter.resume(run, [Answer(id="review", action="approve")])
    assert record.id == run
    await troupe.ended(below["writer"])
    await submitter.resume(run, [Answer(value=inline("yes"))])
    assert result_of(await troupe.ended(run)) == [["0", "respond", "yes", None, None, False], ["Draft", "below", 0]]
    await invariants.check(troupe.bus, [run])


async def test_an_interrupt_for_authorization_is_a_status_of_its_own(troupe: Company) -> None:
    run = await troupe.submit("login")
    record = await asking(troupe, run, Status.AUTH_REQUIRED)
    assert [one.kind for one in record.interrupts or ()] == ["auth"]
    await troupe.submitter.resume(run, [Answer(action="approve")])
    assert result_of(await troupe.ended(run)) == "in"


async def test_code_that_asks_something_else_at_the_place_is_told_so(troupe: Company) -> None:
    run = await troupe.submit("changed")
    await asking(troupe, run)
    DONE["changed"] += 1
    await troupe.submitter.resume(run, [Answer(id="id-0")])
    record = await troupe.ended(run)
    assert (record.status, record.error and record.error.code) == (Status.FAILED, "journal_mismatch")
    run = await troupe.submit("same_id")
    await asking(troupe, run)
    await troupe.submitter.resume(run, [Answer(id="again")])
    record = await troupe.ended(run)
    assert record.error is not None
    assert (record.error.code, "each id is asked once" in record.error.message) == ("invalid_input", True)


async def test_an_agent_is_asked_and_its_result_is_the_answer(troupe: Company) -> None:
    record = await troupe.run("passing", "how many?")
    assert result_of(record) == 12
    states = await troupe.states(record.id)
    assert [one.by for one in next(each.answers for each in states if each.answers)] == ["agent:judge"]
    await invariants.check(troupe.bus, [record.id])


async def test_an_agent_s_useless_answer_leaves_the_question_to_people(troupe: Company) -> None:
    run = await troupe.submit("passing", "how few?")
    found: list[RunRecord] = []

    async def useless() -> bool:
        found[:] = [await troupe.record(run)]
        return any(step.error for one in found[0].interrupts or () for step in one.escalated or ())

    await asking(troupe, run)
    await eventually(useless)
    await troupe.submitter.escalate(run, to="boss", by="ann", reason="hard")
    one = only(await asking(troupe, run))
    assert (one.to, [step.by for step in one.escalated or ()]) == ("boss", ["clock", "ann"])
    await troupe.submitter.resume(run, [Answer(value=inline(3), by="boss")])
    assert result_of(await troupe.ended(run)) == 3
    await invariants.check(troupe.bus, [run])


async def test_a_branch_goes_on_when_its_child_has_ended_while_another_one_asks(troupe: Company) -> None:
    run = await troupe.submit("beside_a_child")
    await eventually(lambda: DONE[f"{run} after the child"], 5)
    await asking(troupe, run)
    await troupe.submitter.resume(run, [Answer(value=inline("at last"))])
    assert result_of(await troupe.ended(run)) == ["at last", "after the child"]
    await invariants.check(troupe.bus, [run])


async def test_an_answer_that_finds_the_attempt_alive_needs_no_other_one(troupe: Company) -> None:
    run, submitter = await troupe.submit("busy"), troupe.submitter
    await asking(troupe, run)
    await submitter.resume(run, [Answer(id="first")])
    await troupe.reaches(run, Status.RUNNING)
    await submitter.resume(run, [Answer(id="second", value=inline("now"))])
    await submitter.resume(run, [Answer(id="second", value=inline("now"))])
    with pytest.raises(CallboardError) as twice:
        await submitter.resume(run, [Answer(id="second", value=inline("later"))])
    assert twice.value.code == "interrupt_answered"
    record = await troupe.ended(run)
    assert result_of(record) == ["now", 2, 2]
    await invariants.check(troupe.bus, [run])


async def test_a_run_that_asks_is_canceled_at_once(troupe: Company) -> None:
    run = await troupe.submit("pair")
    await asking(troupe, run)
    await troupe.submitter.cancel(run)
    assert (await troupe.ended(run, 2)).status is Status.CANCELED
    with pytest.raises(IllegalTransition):
        await troupe.submitter.resume(run, [Answer(id="left")])


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "a=b"}, {"id": ""}, {"actions": []}, {"actions": ["answer"]}, {"default": 1},
        {"expires": timedelta(0)}, {"schema": {"type": "nothing"}}, {"to": "\n"},
        {"schema": {"type": "string"}, "expires": timedelta(days=1), "default": 1},
    ],
)  # fmt: skip
async def test_what_cannot_be_asked(settings: BrokerSettings, bus: Bus, wrong: dict[str, Any]) -> None:
    @agent("asker")
    async def asker(ctx: Context) -> None:
        await ctx.interrupt(**wrong)

    async with company(settings, bus, [asker]) as found:
        record = await found.run("asker")
        assert record.error is not None
        assert record.error.code == "invalid_input"


async def test_an_answer_that_was_meant_for_a_worker_which_has_just_ended_reaches_the_run(
    settings: BrokerSettings, bus: Bus
) -> None:
    """The attempt's end is stored between the look at the run and the word to its worker."""
    async with company(settings, bus, AGENTS, lease_s=20.0, patience_s=0.2) as troupe:
        run = await troupe.submit("pair")
        record = await asking(troupe, run)
        words = troupe.members[0].actor._carrier.words
        answers = [
            Answer(id=one.id, value=inline(1), place=one.at, at=record.updated_at) for one in record.interrupts or ()
        ]
        assert await words.answer(run, answers) is False  # no worker holds it any more: its record decides
        await troupe.members[0].actor._carrier.interrupts._recorded(run, answers)
        await words.look(run)
        await troupe.members[0].actor._commands.settle(run)
        assert result_of(await troupe.ended(run)) == [["left", 1, "left"], ["right", 1, "right"]]
        await invariants.check(bus, [run])


@pytest.mark.parametrize("queued", [False, True], ids=["asks", "queued"])
async def test_an_answer_said_to_a_worker_that_did_not_take_it_comes_before_later_ones(
    settings: BrokerSettings, bus: Bus, queued: bool
) -> None:
    """It stands in the log, under a state of before, and the record does not have it yet."""
    async with company(settings, bus, AGENTS, lease_s=20.0, patience_s=0.2) as troupe:
        run = await troupe.submit("pair")
        record = await asking(troupe, run)
        if queued:
            await troupe.members[1].stop()
            await troupe.submitter.resume(run, [Answer(id="right", value=inline(2))])
        place = next(one.at for one in record.interrupts or () if one.id == "left")
        said = Answer(id="left", value=inline(1), place=place, at=record.updated_at)
        loaded = await troupe.log.require(run)
        word = Word(key="k/left", at=record.updated_at, answer=said)
        await troupe.log.append(run, "said", encode(word), loaded.sequence)
        with pytest.raises(InterruptAnswered):
            await troupe.submitter.resume(run, [Answer(id="left", value=inline(7))])
        await troupe.submitter.resume(run, [Answer(id="left", value=inline(1))])
        if queued:
            await troupe.worker(*AGENTS)
        else:
            await troupe.submitter.resume(run, [Answer(id="right", value=inline(2))])
        assert result_of(await troupe.ended(run)) == [["left", 1, "left"], ["right", 2, "right"]]
        await invariants.check(bus, [run])


async def test_an_answer_that_was_accepted_is_accepted_again_when_the_run_has_ended_without_it(troupe: Company) -> None:
    """Its worker was told, and was gone before it took it."""
    run = await troupe.submit("pair")
    record = await asking(troupe, run)
    said = Answer(id="left", value=inline(1), place="", at=record.updated_at)
    loaded = await troupe.log.require(run)
    await troupe.log.append(run, "said", encode(Word(key="k", at=record.updated_at, answer=said)), loaded.sequence)
    await troupe.submitter.cancel(run)
    await troupe.ended(run)
    assert (await troupe.submitter.resume(run, [Answer(id="left", value=inline(1))])).status is Status.CANCELED
    for other in (Answer(id="left", value=inline(2)), Answer(id="right", value=inline(1))):
        with pytest.raises(IllegalTransition):
            await troupe.submitter.resume(run, [other])


@dataclass
class Plan:
    size: int = 1
    names: list[str] = field(default_factory=list)


@pytest.mark.parametrize("typed", [True, False])
async def test_an_answer_edits_the_state_in_every_attempt(settings: BrokerSettings, bus: Bus, typed: bool) -> None:
    @agent("planner", state=Plan if typed else None)
    async def planner(ctx: Context) -> list[Any]:
        plan = ctx.state
        if not (plan.names if typed else plan):  # behind a checkpoint the code knows by its state what it has done
            await ctx.interrupt(id="first")
            await ctx.checkpoint()
        await ctx.interrupt(id="second")
        return [plan.size, plan.names] if typed else [plan["size"], plan["names"]]

    async with company(settings, bus, [planner], lease_s=20.0, patience_s=0.2) as found:
        run = await found.submit("planner")
        for name, update in (("first", {"size": 3, "names": ["a"]}), ("second", {"names": ["b"]})):
            await eventually(partial(_is_open, found, run, name))
            await found.submitter.resume(run, [Answer(id=name, update=inline(update))])
        assert result_of(await found.ended(run)) == [3, ["b"]]
        run = await found.submit("planner")
        await asking(found, run)
        await found.submitter.resume(run, [Answer(update=inline({"colour": "red"} if typed else {"size": [1]}))])
        if typed:
            record = await found.ended(run)
            assert (record.error and record.error.code) == "invalid_input"


async def _is_open(found: Company, run: str, name: str) -> bool:
    record = await found.record(run)
    return record.status is Status.INPUT_REQUIRED and [one.id for one in record.interrupts or ()] == [name]
