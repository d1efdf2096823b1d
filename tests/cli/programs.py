"""Commands of the command line as real processes."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

WITHIN_S = 20.0

AGENTS = '''"""Agents of the tests."""

import asyncio

from callboard import Actor, ActorContext, Context, agent, on


@agent("greeter", topics=["greetings"], version="7")
async def greeter(ctx: Context, name: str) -> str:
    """Greets people."""
    text = await ctx.step(compose, name)
    await ctx.emit("custom", {"n": len(text)})
    await ctx.artifact("text.txt", text, media_type="text/plain")
    return text


def compose(name: str) -> str:
    return f"Good evening, {name}."


@agent("sleeper", topics=["naps"])
async def sleeper(ctx: Context, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "awake"


@agent("family")
async def family(ctx: Context, names: list[str]) -> list[str]:
    return list(await ctx.gather(*(ctx.call("greeter", name, returns=str) for name in names)))


@agent("collector")
async def collector(ctx: Context, turns: int) -> int:
    while ctx.state.get("turn", 0) < turns:
        turn = ctx.state["turn"] = ctx.state.get("turn", 0) + 1
        ctx.state["items"] = [*ctx.state.get("items", []), f"item {turn}"]
        ctx.state["deep"] = {"fixed": list(range(40)), "turn": turn}
        await ctx.checkpoint(label="half" if 2 * turn == turns else None)
    return turns


@agent("patient")
async def patient(ctx: Context, seconds: float) -> str:
    ctx.state.setdefault("word", "first")
    if "saved" not in ctx.state:
        ctx.state["saved"] = True
        await ctx.checkpoint()
    await ctx.interrupt("go on?", id="go")
    return ctx.state["word"]


@agent("failing")
async def failing(ctx: Context, value: int) -> None:
    raise ValueError(f"no good: {value}")


class Listener(Actor):
    @on("words")
    async def received(self, ctx: ActorContext, message: str) -> None:
        print("heard", message, flush=True)
'''


def environment(**more: str) -> dict[str, str]:
    """This process's environment without what would point a command elsewhere."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("NATS_", "CALLBOARD_", "OTEL_"))}
    return kept | {"PYTHONUNBUFFERED": "1"} | more


def call(
    *words: str, env: Mapping[str, str], cwd: Path, text: str | None = None, within_s: float = WITHIN_S
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "callboard.cli", *words],
        input=text, stdin=None if text is not None else subprocess.DEVNULL, env=dict(env), cwd=cwd, capture_output=True,
        text=True, timeout=within_s, check=False,
    )  # fmt: skip


class Printed(Protocol):
    """What a command has printed."""

    @property
    def returncode(self) -> int: ...
    @property
    def stdout(self) -> str: ...
    @property
    def stderr(self) -> str: ...


def values(done: Printed) -> list[Any]:
    """The JSON values on standard output, one a line."""
    assert done.returncode in {0, 1}, done.stderr
    return [msgspec.json.decode(line) for line in done.stdout.splitlines()]


class Program:
    """A command that runs on; its output is read line by line."""

    def __init__(self, *words: str, env: Mapping[str, str], cwd: Path, hold_stdin: bool = False) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "callboard.cli", *words],
            stdin=subprocess.PIPE if hold_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            text=True,
            bufsize=1,
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._news: queue.Queue[None] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self.out), daemon=True),
            threading.Thread(target=self._read, args=(self.process.stderr, self.err), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any, lines: list[str]) -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))
            self._news.put(None)

    def says(self, text: str, within_s: float = WITHIN_S) -> str:
        """The first line that contains `text`, waited for."""
        deadline = time.monotonic() + within_s
        while True:
            for line in [*self.out, *self.err]:
                if text in line:
                    return line
            assert time.monotonic() < deadline, f"{text!r} was not said\n{self.log}"
            try:
                self._news.get(timeout=0.1)
            except queue.Empty:
                assert self.process.poll() is None or not self._alive(), f"ended without saying {text!r}\n{self.log}"

    def _alive(self) -> bool:
        return any(reader.is_alive() for reader in self._readers)

    @property
    def log(self) -> str:
        """All that it has printed."""
        return "\n".join([*self.out, *self.err])

    def end(self, number: signal.Signals = signal.SIGTERM, within_s: float = WITHIN_S) -> int:
        """Sends a signal; the exit code."""
        self.process.send_signal(number)
        return self.wait(within_s)

    def wait(self, within_s: float = WITHIN_S) -> int:
        """The exit code, once it has ended and all output is read."""
        code = self.process.wait(within_s)
        for reader in self._readers:
            reader.join(2)
        return code


@contextmanager
def program(*words: str, env: Mapping[str, str], cwd: Path, hold_stdin: bool = False) -> Iterator[Program]:
    """A program that is killed at the latest at the end of the block."""
    one = Program(*words, env=env, cwd=cwd, hold_stdin=hold_stdin)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.process.kill()
        one.wait()
        for stream in (one.process.stdin, one.process.stdout, one.process.stderr):
            if stream is not None:
                stream.close()
