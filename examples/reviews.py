"""An agent that reviews a Python file, and an actor that hears of each review.

With `callboard dev examples/reviews.py` running: `callboard run review '{"path": "examples/hello.py"}' --wait`.
The worker's log then shows what the actor heard.
"""

import ast
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from callboard import Actor, ActorContext, Context, Retry, Terminal, agent, on


@dataclass(frozen=True)
class ReviewTask:
    """A file that the worker can read."""

    path: str


@dataclass(frozen=True)
class Review:
    """What was found: one line each."""

    path: str
    lines: int
    findings: list[str]


def read_source(path: str) -> str:
    """Return the text of the file. Raises OSError, which is worth a retry on a network drive."""
    return Path(path).read_text(encoding="utf-8")


def find_defects(source: str) -> list[str]:
    """Return handlers that catch everything, and functions without a docstring."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise Terminal(f"line {error.lineno}: {error.msg}") from error  # no retry makes it parse
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            found.append((node.lineno, "catches everything, also Ctrl-C"))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node) is None:
            found.append((node.lineno, f"{node.name} has no docstring"))
    return [f"{line}: {text}" for line, text in sorted(found)]


@agent("review", topics=["review"], retries=Retry(max_attempts=3), timeout=timedelta(minutes=5))
async def review(ctx: Context, task: ReviewTask) -> Review:
    """Reviews one file, leaves its findings as an artifact, and tells whoever subscribes to `reviews`."""
    source = await ctx.step(read_source, task.path)
    await ctx.progress(1, 2, "read")
    findings = await ctx.step(find_defects, source, name="defects")
    await ctx.progress(2, 2, "reviewed")
    result = Review(task.path, len(source.splitlines()), findings)
    await ctx.artifact("review.md", "".join(f"- {line}\n" for line in findings), media_type="text/markdown")
    await ctx.publish("reviews", result, key=task.path)
    return result


class Reviews(Actor):
    """Hears of every review, at least once; of those of one path one at a time and in order."""

    def __init__(self) -> None:
        self.heard: Counter[str] = Counter()  # lost with the process: what must stay belongs into the log

    @on("reviews")
    async def received(self, ctx: ActorContext, message: Review) -> None:
        """One review."""
        self.heard[message.path] += 1
        times = self.heard[message.path]
        ctx.logger.info("review %d of %s: %d findings", times, message.path, len(message.findings))
