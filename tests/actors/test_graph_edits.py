"""Edits of the state of graphs that wait, and forks of runs that are pruned, on workers."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import msgspec
import pytest

from callboard.actors.audit import audit
from callboard.actors.graph import END, START, Graph, append, interrupt
from callboard.store.blobs import Blobs
from callboard.store.checkpoints import Checkpoints, Choice
from callboard.store.errors import UnknownNode
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import IllegalTransition, InvalidInput
from callboard.topics.messages import Answer, Fork, Payload, RunRecord, Status, TaskRequest

from .company import company, result_of
from .test_forks import forked


class Text(TypedDict, total=False):
    text: str
    log: Annotated[list[str], append]


def reviewed() -> Graph[Any]:
    """draft → review, which asks → publish."""
    graph = Graph(Text)

    @graph.node
    def draft(state: Text) -> dict[str, Any]:
        return {"text": "a draft", "log": ["drafted"]}

    @graph.node
    def review(state: Text) -> dict[str, Any]:
        return {"log": [interrupt("good?", id="verdict")]}

    @graph.node
    def publish(state: Text) -> dict[str, Any]:
        return {"log": [f"published {state['text']}"]}

    return graph.chain(START, "draft", "review", "publish", END)


def answer() -> Answer:
    return Answer(id="verdict", value=Payload(json=msgspec.Raw(b'"good"')))


@pytest.mark.parametrize(
    ("as_node", "log"),
    [
        (None, ["drafted", "good", "published a better draft"]),
        ("review", ["drafted", "published a better draft"]),
    ],
)
async def test_a_graph_that_waits_goes_on_with_its_state_as_it_was_edited(
    settings: BrokerSettings, bus: Bus, as_node: str | None, log: list[str]
) -> None:
    store = Checkpoints(bus, Blobs(bus))
    async with company(settings, bus, [reviewed().agent("reviewed")]) as all_:
        run = await all_.submit("reviewed", {})
        await all_.reaches(run, Status.INPUT_REQUIRED)
        with pytest.raises(InvalidInput, match="does not fit the schema"):
            await store.update_state(run, {"text": 1})
        with pytest.raises(InvalidInput, match="has no 'texts'"):
            await store.update_state(run, {"texts": "x"})
        for node in ("reviews", "__end__"):
            with pytest.raises(UnknownNode, match=f"as_node names '{node}'"):
                await store.update_state(run, {"text": "a better draft"}, as_node=node)
            with pytest.raises(UnknownNode, match=f"as_node names '{node}'"):
                await forked(all_, run, edit={"text": "x"}, as_node=node)
        await store.update_state(run, {"text": "a better draft"}, as_node=as_node)
        await all_.submitter.resume(run, [answer()])
        record = await all_.ended(run)
        assert result_of(record) == {"text": "a better draft", "log": log}
        with pytest.raises(IllegalTransition):
            await store.update_state(run, {"text": "too late"})
        report = await audit(bus, wait_s=1.0, blobs=True)
        assert report.clean, report.findings


async def test_a_fork_goes_on_although_the_run_that_it_began_from_is_pruned(settings: BrokerSettings, bus: Bus) -> None:
    store = Checkpoints(bus, Blobs(bus))
    async with company(settings, bus, [reviewed().agent("reviewed")]) as all_:
        run = await all_.submit("reviewed", {})
        await all_.reaches(run, Status.INPUT_REQUIRED)
        await all_.submitter.resume(run, [answer()])
        await all_.ended(run)
        found = await store.history(run)
        asked = next(saved for saved in found if saved.checkpoint.next == ["review"])
        reply = await all_.submitter.submit(TaskRequest(fork=Fork(run=run, checkpoint=asked.sequence)), None)
        fork = reply.run or ""
        await all_.reaches(fork, Status.INPUT_REQUIRED)
        done = await store.prune(run, Choice(keep=1))
        assert (done.kept, done.held) == (2, 1)
        assert done.removed > 0
        await all_.submitter.resume(fork, [answer()])
        record: RunRecord = await all_.ended(fork)
        assert result_of(record) == {"text": "a draft", "log": ["drafted", "good", "published a draft"]}
        for one in (fork, run):
            for saved in await store.history(one):
                assert (await store.reader.state(saved)).values
        report = await audit(bus, wait_s=1.0, blobs=True)
        assert report.clean, report.findings


async def test_an_edit_names_a_node_that_was_renamed_since(settings: BrokerSettings, bus: Bus) -> None:
    store = Checkpoints(bus, Blobs(bus))
    async with company(settings, bus, [reviewed().agent("reviewed")]) as all_:
        run = await all_.submit("reviewed", {})
        await all_.reaches(run, Status.INPUT_REQUIRED)
        await store.update_state(run, {"text": "edited"}, as_node="review")
    graph = Graph(Text)
    graph.node("draft", lambda state: {"log": ["drafted again"]})
    graph.node("look", lambda state: {"log": ["looked again"]}, was=["review"])
    graph.node("publish", lambda state: {"log": [f"published {state['text']}"]})
    graph.chain(START, "draft", "look", "publish", END)
    async with company(settings, bus, [graph.agent("reviewed")]) as all_:
        await all_.submitter.resume(run, [answer()])
        assert result_of(await all_.ended(run))["log"] == ["drafted", "published edited"]
        reply = await forked(all_, run, edit={"text": "forked"}, as_node="review")
        assert result_of(await all_.ended(reply.run or ""))["log"][-1] == "published forked"
