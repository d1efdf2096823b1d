"""The agents whose runs are recorded in this folder, as they were when they ran.

Their code must not be changed: a recorded run has to replay on today's engine. To add a history, add an agent here and
record it with `python -m tests.histories.record NAME`.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from callboard.actors.agent import Retry, agent
from callboard.actors.engine import ChildFailed, Context, StepFailed

executed: list[str] = []
"""What was really carried out in this process."""


class Part(msgspec.Struct):
    name: str
    price: Decimal
    made: datetime


def make(name: str) -> Part:
    executed.append(name)
    return Part(name, Decimal("1.50"), datetime(2026, 1, 2, tzinfo=UTC))


async def double(n: int) -> int:
    executed.append(f"double {n}")
    return 2 * n


def refuse(name: str) -> None:
    executed.append(name)
    raise ValueError(f"{name} is refused")


@agent("history_leaf")
async def leaf(ctx: Context, n: int) -> int:
    if n == 13:
        raise ValueError("13")
    return await ctx.step(double, n)


async def _branch(ctx: Context, n: int) -> int:
    await asyncio.sleep(0.001 * (3 - n))
    first = await ctx.step(double, n)
    return first + await ctx.step(double, n + 10)


@agent("history_mixed", retries=Retry(max_attempts=3, initial=timedelta(milliseconds=10), on=(ConnectionError,)))
async def mixed(ctx: Context, name: str) -> dict[str, Any]:
    """Every kind of operation once, with a caught failure, branches, children, a sleep, and a crash before the end."""
    part = await ctx.step(make, name)
    try:
        await ctx.step(refuse, "reserve")
        reserved = "yes"
    except StepFailed as error:
        reserved = error.error.message
    branches = await asyncio.gather(*(_branch(ctx, n) for n in range(3)))
    children = await ctx.gather(*(ctx.call(leaf, n) for n in range(3)))
    try:
        await ctx.call(leaf, 13)
        unlucky = "no"
    except ChildFailed as failure:
        unlucky = str(failure.status)
    await ctx.emit("note", {"n": 1})
    await ctx.artifact("part.json", part)
    await ctx.sleep(0.01)
    when, chance, token = await ctx.now(), await ctx.random(), await ctx.uuid()
    last = await ctx.step(double, 100, name="last")
    if ctx.run.attempt == 1:
        raise ConnectionError("the first attempt ends here")
    return {
        "part": part, "reserved": reserved, "branches": list(branches), "children": children, "unlucky": unlucky,
        "last": last, "types": [type(when).__name__, type(chance).__name__, type(token).__name__],
    }  # fmt: skip


AGENTS = {found.name: found for found in (leaf, mixed)}
INPUTS: dict[str, Any] = {"history_mixed": "bolt"}
