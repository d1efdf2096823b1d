"""The workers that hold runs, asked directly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Literal

import msgspec

from ...topics.bus import Bus
from ...topics.errors import CallboardError, NoResponders
from ...topics.messages import WorkerInfo
from ...topics.subjects import require_token

_PING_S = 1.0
_AT_ONCE = 32

State = Literal["holds", "gone", "silent", "forgot"]
"""`holds`: alive, and it names the run. `gone`: nobody answers for it. `silent`: it does not answer in time. `forgot`:
alive, and it does not name the run."""

_decode = msgspec.json.Decoder(WorkerInfo).decode


class Workers:
    """Asks each worker once."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._known: dict[str, frozenset[str] | Literal["gone", "silent"]] = {}

    async def ask(self, workers: Iterable[str]) -> None:
        """Asks those that were not asked yet."""
        new = sorted(set(workers) - self._known.keys())
        for start in range(0, len(new), _AT_ONCE):
            await asyncio.gather(*map(self._ask, new[start : start + _AT_ONCE]))

    async def _ask(self, worker: str) -> None:
        try:
            subject = f"{self._bus.subjects.worker}.{require_token('worker', worker)}"
            message = await self._bus.request(subject, timeout_s=_PING_S)
            self._known[worker] = frozenset(_decode(message.data).running)
        except NoResponders:
            self._known[worker] = "gone"
        except (CallboardError, msgspec.MsgspecError):
            self._known[worker] = "silent"

    def state(self, worker: str, run: str) -> State:
        """What is known of a worker that should hold the run."""
        known = self._known.get(worker, "silent")
        if known == "gone" or known == "silent":
            return known
        return "holds" if run in known else "forgot"
