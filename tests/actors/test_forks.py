"""Runs that begin from a checkpoint of another run: what their records say, where they work, what they leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from callboard.actors.agent import Agent, agent
from callboard.actors.audit import audit
from callboard.actors.coordinator import turns
from callboard.actors.engine import Context
from callboard.actors.graph import END, START, Graph, append
from callboard.store.blobs import Blobs
from callboard.store.checkpoints import Checkpoints
from callboard.store.checkpoints.prune import Choice
from callboard.store.deadletters import DeadLetters
from callboard.store.errors import CheckpointMissing
from callboard.store.submit import require_taken
from callboard.store.threads import Threads
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import IdempotencyConflict, InvalidInput, NotFound, ThreadBusy
from callboard.topics.messages import (
    NOTHING,
    Cell,
    Checkpoint,
    Entry,
    Fork,
    RunRecord,
    Status,
    SubmitReply,
    TaskRequest,
    ThreadHead,
    ThreadMessage,
    Tip,
    encode,
)

from .company import Company, company, eventually, result_of
from .test_turns import record as turn_record


@agent("keeper", version="1")
async def keeper(ctx: Context, value: Any) -> Any:
    """Says what it has, after a while if that is asked for."""
    if isinstance(value, dict) and (seconds := value.get("sleep")):
        await asyncio.sleep(seconds)
    if isinstance(value, dict) and value.get("fails"):
        raise ValueError("no good")
    return value


@pytest.fixture
async def all_(settings: BrokerSettings, bus: Bus) -> AsyncIterator[Company]:
    async with company(settings, bus, [keeper]) as found:
        yield found


async def saved(bus: Bus, run: str, kind: str = "checkpoint", **fields: Any) -> int:
    """A checkpoint of a run, by hand: its id."""
    found = Checkpoint(attempt=1, n=1, source="code", agent="keeper", put={"x": Cell(json=msgspec.Raw(b"1"))}, **fields)
    return await bus.write(bus.subjects.event(run, kind), encode(found))


async def forked(all_: Company, run: str, checkpoint: int = 0, value: Any = None, **options: Any) -> SubmitReply:
    """The answer to a request for a fork; `as_node` and `edit` belong to the fork."""
    edit, as_node = options.pop("edit", None), options.pop("as_node", None)
    request = TaskRequest(fork=Fork(run=run, checkpoint=checkpoint, as_node=as_node), **options)
    data = None if value is None else msgspec.json.encode(value)
    return await all_.submitter.submit(request, data, update=None if edit is None else msgspec.json.encode(edit))


async def test_a_fork_has_what_the_run_had_and_says_where_it_comes_from(all_: Company, bus: Bus) -> None:
    source = await all_.run("keeper", {"a": 1})
    first, second = await saved(bus, source.id, fingerprint="f"), await saved(bus, source.id)
    newest = await all_.ended((await forked(all_, source.id)).run or "")
    older = await all_.ended((await forked(all_, source.id, first, {"b": 2}, edit={"x": 7}, as_node="n")).run or "")
    assert result_of(newest) == {"a": 1}
    assert result_of(older) == {"b": 2}
    assert newest.forked_from == Fork(run=source.id, checkpoint=second)
    fork = older.forked_from
    assert fork is not None
    assert (fork.run, fork.checkpoint, fork.as_node, fork.anew) == (source.id, first, "n", True)
    assert fork.update is not None
    assert (newest.agent, newest.parent, newest.root, newest.attempt) == ("keeper", None, newest.id, 1)
    assert (await all_.states(newest.id))[0].reason == f"begins from checkpoint {second} of run {source.id}"
    assert (await all_.record(source.id)) == source


async def test_a_large_edit_travels_by_reference(all_: Company, bus: Bus) -> None:
    source = await all_.run("keeper", 1)
    await saved(bus, source.id)
    reply = await forked(all_, source.id, edit={"x": "y" * 200_000})
    fork = (await all_.record(reply.run or "")).forked_from
    assert fork is not None
    assert fork.update is not None
    assert fork.update.ref is not None
    assert fork.update.ref.size > 200_000


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"run": "1m8m2athk2hxhsmwas27c3x7"}, NotFound, "no run"),
        ({"checkpoint": 3}, CheckpointMissing, "no checkpoint 3"),
        ({"checkpoint": -1}, InvalidInput, "cannot be"),
        ({"agent": "other"}, InvalidInput, "is one of agent 'keeper'"),
        ({"topic": "t"}, InvalidInput, "leave the topic out"),
        ({"as_node": "n"}, InvalidInput, "give the update"),
        ({"as_node": "n", "edit": {"x": 2}}, InvalidInput, "agent 'keeper' is no graph"),
        ({"edit": [1]}, InvalidInput, "an update is an object"),
    ],
)
async def test_what_cannot_be_forked(all_: Company, bus: Bus, options: dict[str, Any], error: Any, match: str) -> None:
    source = await all_.run("keeper", 1)
    await saved(bus, source.id)
    asked = {"run": source.id} | options
    with pytest.raises(error, match=match):
        await forked(all_, asked.pop("run"), **asked)


async def test_a_checkpoint_that_is_gone_of_a_subgraph_or_never_was_is_refused(all_: Company, bus: Bus) -> None:
    source = await all_.run("keeper", 1)
    with pytest.raises(CheckpointMissing, match="has no checkpoint to fork from"):
        await forked(all_, source.id)
    below = await saved(bus, source.id, "checkpoint@inner", ns="inner")
    with pytest.raises(InvalidInput, match="of subgraph inner"):
        await forked(all_, source.id, below)
    other = await all_.run("keeper", 1)
    with pytest.raises(CheckpointMissing):
        await forked(all_, source.id, await saved(bus, other.id))
    gone = await saved(bus, source.id)
    await bus.api(f"STREAM.MSG.DELETE.{bus.subjects.events}", {"seq": gone, "no_erase": True})
    with pytest.raises(CheckpointMissing, match="pruned"):
        await forked(all_, source.id, gone)


async def test_a_repeated_request_gives_the_same_run_also_when_the_checkpoint_is_gone(all_: Company, bus: Bus) -> None:
    source = await all_.run("keeper", 1)
    number = await saved(bus, source.id)
    first = await forked(all_, source.id, key="k")
    later = await saved(bus, source.id)
    for sequence in (number, later):
        await bus.api(f"STREAM.MSG.DELETE.{bus.subjects.events}", {"seq": sequence, "no_erase": True})
    again = await forked(all_, source.id, key="k")
    assert (again.run, again.duplicate) == (first.run, True)
    assert (await all_.record(first.run or "")).forked_from == Fork(run=source.id, checkpoint=number)
    with pytest.raises(IdempotencyConflict):
        await forked(all_, source.id, number, key="k")


async def test_a_fork_of_a_pinned_run_stays_on_its_version(settings: BrokerSettings, bus: Bus) -> None:
    def pinned(version: str) -> Any:
        @agent("keeper", version=version, pin=True)
        async def work(ctx: Context, value: Any) -> str:
            return version

        return work

    async with company(settings, bus, [pinned("1")]) as all_:
        source = await all_.run("keeper")
        await saved(bus, source.id)
        await all_.worker(pinned("2"))
        same = await all_.ended((await forked(all_, source.id)).run or "")
        moved = await all_.ended((await forked(all_, source.id, version="2")).run or "")
        assert (result_of(same), same.version, same.pin) == ("1", "1", True)
        assert (result_of(moved), moved.version, moved.pin) == ("2", "2", True)


# -- threads ----------------------------------------------------------------------------------------------------


async def tip(bus: Bus, thread: str) -> Tip | None:
    return (await Threads(bus).head(thread)).order.state


async def test_the_state_of_a_thread_is_that_of_the_fork_from_its_turn_on(all_: Company, bus: Bus) -> None:
    """A run that comes next begins from what the fork has left, and the one before it from what was there."""
    source = await all_.run("keeper", 1, thread="t1")
    number = await saved(bus, source.id)
    busy = await all_.submit("keeper", {"sleep": 0.6}, thread="t1")
    await all_.reaches(busy, Status.RUNNING)
    reply = await forked(all_, source.id, number, {"sleep": 0.5})
    assert (reply.thread, reply.turn and reply.turn.did) == ("t1", "queued")
    after = await all_.submit("keeper", 1, thread="t1")
    assert await tip(bus, "t1") is None
    await all_.reaches(reply.run or "", Status.RUNNING)
    assert await tip(bus, "t1") == Tip(run=reply.run or "", checkpoint=number, agent="keeper")
    last = await all_.ended(after)
    assert last.turn is not None
    assert last.turn.tip == Tip(run=reply.run or "", checkpoint=number, agent="keeper")
    assert (await all_.record(busy)).turn.tip is None  # type: ignore[union-attr]


async def test_a_fork_into_a_new_thread_shares_what_was_said_up_to_its_checkpoint(all_: Company, bus: Bus) -> None:
    threads = Threads(bus)
    source = await all_.run("keeper", 1, thread="t1")
    await threads.append("t1", ThreadMessage(role="user", content=NOTHING))
    number = await saved(bus, source.id)
    await threads.append("t1", ThreadMessage(role="user", content=NOTHING))
    reply = await forked(all_, source.id, number, policy="fork")
    run = reply.run or ""
    await all_.ended(run)
    assert (reply.thread, reply.turn and reply.turn.origin) == (run, "t1")
    assert [one.sequence < number for one in await threads.messages(run)] == [True]
    assert len(await threads.messages("t1")) == 2

    async def left() -> bool:
        return (await threads.head(run)).order.active is None

    await eventually(left)
    assert await tip(bus, run) == Tip(run=run, checkpoint=number, agent="keeper")
    assert await tip(bus, "t1") is None


async def test_a_fork_of_a_run_without_a_thread_gets_a_new_one_when_that_is_asked_for(all_: Company, bus: Bus) -> None:
    source = await all_.run("keeper", 1)
    await saved(bus, source.id)
    alone = await forked(all_, source.id)
    apart, other = await forked(all_, source.id, policy="fork"), await forked(all_, source.id, thread="t7")
    assert (alone.thread, apart.thread, other.thread) == (None, apart.run, "t7")
    assert [result_of(await all_.ended(one.run or "")) for one in (alone, apart, other)] == [1, 1, 1]


async def test_policies_hold_for_forks(all_: Company, bus: Bus) -> None:
    """One that is to replace the run at work does; one that is rejected leaves no trace in the thread; one that is
    rolled back leaves the thread's state as it was."""
    source = await all_.run("keeper", 1, thread="t1")
    number = await saved(bus, source.id)
    busy = await all_.submit("keeper", {"sleep": 5}, thread="t1")
    await all_.reaches(busy, Status.RUNNING)
    with pytest.raises(ThreadBusy):
        require_taken(await forked(all_, source.id, policy="reject"))
    taking = await forked(all_, source.id, number, {"sleep": 5}, policy="interrupt")
    assert (await all_.ended(busy)).status is Status.INTERRUPTED
    await all_.reaches(taking.run or "", Status.RUNNING)
    rolling = await forked(all_, source.id, number, 1, policy="rollback")
    assert (await all_.ended(taking.run or "")).status is Status.ROLLED_BACK
    ended = await all_.ended(rolling.run or "")
    assert ended.turn is not None
    assert ended.turn.tip is None
    assert await tip(bus, "t1") == Tip(run=ended.id, checkpoint=number, agent="keeper")


async def test_a_run_that_was_interrupted_leaves_its_newest_checkpoint(all_: Company, bus: Bus) -> None:
    run = await all_.submit("keeper", {"sleep": 30}, thread="t1")
    await all_.reaches(run, Status.RUNNING)
    number = await saved(bus, run)
    await all_.submitter.cancel(run, action="interrupt")
    assert (await all_.ended(run)).status is Status.INTERRUPTED
    after = await all_.run("keeper", 1, thread="t1")
    assert after.turn is not None
    assert after.turn.tip == Tip(run=run, checkpoint=number, agent="keeper")


# -- the head, as a pure function -------------------------------------------------------------------------------

BEFORE, BEGAN = Tip(run="p", checkpoint=3, agent="a"), Tip(run="r", checkpoint=5, agent="a")


def ended(status: Status, **fields: Any) -> RunRecord:
    fields = {"status": status, "agent": "a", "attempt": 1} | fields
    return msgspec.structs.replace(turn_record("enqueue"), **fields)


@pytest.mark.parametrize(
    ("record", "checkpoint", "left"),
    [
        (ended(Status.COMPLETED), 9, Tip(run="r", checkpoint=9, agent="a")),
        (ended(Status.INTERRUPTED), 9, Tip(run="r", checkpoint=9, agent="a")),
        (ended(Status.COMPLETED), 0, None),
        (ended(Status.FAILED), 9, None),
        (ended(Status.ROLLED_BACK, forked_from=Fork(run="p", checkpoint=5)), 9, None),
        (ended(Status.FAILED, forked_from=Fork(run="p", checkpoint=5)), 9, BEGAN),
        (ended(Status.CANCELED, forked_from=Fork(run="p", checkpoint=5), attempt=0), 0, None),
    ],
)
def test_what_a_run_leaves_as_the_state_of_its_thread(record: RunRecord, checkpoint: int, left: Tip | None) -> None:
    assert turns.tip_of(record, checkpoint) == left
    head = ThreadHead(active=Entry("r", "enqueue"), tip=BEFORE)
    assert turns.leave(head, ["r"], [], {"r": left}).tip == (left or BEFORE)
    assert turns.leave(head, ["x"], [], {"r": left}) is head


def test_a_fork_that_waits_is_not_the_state_of_its_thread_yet() -> None:
    head = ThreadHead(active=Entry("q", "enqueue"), tip=BEFORE)
    waits = turns.join(head, "r", "enqueue", BEGAN).head
    assert waits.state == BEFORE
    at_work = turns.leave(waits, ["q"], ["q"])
    assert (at_work.state, at_work.tip) == (BEGAN, BEFORE)
    assert msgspec.json.decode(encode(at_work), type=ThreadHead) == at_work


# -- with states ------------------------------------------------------------------------------------------------


class Talk(TypedDict, total=False):
    said: Annotated[list[str], append]
    mood: str


def talk() -> Agent[Any]:
    graph = Graph(Talk)

    async def answer(state: Talk) -> Talk:
        return {"said": [f"answer {len(state['said'])}, {state.get('mood', 'calm')}"]}

    return graph.node("answer", answer).chain(START, "answer", END).agent("talk")


async def test_a_thread_goes_on_from_the_fork_and_without_changes_it_does_the_same_again(
    settings: BrokerSettings, bus: Bus
) -> None:
    async with company(settings, bus, [talk()]) as found:
        first = await found.run("talk", {"said": ["one"]}, thread="t1")
        second = await found.run("talk", {"said": ["two"]}, thread="t1")
        assert result_of(second)["said"] == ["one", "answer 1, calm", "two", "answer 3, calm"]
        begun = (await Checkpoints(bus, Blobs(bus)).history(first.id))[-1]
        again = await found.ended((await forked(found, first.id, begun.sequence, thread="t2")).run or "")
        assert result_of(again) == result_of(first)
        fork = await found.ended((await forked(found, first.id, edit={"mood": "cross"})).run or "")
        assert result_of(fork) == {"said": ["one", "answer 1, calm"], "mood": "cross"}
        third = await found.run("talk", {"said": ["three"]}, thread="t1")
        assert result_of(third)["said"] == ["one", "answer 1, calm", "three", "answer 3, cross"]
        assert third.turn is not None
        assert third.turn.tip is not None
        assert third.turn.tip.run == fork.id
        assert result_of(await found.ended(second.id))["said"][2] == "two"
        other = await found.run("talk", {"said": ["four"]}, thread="t2")
        assert result_of(other)["said"] == ["one", "answer 1, calm", "four", "answer 3, calm"]
    assert not (await audit(bus, wait_s=0.2)).findings


async def test_an_edit_that_does_not_fit_the_state_fails_the_fork(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, [talk()]) as found:
        first = await found.run("talk", {"said": ["one"]})
        for edit in ({"mood": 7}, {"nothing": 1}):
            record = await found.ended((await forked(found, first.id, edit=edit)).run or "")
            assert record.status is Status.FAILED, edit
        assert (await found.record(first.id)).status is Status.COMPLETED


@dataclass
class Noted:
    word: str = "none"


@agent("noting", state=Noted)
async def noting(ctx: Context, value: Any) -> str:
    await ctx.checkpoint()
    return str(ctx.state.word)


@agent("careless", state=Noted)
async def careless(ctx: Context, value: Any) -> None:
    ctx.state.word = value
    await ctx.checkpoint()


async def test_a_state_that_is_not_of_its_type_is_refused_where_it_is_saved(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, [careless]) as found:
        record = await found.run("careless", 7)
        assert record.error is not None
        assert "Expected `str`, got `int`" in record.error.message
        assert (await found.run("careless", "seven")).status is Status.COMPLETED


async def test_an_edit_of_a_field_that_the_state_does_not_have_fails_the_fork_of_a_code_agent(
    settings: BrokerSettings, bus: Bus
) -> None:
    async with company(settings, bus, [noting]) as found:
        first = await found.run("noting", 1)
        record = await found.ended((await forked(found, first.id, edit={"wrod": "x"})).run or "")
        assert record.error is not None
        assert "no field 'wrod': it has word" in record.error.message
        fork = await found.ended((await forked(found, first.id, edit={"word": "x"})).run or "")
        assert result_of(fork) == "x"


async def test_a_checkpoint_that_was_pruned_is_refused_and_one_that_a_fork_needs_stays(
    settings: BrokerSettings, bus: Bus
) -> None:
    async with company(settings, bus, [talk()]) as found:
        first = await found.run("talk", {"said": ["one"]})
        checkpoints = Checkpoints(bus, Blobs(bus))
        _, oldest = await checkpoints.history(first.id)
        fork = await forked(found, first.id, oldest.sequence, key="kept")
        await found.ended(fork.run or "")
        await checkpoints.prune(first.id, Choice(keep=1))
        assert await checkpoints.load(first.id, oldest.id) is not None
        other = await found.run("talk", {"said": ["one"]})
        gone = (await checkpoints.history(other.id))[-1]
        await checkpoints.prune(other.id, Choice(keep=1))
        with pytest.raises(CheckpointMissing, match="pruned"):
            await forked(found, other.id, gone.sequence)


async def commanded(bus: Bus, run: str, body: Any) -> Any:
    """The answer to a command `fork` from any client."""
    data = json.dumps({"run": run, "verb": "fork", **body}).encode()
    return json.loads((await bus.request(f"{bus.subjects.rpc}.command", data, timeout_s=5)).data)


async def test_a_fork_is_a_command_that_is_durable_and_carried_out_once(
    all_: Company, bus: Bus, settings: BrokerSettings
) -> None:
    source = await all_.run("keeper", {"a": 1})
    first, second = await saved(bus, source.id), await saved(bus, source.id)
    task = {"run": "of-its-own", "fork": {"checkpoint": first, "anew": True}, "input": {"b": 2}, "metadata": {"k": "v"}}
    for body in (b"", json.dumps({"task": task}).encode(), json.dumps({"task": task}).encode()):
        await bus.store(f"{settings.namespace}.cmd.{source.id}.fork", body)
    named = await all_.ended("of-its-own")
    assert (result_of(named), named.metadata) == ({"b": 2}, {"k": "v"})
    assert named.forked_from == Fork(run=source.id, checkpoint=first, anew=True)

    async def found() -> list[str]:
        """The forks, each of which holds the checkpoint that it began from."""
        return sorted((await Checkpoints(bus, Blobs(bus)).labels.of(source.id)).holds)

    async def both() -> bool:
        return len(await found()) == 2

    await eventually(both)
    plain = next(run for run in await found() if run != named.id)
    assert (await all_.ended(plain)).forked_from == Fork(run=source.id, checkpoint=second)
    answer = await commanded(bus, source.id, {"key": "k", "task": {"fork": {"checkpoint": second}}})
    again = await commanded(bus, source.id, {"key": "k", "task": {"fork": {"checkpoint": second}}})
    assert answer["record"]["id"] == again["record"]["id"]
    assert answer["record"]["id"] not in (named.id, plain)
    assert len(await found()) == 3
    assert result_of(await all_.ended(answer["record"]["id"])) == {"a": 1}


@pytest.mark.parametrize(
    ("task", "code"),
    [
        ({"fork": {"run": "another"}}, "invalid_input"),
        ({"fork": {"checkpoint": 3}}, "checkpoint_missing"),
        ({"topic": "t"}, "invalid_input"),
        ({"fork": {"update": {"json": {}}, "as_node": "n"}}, "invalid_input"),
    ],
)
async def test_a_fork_that_cannot_be_made_is_an_answer_or_a_dead_letter(
    all_: Company, bus: Bus, settings: BrokerSettings, task: dict[str, Any], code: str
) -> None:
    source = await all_.run("keeper", 1)
    await saved(bus, source.id)
    assert (await commanded(bus, source.id, {"task": task}))["error"]["code"] == code
    await bus.store(f"{settings.namespace}.cmd.{source.id}.fork", json.dumps({"task": task}).encode())
    letters = DeadLetters(bus)

    async def there() -> bool:
        return [one.letter.reason.code for one in await letters.page(after=0, limit=10)] == [code]

    await eventually(there)
