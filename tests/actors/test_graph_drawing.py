"""Graphs as Mermaid text and as SVG."""

import random
import xml.etree.ElementTree as ET
from typing import TypedDict

import pytest

from callboard import END, START, Graph
from callboard.actors.graph.layout import layout


class State(TypedDict, total=False):
    n: int


def node(state: State) -> None:
    return None


def published() -> Graph[State]:
    inner = Graph(State, name="inner").node("only", node).chain(START, "only", END)
    graph = Graph(State, name="draft & publish")
    graph.node("draft", node).node("check", inner).node("ask", inner.agent("asker"))
    graph.node("publish", node, interrupt_before=True).node("sum_up", node, deferred=True)
    graph.edge(START, "draft").edge("draft", "check").edge("draft", "ask").join(["check", "ask"], "sum_up")
    graph.branch("sum_up", lambda state: "good", {'"good"': "publish", "again": "draft", "same": "sum_up"})
    return graph.edge("publish", END)


def test_mermaid_text_has_every_node_and_arrow() -> None:
    assert (
        published().mermaid()
        == """\
flowchart TD
    start(["START"])
    finish(["END"])
    n0["draft"]
    n1[["check"]]
    n2("ask")
    n3["publish"]
    n4["sum_up"]
    start --> n0
    n0 --> n1
    n0 --> n2
    n3 --> finish
    n1 -->|"join"| n4
    n2 -->|"join"| n4
    n4 -.->|"#quot;good#quot;"| n3
    n4 -.->|"again"| n0
    n4 -.->|"same"| n4
"""
    )


def test_the_image_is_well_formed_and_shows_every_node_and_label() -> None:
    root = ET.fromstring(published().svg())
    texts = {one.text for one in root.iter("{http://www.w3.org/2000/svg}text")}
    assert texts == {"START", "END", "draft", "check", "ask", "publish", "sum_up", "join", '"good"', "again", "same"}
    assert len(list(root.iter("{http://www.w3.org/2000/svg}rect"))) == 7 + 1  # a subgraph has two
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "draft & publish"


@pytest.mark.parametrize("seed", range(20))
def test_boxes_of_any_graph_stand_apart_and_below_what_leads_to_them(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"node{'x' * chance.randrange(12)}{at}" for at in range(chance.randrange(2, 14))]
    arrows = [(chance.choice(names[:-1]), chance.choice(names)) for _ in range(2 * len(names))]
    sizes = {name: (len(name) * 8.0, 30.0) for name in names}
    found = layout(sizes, arrows, names[-1])
    for at, one in enumerate(names):
        (x, y), half = found.centres[one], sizes[one][0] / 2
        assert -1e-6 <= x - half <= x + half <= found.width + 1e-6
        assert 15 <= y <= found.height - 15
        for other in names[at + 1 :]:
            a, b = found.centres[other]
            assert abs(b - y) >= 30 or abs(a - x) >= half + sizes[other][0] / 2
    for source, target in arrows:
        if source != target and target != names[-1]:
            down = found.centres[source][1] < found.centres[target][1]
            assert down != ((source, target) in found.turned)


def test_a_large_graph_is_drawn_in_time() -> None:
    graph = Graph(State)
    for at in range(150):
        graph.node(f"n{at}", node).edge(START if at < 5 else f"n{at - 5}", f"n{at}").edge(f"n{at}", END)
    assert graph.svg().count("<rect") == 152
