"""All parts together: started in order, kept running, the worker reloaded, everything ended in order."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ...runtime.nats_mark import ProcessMark
from ...runtime.nats_server import EmbeddedServer
from ...runtime.process import Shutdown
from ...topics.errors import CallboardError, Unavailable
from ..console import note
from ..environment import DevRecord
from ..exits import USAGE
from .child import Child
from .watch import changes, folder_of

log = logging.getLogger(__name__)

_GRACE_S = "3"
_STOP_S = 6.0
_READY_S = 30.0
_BACKOFF_S = (0.3, 5.0)
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
        self._failed: CallboardError | None = None
        self._stopping = asyncio.Event()
        self._paint = sys.stderr.isatty() and not os.environ.get("NO_COLOR")

    async def run(self) -> int | None:
        """Starts everything, says where it is, and waits."""
        async with AsyncExitStack() as stack:
            url = await self._broker(stack)
            stack.push_async_callback(self._end)
            worker = self._child("worker", self._worker_words(), url)
            gateway = self._child("gateway", self._gateway_words(), url)
            coordinator = self._child("coordinator", (), url)
            keepers = [
                asyncio.create_task(self._keep(child), name=child.name) for child in (coordinator, gateway, worker)
            ]
            stack.callback(lambda: [keeper.cancel() for keeper in keepers])
            await self._ready(coordinator, gateway)
            self._record(stack, url, gateway)
            self._welcome(url, gateway)
            reloading = asyncio.create_task(self._reload(worker), name="reload") if self._plan.reload else None
            await self._shutdown.wait()
            self._stopping.set()
            if reloading is not None:
                reloading.cancel()
                await asyncio.wait((reloading,))
        return None

    # -- parts --------------------------------------------------------------------------------------------------

    async def _broker(self, stack: AsyncExitStack) -> str:
        if self._plan.nats_url is not None:
            return self._plan.nats_url
        server = await stack.enter_async_context(EmbeddedServer(self._plan.state / "nats"))
        keeper = asyncio.create_task(self._keep_broker(server), name="nats")
        stack.callback(keeper.cancel)
        return server.url

    async def _keep_broker(self, server: EmbeddedServer) -> None:
        while True:
            code = await server.wait()
            self._say("nats", f"nats-server ended with exit code {code}; starting it again")
            try:
                await server.restart()
            except CallboardError as error:
                self._say("nats", str(error))
                await asyncio.sleep(_BACKOFF_S[1])

    def _child(self, name: str, words: tuple[str, ...], url: str) -> Child:
        environment: Mapping[str, str] = {
            "NATS_URL": url,
            "CALLBOARD_NAMESPACE": self._plan.namespace,
            "CALLBOARD_GRACE_S": os.environ.get("CALLBOARD_GRACE_S", _GRACE_S),
        }
        verbose = ("-v",) * self._plan.verbose
        child = Child(name, (name, *words, *verbose), environment, self._say)
        self._children.append(child)
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
        """Starts a child again when it ends; a worker whose module is at fault waits for a change of it."""
        delay = _BACKOFF_S[0]
        while not self._stopping.is_set():
            begun = asyncio.get_running_loop().time()
            await child.start()
            code = await child.wait()
            if self._stopping.is_set():
                return
            if code == 0:
                delay = 0.0  # it was told to stop, to be reloaded
            elif child.name == "worker" and code == USAGE and self._plan.reload:
                self._say("dev", "the worker waits for a change of its files")
                await self._changed(child)
                delay = 0.0
            else:
                delay = _BACKOFF_S[0] if asyncio.get_running_loop().time() - begun > _BACKOFF_S[1] else delay
                self._say("dev", f"{child.name} ended with exit code {code}; starting it again")
            await asyncio.sleep(delay)
            delay = min(max(delay, _BACKOFF_S[0]) * 2, _BACKOFF_S[1])

    async def _changed(self, child: Child) -> None:
        self._wake = asyncio.Event()
        await self._wake.wait()

    async def _reload(self, worker: Child) -> None:
        top = folder_of(self._plan.target)
        async for files in changes(top, self._stopping):
            names = ", ".join(str(file.relative_to(top) if file.is_relative_to(top) else file) for file in files[:3])
            self._say("dev", f"{names} changed: reloading the worker")
            wake = getattr(self, "_wake", None)
            if worker.pid is None and wake is not None:
                wake.set()
            else:
                await worker.stop(_STOP_S)

    async def _ready(self, *children: Child) -> None:
        for child in children:
            try:
                async with asyncio.timeout(_READY_S):
                    await child.ready.wait()
            except TimeoutError:
                raise Unavailable(f"{child.name} was not ready within {_READY_S:g} s: its log is above") from None

    async def _end(self) -> None:
        """The worker first, so that the coordinator takes what it hands back."""
        self._stopping.set()
        for group in (("worker",), ("gateway", "coordinator")):
            ends = [child.stop(_STOP_S) for child in self._children if child.name in group]
            await asyncio.gather(*ends)

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
        path.write_bytes(msgspec.json.encode(record))
        path.chmod(0o600)  # the URL may hold a password

        def remove() -> None:
            with suppress(OSError):
                path.unlink()

        stack.callback(remove)

    def _welcome(self, url: str, gateway: Child) -> None:
        where = _url_of(gateway)
        print(f"NATS     {url}")
        print(f"gateway  {where}")
        print(f"API docs {where}/docs")
        print(f"state    {self._plan.state}")
        print("In this folder the other commands find it by themselves: callboard agents, callboard tail, …")
        print("Ctrl-C ends everything.", flush=True)

    def _say(self, name: str, line: str) -> None:
        label = f"{name:<11} |"
        if self._paint:
            label = f"\x1b[{_COLORS.get(name, '0')}m{label}\x1b[0m"
        with suppress(OSError):
            note(f"{label} {line}")


def _url_of(gateway: Child) -> str:
    words = gateway.line.split()
    return words[2] if len(words) > 2 else ""
