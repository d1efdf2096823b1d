"""One process group, as the worker sees it: starts it, gives it its order, takes its answer, ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

_GUARDIAN = str(Path(__file__).with_name("guardian.py"))
_LAST_WORDS_S = 0.5
_LINE_BYTES = 8192
"""A longer line is told in pieces."""

Say = Callable[[int, str], None]
"""What is done with a line of output: 1 or 2, as standard output or standard error, and the line."""


class _Output(asyncio.SubprocessProtocol):
    """Cuts into lines what the group prints."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._rest = {1: b"", 2: b""}
        self._open = {1, 2}
        self._transport: asyncio.BaseTransport | None = None
        self.ended = asyncio.Event()
        """Set once nothing more can come."""
        self.exited = asyncio.Event()
        self.over = False
        """Nobody wants any more: once the process has ended, its transport is closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It has begun."""
        self._transport = transport

    def process_exited(self) -> None:
        """Its leader has ended."""
        self.exited.set()
        if self.over and self._transport is not None:
            self._transport.close()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Tells the lines that are whole."""
        *lines, rest = (self._rest[fd] + data).split(b"\n")
        while len(rest) > _LINE_BYTES:
            lines.append(rest[:_LINE_BYTES])
            rest = rest[_LINE_BYTES:]
        self._rest[fd] = rest
        for line in lines:
            self._say(fd, line.decode(errors="replace"))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Tells what is left."""
        if self._rest.get(fd):
            self._say(fd, self._rest[fd].decode(errors="replace"))
        self._open.discard(fd)
        if not self._open:
            self.ended.set()


class Group:
    """Made by `begun`. Whoever makes it calls `end` in the end."""

    def __init__(self, transport: asyncio.SubprocessTransport, output: _Output, answers: int) -> None:
        self._transport, self._output, self._answers = transport, output, answers
        self.pid = transport.get_pid()
        """Of its leader, and the number of the group."""
        self._gone = False

    @classmethod
    async def begun(cls, order: bytes, say: Say) -> Group:
        """Starts the group and hands the order over. Raises OSError when no process can be had."""
        answers, to_worker = os.pipe()
        try:
            transport, output = await asyncio.get_running_loop().subprocess_exec(
                lambda: _Output(say), sys.executable, "-P", _GUARDIAN, str(to_worker),
                pass_fds=(to_worker,), start_new_session=True,
            )  # fmt: skip
        except BaseException:
            os.close(answers)
            raise
        finally:
            os.close(to_worker)
        group = cls(transport, output, answers)
        stdin = transport.get_pipe_transport(0)
        cast("asyncio.WriteTransport", stdin).write(struct.pack("!Q", len(order)) + order)
        return group

    async def answer(self) -> tuple[int | None, bytes]:
        """How the step's process ended (a signal as a negative number; None when that is not known), and what it has
        answered."""
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        pipe, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._answers, "rb", buffering=0)
        )
        self._answers = -1
        try:
            status, size = struct.unpack("!iQ", await reader.readexactly(12))
            answer = await reader.readexactly(size)
            self._gone = True
        except asyncio.IncompleteReadError:
            return None, b""
        finally:
            pipe.close()
        with contextlib.suppress(TimeoutError):  # a process that has left the group may still hold the pipes
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._output.ended.wait()
        return status, answer

    async def closed(self) -> None:
        """Ends it, and waits until its leader is gone."""
        self.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._output.exited.wait()

    def end(self) -> None:
        """Kills whatever of it lives. Idempotent."""
        if not self._gone:
            self._gone = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1
        if self._transport.get_returncode() is not None:
            self._transport.close()
            return
        self._output.over = True  # to close the whole transport now would race with asyncio's own wait for the process
        for fd in (0, 1, 2):
            pipe = self._transport.get_pipe_transport(fd)
            if pipe is not None:
                pipe.close()
