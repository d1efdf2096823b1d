"""All parts together: started in order, kept running, the worker reloaded, everything ended in order."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ...runtime.nats_mark import ProcessMark
from ...runtime.nats_server import EmbeddedServer
from ...runtime.process import Shutdown
from ...topics.errors import CallboardError, Unavailable
from ..console import note
from ..environment import STATE, DevRecord
from ..exits import UNAVAILABLE, USAGE
from ..wording import masked
from .child import Child
from .watch import changes, folder_of

log = logging.getLogger(__name__)

_GRACE_S = "3"
_STOP_S = 6.0
_READY_S = 30.0
_BACKOFF_S = 0.3
_BACKOFF_MAX_S = 5.0
_HOPELESS = (USAGE, UNAVAILABLE)
_COLORS = {"nats": "34", "coordinator": "35", "gateway": "36", "worker": "32", "dev": "1"}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What `dev` was asked for."""

    target: str
    nats_url: str | None
    namespace: str
    host: str
    port: int
    concurrency: int | None
    state: Path
    reload: bool
    verbose: int


class Stage:
    """Runs a plan until the shutdown is requested."""

    def __init__(self, plan: Plan, shutdown: Shutdown) -> None:
        self._plan, self._shutdown = plan, shutdown
        self._children: list[Child] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()
        self._hopeless: int | None = None
        self._paint = sys.stderr.isatty() and not os.environ.get("NO_COLOR")

    async def run(self) -> int | None:
        """Starts everything, says where it is, and waits. Returns an exit code when it cannot go on.

        Raises the errors of the embedded server, and Unavailable when a part does not get ready."""
        async with AsyncExitStack() as stack:
            url = await self._broker(stack)
            stack.push_async_callback(self._end)
            coordinator = self._begin("coordinator", (), url)
            gateway = self._begin("gateway", self._gateway_words(), url)
            worker = self._begin("worker", self._worker_words(), url)
            if await self._ready(coordinator, gateway):
                self._record(stack, url, gateway)
                self._welcome(url, gateway)
                if self._plan.reload:
                    self._spawn(self._reload(worker), "reload")
                await self._over()
            return self._hopeless

    def _spawn(self, work: object, name: str) -> None:
        assert asyncio.iscoroutine(work)
        self._tasks.append(asyncio.create_task(work, name=name))

    async def _over(self) -> None:
        """Returns when the shutdown is requested, or a part can never work."""
        told = asyncio.create_task(self._shutdown.wait())
        ended = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((told, ended), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        ended.cancel()

    async def _end(self) -> None:
        """The worker first, so that the coordinator takes what it hands back."""
        self._stopping.set()
        for group in (("worker",), ("gateway", "coordinator")):
            await asyncio.gather(*(child.stop(_STOP_S) for child in self._children if child.name in group))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- parts --------------------------------------------------------------------------------------------------

    async def _broker(self, stack: AsyncExitStack) -> str:
        if self._plan.nats_url is not None:
            return self._plan.nats_url
        server = await stack.enter_async_context(EmbeddedServer(self._plan.state / "nats"))
        self._spawn(self._keep_broker(server), "nats")
        return server.url

    async def _keep_broker(self, server: EmbeddedServer) -> None:
        while True:
            code = await server.wait()
            self._say("nats", f"nats-server ended with exit code {code}; starting it again")
            try:
                await server.restart()
            except CallboardError as error:
                self._say("nats", str(error))
                await asyncio.sleep(_BACKOFF_MAX_S)

    def _begin(self, name: str, words: tuple[str, ...], url: str) -> Child:
        environment = {
            "NATS_URL": url,
            "CALLBOARD_NAMESPACE": self._plan.namespace,
            "CALLBOARD_GRACE_S": os.environ.get("CALLBOARD_GRACE_S", _GRACE_S),
        }
        child = Child(name, (name, *words, *("-v",) * self._plan.verbose), environment, self._say)
        self._children.append(child)
        self._spawn(self._keep(child), name)
        return child

    def _worker_words(self) -> tuple[str, ...]:
        many = self._plan.concurrency
        return (self._plan.target, *(() if many is None else ("--concurrency", str(many))))

    def _gateway_words(self) -> tuple[str, ...]:
        plan = self._plan
        file = plan.state / "projection.db"
        return ("--host", plan.host, "--port", str(plan.port), "--projection", str(file))

    # -- life ---------------------------------------------------------------------------------------------------

    async def _keep(self, child: Child) -> None:
        """Starts a child again when it ends. A worker whose module is at fault waits for a change of its files; a
        part that cannot work with these settings ends everything."""
        delay = _BACKOFF_S
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            begun = loop.time()
            self._changed.clear()
            await child.start()
            code = await child.wait()
            if self._stopping.is_set():
                return
            if code == 0:  # told to stop, to be reloaded
                continue
            if child.name == "worker" and code == USAGE and self._plan.reload:
                self._say("dev", "the worker waits for a change of its files")
                await self._changed.wait()
                continue
            if code in _HOPELESS:
                self._hopeless = code
                self._stopping.set()
                return
            delay = _BACKOFF_S if loop.time() - begun > _BACKOFF_MAX_S else min(delay * 2, _BACKOFF_MAX_S)
            self._say("dev", f"{child.name} ended with exit code {code}; starting it again")
            await asyncio.sleep(delay)

    async def _reload(self, worker: Child) -> None:
        top = folder_of(self._plan.target)
        async for files in changes(top, self._stopping):
            names = ", ".join(str(file.relative_to(top) if file.is_relative_to(top) else file) for file in files[:3])
            self._say("dev", f"{names} changed: starting the worker anew")
            self._changed.set()
            await worker.stop(_STOP_S)

    async def _ready(self, *children: Child) -> bool:
        """Waits until all work; False when one never will, or the shutdown is requested before."""
        ready = asyncio.create_task(_all_ready(children))
        over = asyncio.create_task(self._over())
        try:
            await asyncio.wait((ready, over), timeout=_READY_S, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done() and not over.done():
                late = ", ".join(child.name for child in children if not child.ready.is_set())
                raise Unavailable(f"not ready within {_READY_S:g} s: {late}; see the log above")
            return ready.done()
        finally:
            over.cancel()
            ready.cancel()

    # -- words --------------------------------------------------------------------------------------------------

    def _record(self, stack: AsyncExitStack, url: str, gateway: Child) -> None:
        """Leaves a note of where everything is, for the other commands in this folder."""
        mark = ProcessMark.of(os.getpid())
        if mark is None:
            return
        record = DevRecord(
            pid=mark.pid,
            started=mark.started,
            nats_url=url,
            namespace=self._plan.namespace,
            gateway_url=_url_of(gateway),
        )
        path = self._plan.state / "dev.json"
        path.touch(0o600)  # the URL may hold a password
        path.write_bytes(msgspec.json.encode(record))

        def remove() -> None:
            with suppress(OSError):
                path.unlink()

        stack.callback(remove)

    def _welcome(self, url: str, gateway: Child) -> None:
        where = _url_of(gateway)
        lines = [
            f"NATS       {masked(url)}",
            f"gateway    {where}",
            f"API        {where}/docs",
            f"state      {self._plan.state}",
            self._way(url),
            "Ctrl-C ends everything.",
        ]
        with suppress(OSError):
            print("\n".join(lines), flush=True)

    def _way(self, url: str) -> str:
        if self._plan.state.resolve() != STATE.resolve():
            return f"For the other commands: export NATS_URL={masked(url)}"
        return "In this folder the other commands find it by themselves, as in `callboard agents` and `callboard tail`."

    def _say(self, name: str, line: str) -> None:
        label = f"{name:<11} |"
        if self._paint:
            label = f"\x1b[{_COLORS.get(name, '0')}m{label}\x1b[0m"
        with suppress(OSError):
            note(f"{label} {line}")


async def _all_ready(children: Sequence[Child]) -> None:
    for child in children:
        await child.ready.wait()


def _url_of(gateway: Child) -> str:
    """The URL in the line by which the gateway says that it is ready."""
    return next((word for word in gateway.line.split() if word.startswith("http")), "")
