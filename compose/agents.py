"""The agents that the cluster's workers serve until you mount or name your own module."""

from __future__ import annotations

from callboard import Context, agent


def shouted(text: str) -> str:
    """Return the text in capitals."""
    return text.upper()


@agent("echo", topics=["echo"])
async def echo(ctx: Context, task: dict[str, str]) -> dict[str, str]:
    """Answer a task {"text": …} with the text and its capitals; one journaled step, to see the cluster at work."""
    text = task.get("text", "")
    return {"text": text, "shouted": await ctx.step(shouted, text)}
