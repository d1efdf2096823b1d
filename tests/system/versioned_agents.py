"""Agents of which a test runs two versions at once: which one this process has, `AGENT_VERSION` says."""

from __future__ import annotations

import os
from typing import Annotated, Any, TypedDict

from callboard import END, START, Context, Graph, Was, agent, append, interrupt, migrate

VERSION = os.environ.get("AGENT_VERSION", "1")


@agent("custodian", version=VERSION, pin=True)
async def custodian(ctx: Context, waits: bool) -> str:
    """Waits to be told to go on, and says which version does so."""
    if waits:
        await ctx.interrupt("go on?", id="go", returns=str)
    return VERSION


class Draft(TypedDict, total=False):
    """The state of version 1."""

    text: str
    author: str
    log: Annotated[list[str], append]


class Article(TypedDict, total=False):
    """The state of version 2: `text` is called `body`, and the author is two fields."""

    body: Annotated[str, Was("text")]
    first: str
    last: str
    log: Annotated[list[str], append]


def write(state: Any) -> dict[str, Any]:
    return {"text": "A draft", "author": "Ada Lovelace", "log": [f"written by {VERSION}"]}


def ask(state: Any) -> dict[str, Any]:
    word = interrupt({"publish": state.get("text") or state.get("body")}, id="review", returns=str)
    return {"log": [f"{word}, told to {VERSION}"]}


def publish(state: Draft) -> Draft:
    return {"log": [f"{state['text']} by {state['author']}"]}


def release(state: Article) -> Article:
    return {"log": [f"{state['body']} by {state['last']}, {state['first']}"]}


if VERSION == "1":
    graph: Graph[Any] = Graph(Draft, name="review")
    graph.node("write", write).node("ask", ask).node("publish", publish).chain(START, "write", "ask", "publish", END)
else:
    graph = Graph(Article, name="review", schema_version=2)
    graph.node("compose", write, was=["write"]).node("decide", ask, was=["ask"])
    graph.node("release", release, was=["publish"]).chain(START, "compose", "decide", "release", END)

    @migrate(Article, from_version=1, to_version=2)
    def part_the_name(state: dict[str, Any]) -> None:
        state["first"], _, state["last"] = state.pop("author").partition(" ")


review = graph.agent("review", version=VERSION)
