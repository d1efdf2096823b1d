"""Agents that stand still with their worker, and go on as if nothing had happened."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from callboard import Context, agent


def write(line: str) -> str:
    """Leaves a line outside."""
    with Path(os.environ["EFFECTS_FILE"]).open("a") as file:
        file.write(line + "\n")
    return line


def until(file: Path) -> None:
    """In a step: waits for the file."""
    while not file.exists():
        time.sleep(0.01)


async def still(folder: Path, ctx: Context) -> None:
    """Says that this attempt has come here; the first one waits for the file `go`."""
    (folder / f"{ctx.run.metadata and ctx.run.metadata['kind']}.{ctx.run.attempt}").touch()
    while ctx.run.attempt == 1 and not (folder / "go").exists():
        await asyncio.sleep(0.01)


@agent("late")
async def late(ctx: Context, where: list[str]) -> str:
    """Does one thing of `kind`, after its worker stood still."""
    folder, kind = Path(where[0]), where[1]
    number = f"{kind} {ctx.run.attempt}"
    if kind == "step":
        if ctx.run.attempt == 1:
            (folder / "step.1").touch()
            await ctx.step(until, folder / "go", name="waits", returns=None)
        return "done"
    await still(folder, ctx)
    match kind:
        case "artifact":
            await ctx.artifact("report", number)
        case "custom":
            await ctx.emit("told", number)
        case "delta":
            await ctx.stream(number)
        case "message":
            await ctx.message("assistant", number)
        case "checkpoint":
            ctx.state["number"] = number
            await ctx.checkpoint()
        case "said" if ctx.thread:
            await ctx.thread.say("user", number)
        case "child":
            await ctx.call("small", number)
        case "effect":
            await ctx.effect("pay", write, number)
        case "begin":
            await ctx.step(write, number)
        case "process":
            await ctx.step(write, number, isolate="process")
    return "done"


@agent("small")
async def small(ctx: Context, line: str) -> str:
    """A child."""
    return await ctx.step(write, line)
