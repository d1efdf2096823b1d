"""The Python of docs/graphs.md is carried out, in process; on workers the same engine does it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from callboard import GraphInterrupted
from tests.docs.test_examples import module_of


@pytest.fixture
def page(tmp_path: Path) -> ModuleType:
    return module_of("docs/graphs.md", tmp_path)


async def test_an_article_is_written_until_it_is_good(page: ModuleType) -> None:
    assert await page.in_process() == {
        "topic": "hats",
        "draft": "All about hats.",
        "notes": ["written", "good"],
    }
    execution = page.graph.execution()
    with pytest.raises(GraphInterrupted):
        await execution.run({"topic": "hats"})
    assert execution.interrupts["review-1"].payload == {"draft": "All about hats."}
    with pytest.raises(GraphInterrupted):
        await execution.resume("longer")
    assert list(execution.interrupts) == ["review-3"]


async def test_a_survey_is_fanned_out_and_joined(page: ModuleType) -> None:
    assert await page.survey.run({"sources": ["one two", "three"]}) == {
        "sources": ["one two", "three"],
        "words": 3,
        "report": "3 words in 2 sources",
    }


async def test_agents_and_subgraphs_are_nodes(page: ModuleType) -> None:
    execution = page.outer.execution()
    with pytest.raises(GraphInterrupted):
        await execution.run({"question": "hats", "sources": ["a b", "c"]})
    assert (await execution.resume("good"))["found"] == ["3 words in 2 sources", "All about hats."]


async def test_a_step_before_a_question_is_done_once(page: ModuleType) -> None:
    execution = page.orders.execution()
    with pytest.raises(GraphInterrupted):
        await execution.run({"item": "hat"})
    assert await execution.resume(True) == page.Order("hat", 9.5, "bought")
    assert page.asked_for == ["hat"]


async def test_a_step_before_an_error_is_done_once(page: ModuleType) -> None:
    await page.one_bill()


async def test_time_travel(page: ModuleType) -> None:
    assert await page.time_travel() == [
        "c2: ['written', 'good']",
        "c1: ['written']",
        "c0: []",
        "Hats, in short.",
    ]
