"""Graphs on workers that ask, are told, are forked, and go on where their thread is."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from callboard.actors.agent import Retry, agent
from callboard.actors.answer import InterruptRejected
from callboard.actors.audit import audit
from callboard.actors.engine import Context
from callboard.actors.graph import END, START, Graph, append, interrupt
from callboard.actors.graph.ground import Durability
from callboard.store.blobs import Blobs
from callboard.store.checkpoints import Checkpoints
from callboard.store.interrupts import open_below
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.messages import Answer, Fork, Payload, RunRecord, Status, TaskRequest
from tests.actors.company import Company, company, eventually, result_of


class Talk(TypedDict, total=False):
    text: str
    log: Annotated[list[str], append]


def inline(value: Any) -> Payload:
    return Payload(json=msgspec.Raw(msgspec.json.encode(value)))


async def forked(
    all_: Company, run: str, checkpoint: int, value: Any = None, edit: Any = None, **more: Any
) -> RunRecord:
    """The ended fork of a run."""
    update = None if edit is None else msgspec.json.encode(edit)
    request = TaskRequest(fork=Fork(run=run, checkpoint=checkpoint, **more))
    reply = await all_.submitter.submit(request, None if value is None else msgspec.json.encode(value), update=update)
    return await all_.ended(reply.run or "")


async def clean(bus: Bus) -> None:
    report = await audit(bus, wait_s=1.0, blobs=True)
    assert report.clean, report.findings


async def open_of(all_: Company, run: str) -> list[str]:
    record = await all_.reaches(run, Status.INPUT_REQUIRED)
    return [one.id for one in record.interrupts or ()]


def asking(done: Counter[str]) -> Graph[Any]:
    """draft → (review asks, other beside it) → publish."""
    graph = Graph(Talk)

    @graph.node
    async def draft(state: Talk, ctx: Context) -> dict[str, Any]:
        done["draft"] += 1
        return {"text": await ctx.step(lambda: "a draft", name="write")}

    @graph.node
    async def review(state: Talk, ctx: Context) -> dict[str, Any]:
        done["review"] += 1
        await ctx.step(lambda: done.update(["looked"]), name="look")
        verdict = interrupt({"text": state["text"]}, id="verdict")
        signed = interrupt("sign", id="signature")
        return {"log": [f"{verdict} by {signed}"]}

    @graph.node
    def other(state: Talk) -> dict[str, Any]:
        done["other"] += 1
        return {"log": ["other"]}

    @graph.node
    async def publish(state: Talk) -> dict[str, Any]:
        done["publish"] += 1
        return {"log": [f"published {state['text']}"]}

    graph.edge(START, "draft").edge("draft", "review").edge("draft", "other")
    graph.join(["review", "other"], "publish").edge("publish", END)
    return graph


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_node_asks_and_the_run_is_gone_until_it_is_answered(
    settings: BrokerSettings, bus: Bus, durability: Durability
) -> None:
    done: Counter[str] = Counter()
    async with company(settings, bus, [asking(done).agent("asking", durability=durability)]) as all_:
        run = await all_.submit("asking", {})
        assert await open_of(all_, run) == ["verdict"]
        assert done == {"draft": 1, "looked": 1, "review": 1, "other": 1}
        await all_.submitter.resume(run, [Answer(id="verdict", value=inline("good"))])
        await eventually(lambda: done["review"] == 2)
        assert await open_of(all_, run) == ["signature"]
        await all_.submitter.resume(run, [Answer(value=inline("Ada"))])
        record = await all_.ended(run)
        assert result_of(record) == {"text": "a draft", "log": ["good by Ada", "other", "published a draft"]}
        assert done == {"draft": 1, "looked": 1, "review": 3, "other": 1, "publish": 1}
        await clean(bus)


async def test_an_answer_edits_the_state(settings: BrokerSettings, bus: Bus) -> None:
    """The edit is in the state when the node begins again, and in what is saved after it."""
    graph = Graph(Talk)

    @graph.node
    async def ask(state: Talk) -> dict[str, Any]:
        answer = interrupt("how?")
        return {"log": [f"{answer}: {state['text']}"]}

    graph.edge(START, "ask").edge("ask", END)
    async with company(settings, bus, [graph.agent("edited")]) as all_:
        run = await all_.submit("edited", {"text": "before", "log": ["begin"]})
        await all_.reaches(run, Status.INPUT_REQUIRED)
        update = inline({"text": "after", "log": ["edited"]})
        await all_.submitter.resume(run, [Answer(value=inline("so"), update=update)])
        record = await all_.ended(run)
        expected = {"text": "after", "log": ["begin", "edited", "so: after"]}
        assert result_of(record) == expected
        state = await Checkpoints(bus, Blobs(bus)).load(run)
        assert state is not None
        assert state.values == expected
        await clean(bus)


async def test_a_rejected_question_raises_in_the_node(settings: BrokerSettings, bus: Bus) -> None:
    graph = Graph(Talk)

    @graph.node
    async def ask(state: Talk) -> dict[str, Any]:
        try:
            interrupt("may I?")
        except InterruptRejected as error:
            return {"log": [error.answer.action]}
        return {}

    graph.edge(START, "ask").edge("ask", END)
    async with company(settings, bus, [graph.agent("rejected")]) as all_:
        run = await all_.submit("rejected", {})
        await all_.reaches(run, Status.INPUT_REQUIRED)
        await all_.submitter.resume(run, [Answer(action="reject")])
        assert result_of(await all_.ended(run))["log"] == ["reject"]


async def test_questions_of_parallel_nodes_and_of_a_subgraph_are_open_at_once(
    settings: BrokerSettings, bus: Bus
) -> None:
    done: Counter[str] = Counter()
    inner = Graph(Talk)

    @inner.node
    async def before(state: Talk) -> dict[str, Any]:
        done["before"] += 1
        return {"log": ["before"]}

    @inner.node
    async def within(state: Talk) -> dict[str, Any]:
        done["within"] += 1
        return {"log": [interrupt("inner", id="inner")]}

    inner.chain(START, "before", "within", END)
    outer = Graph(Talk)
    outer.node("part", inner)

    @outer.node
    async def ask(state: Talk) -> dict[str, Any]:
        done["ask"] += 1
        return {"text": interrupt("outer", id="outer")}

    outer.edge(START, "part").edge(START, "ask").edge("part", END).edge("ask", END)
    async with company(settings, bus, [outer.agent("outer")]) as all_:
        run = await all_.submit("outer", {"log": []})
        assert sorted(await open_of(all_, run)) == ["inner", "outer"]
        answers = [Answer(id="outer", value=inline("o")), Answer(id="inner", value=inline("i"))]
        await all_.submitter.resume(run, answers)
        assert result_of(await all_.ended(run)) == {"log": ["before", "i"], "text": "o"}
        assert done == {"before": 1, "within": 2, "ask": 2}
        await clean(bus)


async def test_stops_before_and_after_a_node(settings: BrokerSettings, bus: Bus) -> None:
    graph = Graph(Talk)

    async def act(state: Talk) -> dict[str, Any]:
        return {"log": ["acted"]}

    graph.node("act", act, interrupt_before=True, interrupt_after=True).chain(START, "act", END)
    async with company(settings, bus, [graph.agent("stops")]) as all_:
        run = await all_.submit("stops", {})
        assert len(await open_of(all_, run)) == 1
        await all_.submitter.resume(run, [Answer(action="approve")])
        store = Checkpoints(bus, Blobs(bus))

        async def acted() -> bool:
            saved = await store.newest(run)
            return saved is not None and saved.checkpoint.step == 1

        await eventually(acted)
        assert len(await open_of(all_, run)) == 1
        await all_.submitter.resume(run, [Answer(action="approve")])
        assert result_of(await all_.ended(run))["log"] == ["acted"]
        await clean(bus)


async def test_what_is_said_goes_into_the_inbox_channel_once(settings: BrokerSettings, bus: Bus) -> None:
    gate = asyncio.Event()
    graph = Graph(Talk, inbox="log")

    @graph.node
    async def wait(state: Talk) -> dict[str, Any]:
        await gate.wait()
        return {"log": ["waited"]}

    @graph.node
    async def fails(state: Talk) -> dict[str, Any]:
        if not state.get("text"):
            raise OSError("once")
        return {}

    @graph.node
    async def ask(state: Talk) -> dict[str, Any]:
        return {"text": interrupt("go on?")}

    graph.chain(START, "wait", "ask", "fails", END)
    async with company(settings, bus, [graph.agent("hears")]) as all_:
        run = await all_.submit("hears", {})
        await all_.reaches(run, Status.RUNNING)
        await all_.submitter.say(run, inline("hello"))
        gate.set()
        await all_.reaches(run, Status.INPUT_REQUIRED)
        await all_.submitter.say(run, inline("again"))
        await all_.submitter.resume(run, [Answer(value=inline("yes"))])
        assert result_of(await all_.ended(run)) == {"log": ["waited", "hello", "again"], "text": "yes"}
        await clean(bus)


async def test_a_fork_goes_on_from_a_checkpoint_with_an_edit(settings: BrokerSettings, bus: Bus) -> None:
    done: Counter[str] = Counter()
    graph = Graph(Talk)
    for name in ("one", "two", "three"):

        def act(state: Talk, name: str = name) -> dict[str, Any]:
            done[name] += 1
            return {"log": [f"{name} {state['text']}"]}

        graph.node(name, lambda state, act=act: act(state))
    graph.chain(START, "one", "two", "three", END)
    async with company(settings, bus, [graph.agent("forked")]) as all_:
        first = await all_.run("forked", {"text": "a"})
        history = await Checkpoints(bus, Blobs(bus)).history(first.id)
        after_one = next(saved for saved in history if saved.checkpoint.step == 1)
        second = await forked(all_, first.id, after_one.sequence, edit={"text": "b"})
        assert result_of(second) == {"text": "b", "log": ["one a", "two b", "three b"]}
        assert done == {"one": 1, "two": 2, "three": 2}
        saved = await Checkpoints(bus, Blobs(bus)).history(second.id)
        assert [one.checkpoint.source for one in saved] == ["loop", "loop", "fork"]
        assert saved[-1].parent == after_one.id
        third = await forked(all_, first.id, after_one.sequence, edit={"text": "c"}, as_node="two")
        assert result_of(third) == {"text": "c", "log": ["one a", "three c"]}
        fourth = await forked(all_, first.id, after_one.sequence, {"text": "d"})
        assert result_of(fourth) == {"text": "d", "log": ["one a", "one d", "two d", "three d"]}
        await clean(bus)


async def test_a_thread_keeps_the_state_of_its_runs(settings: BrokerSettings, bus: Bus) -> None:
    graph = Graph(Talk)

    @graph.node
    async def answer(state: Talk) -> dict[str, Any]:
        return {"log": [f"answer {len(state['log'])}"]}

    graph.edge(START, "answer").edge("answer", END)
    async with company(settings, bus, [graph.agent("chat")]) as all_:
        records = [await all_.run("chat", {"log": [f"turn {turn}"]}, thread="t1") for turn in range(3)]
        expected = ["turn 0", "answer 1", "turn 1", "answer 3", "turn 2", "answer 5"]
        assert result_of(records[-1])["log"] == expected
        alone = await all_.run("chat", {"log": ["alone"]}, thread="t2")
        assert result_of(alone)["log"] == ["alone", "answer 1"]
        await clean(bus)


async def test_a_node_is_retried_with_its_answer(settings: BrokerSettings, bus: Bus) -> None:
    """An answered question never fires again, whatever becomes of the attempt that has taken it."""
    tries: list[str] = []
    graph = Graph(Talk)

    @graph.node
    async def ask(state: Talk) -> dict[str, Any]:
        answer = interrupt("which?", returns=str)
        tries.append(answer)
        if len(tries) < 3:
            raise OSError("not yet")
        return {"log": [answer]}

    graph.edge(START, "ask").edge("ask", END)
    retries = Retry(max_attempts=5, initial=timedelta(milliseconds=10), on=(OSError,))
    async with company(settings, bus, [graph.agent("tries", retries=retries)]) as all_:
        run = await all_.submit("tries", {})
        await all_.reaches(run, Status.INPUT_REQUIRED)
        await all_.submitter.resume(run, [Answer(value=inline("this"))])
        assert result_of(await all_.ended(run))["log"] == ["this"]
        assert tries == ["this"] * 3
        await clean(bus)


async def test_the_state_of_a_parked_run_is_edited_as_if_by_a_node(settings: BrokerSettings, bus: Bus) -> None:
    """The run goes on after that node when it is answered: what was asked is behind it."""
    done: Counter[str] = Counter()
    async with company(settings, bus, [asking(done).agent("asking")]) as all_:
        run = await all_.submit("asking", {})
        assert await open_of(all_, run) == ["verdict"]
        store = Checkpoints(bus, Blobs(bus))
        await store.update_state(run, {"text": "edited"})
        await all_.submitter.resume(run, [Answer(id="verdict", value=inline("good"))])
        await eventually(lambda: done["review"] == 2)
        await open_of(all_, run)
        await store.update_state(run, {"text": "edited again", "log": ["by hand"]}, as_node="publish")
        await all_.submitter.resume(run, [Answer(value=inline("Ada"))])
        assert result_of(await all_.ended(run)) == {"text": "edited again", "log": ["by hand"]}
        assert (done["looked"], done["publish"]) == (1, 0)
        await clean(bus)


async def test_a_node_that_comes_by_again_asks_under_an_id_of_that_superstep(
    settings: BrokerSettings, bus: Bus
) -> None:
    graph = Graph(Talk)
    graph.node("ask", lambda state: {"log": interrupt(id="ok?")}, inline=True).edge(START, "ask")
    graph.branch("ask", lambda state: END if state["log"][-1] == "end" else "ask", ["ask", END])
    async with company(settings, bus, [graph.agent("loop")]) as all_:
        run = await all_.submit("loop", {})
        for name, word in (("ok?", "on"), ("ok?@2", "on"), ("ok?@3", "end")):
            await eventually(partial(asks, all_, run, name))
            await all_.submitter.resume(run, [Answer(id=name, value=inline(word))])
        assert result_of(await all_.ended(run))["log"] == ["on", "on", "end"]
        await clean(bus)


async def asks(all_: Company, run: str, name: str) -> bool:
    return [one.id for one in (await all_.record(run)).interrupts or ()] == [name]


async def _is_open(bus: Bus, run: str, name: str) -> bool:
    return name in [one.interrupt.id for one in await open_below(bus, run)]


def twice() -> Graph[Any]:
    """Two nodes run one subgraph, which asks by `interrupt` and then by `ctx.interrupt`."""
    inner = Graph(Talk, name="inner")

    @inner.node
    async def ask(state: Talk, ctx: Context) -> dict[str, Any]:
        first = interrupt("first?", id="first")
        return {"log": f"{first}, {await ctx.interrupt('second?', id='second')}"}

    inner.chain(START, "ask", END)
    graph = Graph(Talk)
    for name in ("a", "b"):
        graph.node(name, inner).chain(START, name, END)
    return graph


async def test_a_subgraph_that_two_nodes_run_at_once_asks_for_each(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus, [twice().agent("twice")]) as all_:
        run = await all_.submit("twice", {})
        for names in (["first", "first@1"], ["second", "second@1"]):
            assert await open_of(all_, run) == names
            await all_.submitter.resume(run, [Answer(id=name, value=inline(name)) for name in names])
            await eventually(partial(goes_on, all_, run, names))
        assert result_of(await all_.ended(run))["log"] == ["first, second", "first@1, second@1"]
        await clean(bus)


async def goes_on(all_: Company, run: str, names: list[str]) -> bool:
    record = await all_.record(run)
    return record.terminal or [one.id for one in record.interrupts or ()] not in ([], names)


@agent("clerk")
async def clerk(ctx: Context, value: Any) -> str:
    return str(await ctx.interrupt("clerk?", id="clerk"))


@pytest.mark.parametrize("durability", ["sync", "exit"])
async def test_a_question_does_not_wait_for_nodes_beside_it_that_wait_themselves(
    settings: BrokerSettings, bus: Bus, durability: Durability
) -> None:
    done: Counter[str] = Counter()
    graph = Graph(Talk)

    @graph.node
    async def held(state: Talk, ctx: Context) -> dict[str, Any]:
        return {"log": await ctx.interrupt("held?", id="held")}

    @graph.node("asks")
    def ask(state: Talk) -> dict[str, Any]:
        done["asks"] += 1
        return {"log": interrupt("asks?", id="asks")}

    @graph.node
    async def quick(state: Talk) -> dict[str, Any]:
        done["quick"] += 1
        return {"log": "quick"}

    graph.node("child", clerk, takes="text", gives=lambda word: {"log": word})
    for name in ("held", "asks", "quick", "child"):
        graph.chain(START, name, END)
    async with company(settings, bus, [clerk, graph.agent("mixed", durability=durability)]) as all_:
        run = await all_.submit("mixed", {"text": "x"})
        assert sorted(await open_of(all_, run)) == ["asks", "held"]
        await all_.submitter.resume(run, [Answer(id="asks", value=inline("A"))])
        await eventually(partial(asks, all_, run, "held"))
        await all_.submitter.resume(run, [Answer(id="held", value=inline("H"))])
        await eventually(partial(_is_open, bus, run, "clerk"))  # its run may not have come to ask yet
        await all_.submitter.resume(run, [Answer(id="clerk", value=inline("C"))])
        assert result_of(await all_.ended(run))["log"] == ["H", "A", "quick", "C"]
        assert done["quick"] == 1 or durability == "exit"
        await clean(bus)
