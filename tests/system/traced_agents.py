"""The agents of the tracing tests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from callboard import Context, Retry, agent
from tests.system.agents import add_one


async def refuse(text: str) -> None:
    """Fails."""
    raise ValueError(text)


@agent("leaf", topics=["leaves"])
async def leaf(ctx: Context, number: int) -> int:
    """Two steps."""
    return await ctx.step(add_one, await ctx.step(add_one, number, name="first"), name="second")


@agent("branch")
async def branch(ctx: Context, width: int) -> int:
    """A child for each of `width`, a step before and after."""
    await ctx.step(add_one, 0, name="before")
    found = await ctx.gather(*(ctx.call("leaf", number, returns=int) for number in range(width)))
    return await ctx.step(sum, found, name="after")


@agent("trunk", topics=["trunks"])
async def trunk(ctx: Context, width: int) -> int:
    """Grandchildren."""
    return await ctx.call("branch", width, returns=int) + await ctx.call("leaf", 0, returns=int)


@agent("sleeper")
async def sleeper(ctx: Context, seconds: float) -> int:
    """Suspended between two steps."""
    before = await ctx.step(add_one, 0, name="before")
    await ctx.sleep(timedelta(seconds=seconds))
    return await ctx.step(add_one, before, name="after")


@agent("moody", retries=Retry(max_attempts=3, initial=timedelta(milliseconds=50)))
async def moody(ctx: Context, good_at: int) -> int:
    """Fails until its attempt number `good_at`."""
    await ctx.step(add_one, 0, name="before")
    if ctx.run.attempt < good_at:
        raise RuntimeError(f"not at attempt {ctx.run.attempt}")
    return ctx.run.attempt


@agent("hopeless", retries=Retry(max_attempts=1))
async def hopeless(ctx: Context, _: Any) -> None:
    """Its step fails."""
    await ctx.step(refuse, "no", name="refuse")
