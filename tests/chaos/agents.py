"""The agents of a chaos run. Every execution of a step leaves two lines in EFFECTS_FILE: when it begins and when it
ends."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from callboard import Context, DidNotHappen, Done, Happened, Retry, agent, hook

PAYMENTS = Path(os.environ["EFFECTS_FILE"]).with_name("payments.txt")
_file = os.open(os.environ["EFFECTS_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def note(what: str, run: str, step: str, attempt: int) -> None:
    """One line, written at once: lines of several processes do not mix."""
    os.write(_file, f"{time.time():.6f} {what} {run} {step} {attempt} {os.getpid()}\n".encode())


async def work(run: str, step: str, attempt: int, seconds: float) -> str:
    """Takes a while between its lines."""
    note("begin", run, step, attempt)
    await asyncio.sleep(seconds)
    note("end", run, step, attempt)
    return step


async def fail(run: str, attempt: int, *, really: bool) -> str:
    """Fails if it should."""
    note("begin", run, "try", attempt)
    note("end", run, "try", attempt)
    if really:
        raise OSError("not now")
    return "try"


@agent("task", topics=["chaos"])
async def task(ctx: Context, asked: dict[str, Any]) -> list[str]:
    """`steps` steps of `seconds` each, one after the other."""
    return [
        await ctx.step(work, ctx.run.id, str(index), ctx.run.attempt, asked["seconds"], name=str(index))
        for index in range(asked["steps"])
    ]


@agent("tree")
async def tree(ctx: Context, asked: dict[str, Any]) -> int:
    """`width` children each on `depth` levels; the lowest are tasks. The number of steps of all."""
    await ctx.step(work, ctx.run.id, "before", ctx.run.attempt, 0.01, name="before")
    depth = asked["depth"]
    name, below = ("task", asked) if depth == 1 else ("tree", asked | {"depth": depth - 1})
    found = await ctx.gather(*(ctx.call(name, below) for _ in range(asked["width"])))
    await ctx.step(work, ctx.run.id, "after", ctx.run.attempt, 0.01, name="after")
    return sum(len(one) if depth == 1 else one for one in found)


@agent("nap")
async def nap(ctx: Context, asked: dict[str, Any]) -> list[str]:
    """A durable sleep between two steps."""
    first = await ctx.step(work, ctx.run.id, "before", ctx.run.attempt, 0.01, name="before")
    await ctx.sleep(timedelta(seconds=asked["seconds"]))
    return [first, await ctx.step(work, ctx.run.id, "after", ctx.run.attempt, 0.01, name="after")]


@agent("flaky", retries=Retry(max_attempts=6, initial=timedelta(seconds=0.2), maximum=timedelta(seconds=1)))
async def flaky(ctx: Context, asked: dict[str, Any]) -> str:
    """Fails so often, then does not."""
    really = ctx.run.failures < asked["failures"]
    return await ctx.step(fail, ctx.run.id, ctx.run.attempt, name="try", really=really)


def payment(what: str, key: str) -> None:
    """A line at the bank."""
    with PAYMENTS.open("a") as file:
        file.write(f"{what} {key}\n")


def is_paid(key: str) -> bool:
    """Whether the bank has it."""
    return PAYMENTS.exists() and f"paid {key}" in PAYMENTS.read_text().splitlines()


async def pay(idempotency_key: str) -> str:
    """A bank that takes a while, and knows a payment by its key."""
    payment("asked", idempotency_key)
    await asyncio.sleep(0.05)
    if not is_paid(idempotency_key):
        payment("paid", idempotency_key)
    await asyncio.sleep(0.05)
    return idempotency_key


@hook
def paid(key: str) -> Happened | DidNotHappen:
    """What the bank says."""
    return Happened(key) if is_paid(key) else DidNotHappen()


@hook
def pay_back(done: Done) -> str:
    """Undone."""
    payment("undone", done.effect_key)
    return done.effect_key


@agent("payer")
async def payer(ctx: Context, asked: dict[str, Any]) -> int:
    """Pays so often, and then works for so many steps."""
    for _ in range(asked["payments"]):
        await ctx.effect("pay", pay, compensate=pay_back, reconcile=paid)
    for index in range(asked["steps"]):
        await ctx.step(work, ctx.run.id, str(index), ctx.run.attempt, 0.1, name=str(index))
    return int(asked["payments"])
