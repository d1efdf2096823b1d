"""The shortest agent.

With `callboard dev examples/hello.py` running in one terminal, in another one: `callboard run hello '"Ada"' --wait`.
"""

from callboard import Context, agent


def greeting(name: str) -> str:
    """Return the words. A step is an ordinary function: its result is recorded, so it is not called again."""
    return f"Hello, {name}!"


@agent("hello", topics=["hello"])
async def hello(ctx: Context, name: str) -> str:
    """Greets whoever is named."""
    return await ctx.step(greeting, name)
