"""`ctx.state` and `ctx.checkpoint()`: a long loop goes on where it was, whatever lies before."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

from msgspec import Raw

from callboard.actors.agent import Agent, Retry, Retryable, agent
from callboard.actors.engine import Context
from callboard.store.blobs import Blobs
from callboard.store.checkpoints import Checkpoints
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import Payload, Status
from tests.actors.company import company, result_of

SOON = Retry(max_attempts=4, initial=timedelta(milliseconds=10), on=(Retryable,))


def loop_agent(done: list[int], fails_at: set[int], every: int = 1) -> Agent[list[str]]:
    """Does `n` steps, saves every so often, and fails once at each of `fails_at`, after the step."""

    @agent("loop", retries=SOON)
    async def loop(ctx: Context, n: int) -> list[str]:
        def work(i: int) -> str:
            done.append(i)
            return f"item {i}"

        state = ctx.state
        while state.setdefault("i", 0) < n:
            i = state["i"]
            state.setdefault("items", []).append(await ctx.step(work, i))
            if i in fails_at:
                fails_at.discard(i)
                raise Retryable(f"at {i}")
            state["i"] = i + 1
            if (i + 1) % every == 0:
                await ctx.checkpoint()
        return list(state["items"])

    return loop


async def test_each_step_is_done_once_although_attempts_fail(settings: BrokerSettings, bus: Bus) -> None:
    done: list[int] = []
    async with company(settings, bus, [loop_agent(done, {0, 4, 11})]) as all_:
        record = await all_.run("loop", 15)
        assert result_of(record) == [f"item {i}" for i in range(15)]
        assert (done, record.attempt) == ([*range(15)], 4)


async def test_steps_after_the_last_checkpoint_are_remembered(settings: BrokerSettings, bus: Bus) -> None:
    """Checkpoints every five steps, failures in between: the journal after the checkpoint holds the rest."""
    done: list[int] = []
    async with company(settings, bus, [loop_agent(done, {3, 7, 13}, every=5)]) as all_:
        record = await all_.run("loop", 15)
        assert result_of(record) == [f"item {i}" for i in range(15)]
        assert done == [*range(15)]


async def test_a_checkpoint_replaces_the_journal_before_it(settings: BrokerSettings, bus: Bus) -> None:
    """The second attempt has loaded only what came after the checkpoint."""
    remembered: list[int] = []

    @agent("counts", retries=SOON)
    async def counts(ctx: Context) -> int:
        remembered.append(len(ctx._parts.journal.steps))
        while ctx.state.setdefault("i", 0) < 30:
            await ctx.step(lambda: 1, name="one")
            ctx.state["i"] += 1
            if ctx.state["i"] == 28:
                await ctx.checkpoint()
        if ctx.run.attempt == 1:
            raise Retryable("once")
        return int(ctx.state["i"])

    async with company(settings, bus, [counts]) as all_:
        assert result_of(await all_.run("counts")) == 30
        assert remembered == [0, 2]


@dataclass
class Draft:
    title: str = "untitled"
    lines: list[str] = field(default_factory=list)
    rounds: int = 0


async def test_a_typed_state_comes_back_as_its_type(settings: BrokerSettings, bus: Bus) -> None:
    seen: list[object] = []

    @agent("writer", retries=SOON, state=Draft)
    async def writer(ctx: Context) -> Draft:
        draft: Draft = ctx.state
        seen.append(Draft(draft.title, list(draft.lines), draft.rounds))
        while draft.rounds < 3:
            draft.lines.append(f"line {draft.rounds}")
            draft.title = "A draft"
            draft.rounds += 1
            await ctx.checkpoint(label="second" if draft.rounds == 2 else None)
            if ctx.run.attempt == 1 and draft.rounds == 2:
                raise Retryable("once")
        return draft

    async with company(settings, bus, [writer]) as all_:
        record = await all_.run("writer")
        lines = ["line 0", "line 1", "line 2"]
        assert result_of(record) == {"title": "A draft", "lines": lines, "rounds": 3}
        assert seen == [Draft(), Draft("A draft", lines[:2], 2)]
        history = await Checkpoints(bus, Blobs(bus)).history(record.id)
        assert [saved.checkpoint.step for saved in history] == [3, 2, 1]
        assert [saved.checkpoint.label for saved in history] == ["", "second", ""]
        assert [saved.checkpoint.source for saved in history] == ["code"] * 3


async def test_children_and_branches_after_a_checkpoint_keep_their_places(settings: BrokerSettings, bus: Bus) -> None:
    """A child that was started after the checkpoint is not started again, and branches have their own numbers."""
    started: list[int] = []

    @agent("child")
    async def child(ctx: Context, number: int) -> int:
        started.append(number)
        return number * 10

    @agent("parent", retries=SOON)
    async def parent(ctx: Context) -> list[int]:
        state = ctx.state
        while state.setdefault("round", 0) < 3:
            number = state["round"]
            both = await ctx.gather(ctx.call(child, number), ctx.step(lambda one: one + 100, number, name="add"))
            if number == 1 and ctx.run.attempt == 1:
                raise Retryable("after the child")
            state.setdefault("sums", []).append(sum(both))
            state["round"] += 1
            await ctx.checkpoint()
        return list(state["sums"])

    async with company(settings, bus, [child, parent]) as all_:
        assert result_of(await all_.run("parent")) == [100, 111, 122]
        assert started == [0, 1, 2]


async def test_a_checkpoint_in_the_wrong_place_is_refused(settings: BrokerSettings, bus: Bus) -> None:
    @agent("wrong")
    async def wrong(ctx: Context, where: str) -> str:
        if where == "task":
            await asyncio.create_task(ctx.checkpoint())
        elif where == "step":
            await ctx.step(ctx.checkpoint, name="inside")
        elif where == "while a step runs":
            task = asyncio.create_task(ctx.step(asyncio.sleep, 5, name="long"))
            await asyncio.sleep(0.05)
            try:
                await ctx.checkpoint()
            finally:
                task.cancel()
        elif where == "value":
            ctx.state["bad"] = object()
            await ctx.checkpoint()
        else:
            await ctx.checkpoint(label="no good")
        return "saved"

    codes = {}
    async with company(settings, bus, [wrong]) as all_:
        for where in ("task", "step", "while a step runs", "value", "label"):
            record = await all_.run("wrong", where)
            assert record.status is Status.FAILED
            assert record.error is not None
            codes[where] = record.error.code
            assert await Checkpoints(bus, Blobs(bus)).newest(record.id) is None
    misplaced = "checkpoint_misplaced"
    assert codes == {
        "task": misplaced, "step": misplaced, "while a step runs": misplaced, "value": "encode_error",
        "label": "invalid_subject",
    }  # fmt: skip


async def test_the_last_state_of_a_failed_run_is_where_its_retry_goes_on(settings: BrokerSettings, bus: Bus) -> None:
    done: list[int] = []
    healthy: list[bool] = []

    @agent("ill")
    async def ill(ctx: Context) -> int:
        while ctx.state.setdefault("i", 0) < 6:
            await ctx.step(lambda: done.append(ctx.state["i"]), name="work")
            if ctx.state["i"] == 4 and not healthy:
                raise ValueError("ill")
            ctx.state["i"] += 1
            if ctx.state["i"] % 2 == 0:
                await ctx.checkpoint()
        return int(ctx.state["i"])

    async with company(settings, bus, [ill]) as all_:
        first = await all_.run("ill")
        assert first.status is Status.FAILED
        healthy.append(True)
        second = await all_.ended((await all_.submitter.command(first.id, "retry")).id)
        assert result_of(second) == 6
        assert done == [0, 1, 2, 3, 4, 5]
        state = await Checkpoints(bus, Blobs(bus)).load(second.id)
        assert state is not None
        assert state.values == {"i": 6}


async def test_a_thousand_saved_steps_cost_the_next_attempt_no_more_than_ten(
    settings: BrokerSettings, bus: Bus
) -> None:
    """What is read at the beginning of an attempt does not grow with what was done before: counted in messages."""
    read: list[int] = []

    @agent("long", retries=SOON)
    async def long(ctx: Context, n: int) -> int:
        if ctx.run.attempt == 2:
            begun = ctx._parts.memory.begun
            assert begun is not None
            read.append(len(ctx._parts.journal.steps) + sum(len(level) for level in begun.levels["i"]))
        while ctx.state.setdefault("i", 0) < n:
            await ctx.step(lambda: 1, name="one")
            ctx.state["i"] += 1
            await ctx.checkpoint()
        if ctx.run.attempt == 1:
            raise Retryable("once")
        return int(ctx.state["i"])

    async with company(settings, bus, [long], keeper=True) as all_:
        for n in (10, 500):
            record = await all_.run("long", n, within_s=30)
            assert result_of(record) == n
    assert read == [1, 1]


async def test_what_was_heard_before_a_checkpoint_is_not_heard_again(settings: BrokerSettings, bus: Bus) -> None:
    @agent("listener", retries=SOON)
    async def listener(ctx: Context) -> list[str]:
        state = ctx.state
        while len(state.setdefault("words", [])) < 2:
            word = await ctx.hear()
            state["words"].append(word.content)
            await ctx.checkpoint()
            if ctx.run.attempt == 1:
                raise Retryable("once")
        return list(state["words"])

    async with company(settings, bus, [listener]) as all_:
        run = await all_.submit("listener")
        await all_.submitter.say(run, Payload(json=Raw(b'"one"')))
        await all_.submitter.say(run, Payload(json=Raw(b'"two"')))
        assert result_of(await all_.ended(run)) == ["one", "two"]
