"""A role as a child process: its lines are passed on under its name, and it never outlives this process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

log = logging.getLogger(__name__)

_LINE_BYTES = 1024 * 1024
_KILL_AFTER_S = 1.0


class Child:
    """One child process. Its standard input is held open here: when it closes, the child stops by itself.

    `say(name, line)` gets each line of its output. `ready` is set by a line on standard output that begins with its
    name."""

    def __init__(
        self, name: str, words: Sequence[str], environment: Mapping[str, str], say: Callable[[str, str], None]
    ) -> None:
        self.name = name
        self._words, self._environment, self._say = words, environment, say
        self._process: asyncio.subprocess.Process | None = None
        self._pumps: list[asyncio.Task[None]] = []
        self.ready = asyncio.Event()
        self.line = ""
        """The line that said that it is ready."""

    @property
    def pid(self) -> int | None:
        """Its pid while it runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def start(self) -> None:
        """Starts it; `ready` tells when it works."""
        self.ready.clear()
        # A session of its own: Ctrl-C in the terminal reaches this process only, which ends the others in order.
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "callboard.cli", *self._words, "--end-with-stdin",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **self._environment}, start_new_session=True, limit=_LINE_BYTES,
        )  # fmt: skip
        process = self._process
        assert process.stdout is not None
        assert process.stderr is not None
        self._pumps = [
            asyncio.create_task(self._pump(process.stdout, mark=True)),
            asyncio.create_task(self._pump(process.stderr, mark=False)),
        ]

    async def _pump(self, stream: asyncio.StreamReader, *, mark: bool) -> None:
        while True:
            try:
                raw = await stream.readline()
            except ValueError:  # a line above the limit: it is passed over
                self._say(self.name, "(a line of more than 1 MiB)")
                continue
            if not raw:
                return
            line = raw.decode(errors="replace").rstrip("\r\n")
            if mark and not self.ready.is_set() and line.startswith(f"{self.name} "):
                self.line = line
                self.ready.set()
            self._say(self.name, line)

    async def wait(self) -> int:
        """Waits for its end; the exit code, negative for a signal."""
        assert self._process is not None
        code = await self._process.wait()
        await asyncio.wait(self._pumps, timeout=1.0)
        return code

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal if it runs."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def stop(self, within_s: float) -> None:
        """SIGTERM, after `within_s` seconds SIGKILL; done when it is gone."""
        if self._process is None:
            return
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(within_s):
                await self.wait()
        except TimeoutError:
            log.warning("%s did not stop within %g s: killing it", self.name, within_s)
            self.signal(signal.SIGKILL)
            with suppress(TimeoutError):
                async with asyncio.timeout(_KILL_AFTER_S):
                    await self.wait()
        finally:
            for pump in self._pumps:
                pump.cancel()
