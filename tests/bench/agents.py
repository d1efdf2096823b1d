"""The agents that are measured."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any, TypedDict

from callboard import END, START, Context, Graph, Retry, Retryable, agent, append, interrupt

PAYLOAD = "x" * 198  # 200 bytes with its quotes


async def double(number: int) -> int:
    """A step that costs nothing."""
    return number * 2


async def fill(_: int) -> str:
    """A step with a result of 200 bytes."""
    return PAYLOAD


@agent("trivial", topics=["trivial"])
async def trivial(ctx: Context, task: dict[str, Any]) -> int:
    """One journaled step."""
    return await ctx.step(double, task["n"])


@agent("steps")
async def steps(ctx: Context, count: int) -> int:
    """Many steps, one after another."""
    for index in range(count):
        await ctx.step(fill, index)
    return count


@agent("asks")
async def asks(ctx: Context, depth: int) -> int:
    """Steps with a checkpoint each, a question, one more step."""
    for index in range(ctx.state.get("done", 0), depth):
        await ctx.step(fill, index)
        ctx.state["done"] = index + 1
        await ctx.checkpoint()
    return await ctx.step(double, await ctx.interrupt("go on?", id="go", returns=int), name="after")


@agent("asks_journal")
async def asks_journal(ctx: Context, depth: int) -> int:
    """The same without checkpoints."""
    for index in range(depth):
        await ctx.step(fill, index)
    return await ctx.step(double, await ctx.interrupt("go on?", id="go", returns=int), name="after")


@agent("restarted", retries=Retry(max_attempts=2, initial=timedelta(0), jitter=0))
async def restarted(ctx: Context, count: int) -> int:
    """Finished steps, then a second attempt that must read them all."""
    for index in range(count):
        await ctx.step(fill, index)
    if ctx.run.attempt == 1:
        raise Retryable("once more")
    return count


@agent("talker")
async def talker(ctx: Context, count: int) -> int:
    """Many events for those who watch."""
    for index in range(count):
        await ctx.emit("tick", {"index": index, "text": "a word for the watchers of this run"})
    return count


@agent("branch")
async def branch(ctx: Context, children: list[int]) -> None:
    """Starts so many children, each of which starts as many as the next number says; lives until it is canceled."""
    for _ in range(children[0] if children else 0):
        await ctx.start("branch", children[1:])
    await asyncio.sleep(3600)


@agent("patient")
async def patient(ctx: Context, _: Any) -> int:
    """Lives until its first attempt is gone; the second one ends at once."""
    if ctx.run.attempt == 1:
        await asyncio.sleep(3600)
    return ctx.run.attempt


@agent("effects")
async def effects(ctx: Context, count: int) -> int:
    """Many effects, one after another, with the results of `steps`."""
    for index in range(count):
        await ctx.effect("fill", fill, index)
    return count


class Growing(TypedDict, total=False):
    """A state that grows by 200 bytes a step."""

    until: int
    n: int
    log: Annotated[list[str], append]


async def grow(state: Growing) -> dict[str, Any]:
    """A superstep that costs nothing."""
    return {"n": state.get("n", 0) + 1, "log": [PAYLOAD]}


async def pause(state: Growing) -> dict[str, Any]:
    """Asks, and is done when it is answered."""
    return {"log": [interrupt("go on?")]}


async def tick(state: Growing) -> dict[str, Any]:
    """The same, of a state that does not grow."""
    return {"n": state.get("n", 0) + 1}


def _grower(node: Any, last: str) -> Graph[Any]:
    graph = Graph(Growing, step_limit=2000, output=Ended)
    graph.node("grow", node).edge(START, "grow")
    if last != END:
        graph.node(last, pause).edge(last, END)
    graph.branch("grow", lambda state: "grow" if state["n"] < state["until"] else last, ["grow", last])
    return graph


class Ended(TypedDict):
    """The result: small, whatever the state is."""

    n: int


grower = _grower(grow, END).agent("grower")
pauser = _grower(tick, "pause").agent("pauser")
