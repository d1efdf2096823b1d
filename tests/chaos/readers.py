"""Clients that read the events of a run over HTTP, from one gateway and another, whichever answers."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import httpx

_PAUSE_S = 0.2


class Readers:
    """`follow(run)`; `finish()` once all runs have ended; `ids` are the event ids of each run as they came."""

    def __init__(self, gateways: list[str]) -> None:
        self._gateways = gateways
        self.ids: dict[str, list[str]] = {}
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.problems: list[str] = []

    def follow(self, run: str, turn: int) -> None:
        """Begins to read, at the gateway whose turn it is."""
        if run not in self.ids:
            self.ids[run] = []
            task = asyncio.create_task(self._read(run, turn), name=f"reader-{run}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def finish(self, within_s: float) -> None:
        """Waits until every reader has seen its run's end."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)
        for task in self._tasks:
            self.problems.append(f"{task.get_name()} has not seen the end of its run")
        await self.close()

    async def close(self) -> None:
        """Ends what still reads."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, run: str, turn: int) -> None:
        async with httpx.AsyncClient(timeout=httpx.Timeout(5.0, read=30.0)) as http:
            while True:
                url = self._gateways[turn % len(self._gateways)]
                turn += 1
                with suppress(httpx.HTTPError, OSError):
                    if await self._stream(http, url, run):
                        return
                await asyncio.sleep(_PAUSE_S)

    async def _stream(self, http: httpx.AsyncClient, url: str, run: str) -> bool:
        """Reads until the connection ends; whether the gateway says that nothing more will come."""
        ids, pending = self.ids[run], ""
        headers = {"Last-Event-ID": ids[-1]} if ids else {}
        self.connections += 1
        async with http.stream("GET", f"{url}/runs/{run}/events", headers=headers) as stream:
            if stream.status_code != 200:
                return stream.status_code == 204
            async for line in stream.aiter_lines():
                if line.startswith("id:"):
                    pending = line[3:].strip()
                elif not line and pending:  # an event counts once it is whole
                    ids.append(pending)
                    pending = ""
        return False
