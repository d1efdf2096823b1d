"""The agents of the whole-system tests. Steps leave a line in EFFECTS_FILE for each execution."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

from callboard import (
    END,
    START,
    Actor,
    ActorContext,
    Context,
    DidNotHappen,
    Done,
    Graph,
    Happened,
    Limit,
    Retry,
    agent,
    append,
    hook,
    on,
)


def effect(line: str) -> str:
    """A line outside, so that executions can be counted."""
    with Path(os.environ["EFFECTS_FILE"]).open("a") as file:
        file.write(line + "\n")
    return line


async def add_one(number: int) -> int:
    """Costs nothing."""
    return number + 1


async def slow(line: str, seconds: float) -> str:
    """Takes a while, then leaves its line."""
    await asyncio.sleep(seconds)
    return effect(line)


@agent("plus", topics=["plus"])
async def plus(ctx: Context, number: int) -> int:
    """One step."""
    return await ctx.step(add_one, number)


@agent("job", topics=["job"])
async def job(ctx: Context, task: dict[str, Any]) -> list[str]:
    """`steps` steps of `seconds` each."""
    done = []
    for index in range(task["steps"]):
        done.append(await ctx.step(slow, f"{ctx.run.id} {index}", task["seconds"]))
        await ctx.progress(index + 1, task["steps"])
    return done


@agent("narrow", limit=Limit(concurrency=2, per_key=1, key="$.key"))
async def narrow(ctx: Context, task: dict[str, Any]) -> list[str]:
    """As `job`, two at once in all, one of each key."""
    return [await ctx.step(slow, f"{ctx.run.id} {index}", task["seconds"]) for index in range(task["steps"])]


@agent("tree")
async def tree(ctx: Context, task: dict[str, Any]) -> int:
    """A child for each of `width`, each a job."""
    jobs = [{"steps": task["steps"], "seconds": task["seconds"]} for _ in range(task["width"])]
    results = await ctx.gather(*(ctx.call("job", one) for one in jobs))
    await ctx.artifact("summary.json", {"jobs": len(results)})
    return sum(len(one) for one in results)


@agent("waiter")
async def waiter(ctx: Context, number: int) -> int:
    """Waits for one child."""
    return await ctx.call("plus", number, returns=int)


@agent("napper")
async def napper(ctx: Context, seconds: float) -> str:
    """A durable sleep."""
    await ctx.sleep(timedelta(seconds=seconds))
    return await ctx.step(effect, f"{ctx.run.id} awake")


@agent("asker")
async def asker(ctx: Context, number: int) -> list[Any]:
    """Two branches, each of which asks and goes on behind the answer."""

    async def branch(name: str) -> str:
        await ctx.interrupt(number, id=name, returns=int)
        return await ctx.step(effect, f"{ctx.run.id} {name}")

    return [number, *await ctx.gather(branch("left"), branch("right"))]


@agent("asker_above")
async def asker_above(ctx: Context, number: int) -> list[Any]:
    """Waits for a child that asks."""
    return await ctx.call("asker", number, returns=list)


@agent("hearer")
async def hearer(ctx: Context) -> list[Any]:
    """Hears two messages, after a moment."""
    await ctx.step(slow, f"{ctx.run.id} begins", 0.2)
    return [(await ctx.hear()).content for _ in range(2)]


def pay(idempotency_key: str) -> str:
    """Done outside."""
    return effect(idempotency_key)


@hook
def paid(key: str) -> Happened | DidNotHappen:
    """Whether it was."""
    file = Path(os.environ["EFFECTS_FILE"])
    return Happened(key) if file.exists() and key in file.read_text().splitlines() else DidNotHappen()


@hook
def pay_back(done: Done) -> str:
    """Undone."""
    return effect(f"{done.effect_key} undone")


@agent("payer")
async def payer(ctx: Context, seconds: float) -> str:
    """An effect, and a sleep after it."""
    key = await ctx.effect("pay", pay, compensate=pay_back, reconcile=paid)
    await ctx.sleep(seconds)
    return key


@agent("poison", retries=Retry(max_attempts=2))
async def poison(ctx: Context, _: Any) -> None:
    """Kills the process that carries it out."""
    os.kill(os.getpid(), 9)


@agent("blocker")
async def blocker(ctx: Context, seconds: float) -> str:
    """Blocks the event loop, as careless code does."""
    time.sleep(seconds)
    return "done"


@agent("echo")
async def echo(ctx: Context, value: Any) -> Any:
    """Large values in and out, by every way a value can go."""
    same = await ctx.step(_identity, value)
    await ctx.emit("echo", same)
    await ctx.artifact("value.json", same)
    return same


async def _identity(value: Any) -> Any:
    return value


class Words(Actor):
    """An application actor: leaves a line for each message."""

    @on("words")
    async def received(self, ctx: ActorContext, message: dict[str, Any]) -> None:
        """One word."""
        effect(f"word {ctx.key} {message['n']}")


@agent("mixed")
async def mixed(ctx: Context, task: dict[str, int]) -> int:
    """Some children end soon, others take long."""
    quick = [ctx.call("plus", number) for number in range(task["quick"])]
    slow = [ctx.call("job", {"steps": 100, "seconds": 0.2}) for _ in range(task["slow"])]
    return len(await ctx.gather(*quick, *slow))


@agent("forgiving")
async def forgiving(ctx: Context, task: dict[str, Any]) -> int:
    """Goes on when its children fail."""
    results = await ctx.gather(*(ctx.call("job", task) for _ in range(3)), return_exceptions=True)
    return sum(isinstance(result, Exception) for result in results)


@agent("detacher")
async def detacher(ctx: Context, task: dict[str, Any]) -> None:
    """Starts a child that lives on, and stays."""
    await ctx.start("job", task, detached=True)
    await ctx.step(slow, "detacher", 30.0)


@agent("flaky", retries=Retry(max_attempts=5, initial=timedelta(seconds=3600)))
async def flaky(ctx: Context, _: Any) -> None:
    """Fails, and waits long before it tries again."""
    raise OSError("not now")


@agent("keeper")
async def keeper(ctx: Context, count: int) -> list[str]:
    """A loop of steps that saves its state after each."""
    state = ctx.state
    while len(state.setdefault("done", [])) < count:
        state["done"].append(await ctx.step(slow, f"{ctx.run.id} {len(state['done'])}", 0.05))
        await ctx.checkpoint()
    return list(state["done"])


class Woven(TypedDict, total=False):
    """The state of `weaver`."""

    rounds: int
    turn: int
    done: Annotated[list[str], append]


class Cloth(TypedDict):
    """Its result."""

    done: list[str]


def _weaver() -> Graph[Any]:
    graph = Graph(Woven, output=Cloth)

    @graph.node
    async def first(state: Woven, ctx: Context) -> dict[str, Any]:
        return {"done": [await ctx.step(slow, f"{ctx.run.id} {state.get('turn', 0)} first", 0.02)]}

    @graph.node
    async def left(state: Woven, ctx: Context) -> dict[str, Any]:
        return {"done": [await ctx.step(slow, f"{ctx.run.id} {state.get('turn', 0)} left", 0.01)]}

    @graph.node
    async def right(state: Woven, ctx: Context) -> dict[str, Any]:
        return {"done": [await ctx.step(slow, f"{ctx.run.id} {state.get('turn', 0)} right", 0.15)]}

    @graph.node
    async def turn(state: Woven) -> dict[str, Any]:
        return {"turn": state.get("turn", 0) + 1}

    graph.edge(START, "first").edge("first", "left").edge("first", "right").join(["left", "right"], "turn")
    graph.branch("turn", lambda state: "first" if state["turn"] < state["rounds"] else END, ["first", END])
    return graph


weaver = _weaver().agent("weaver")
