"""A run whose checkpoints are written as an attempt writes them, and a plain model of them to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from callboard.store.blobs import Blobs
from callboard.store.checkpoints import Checkpoints, Saved, State
from callboard.store.checkpoints.reader import kind_of
from callboard.store.log import EventLog
from callboard.topics.bus import Bus
from callboard.topics.ids import new_run_id
from callboard.topics.messages import Checkpoint, Payload, RunRecord, Status

dump = msgspec.json.encode


def record(run: str, status: Status = Status.RUNNING, **more: Any) -> RunRecord:
    stamp = datetime.now(UTC)
    return RunRecord(
        id=run, root=run, agent="a", status=status, input=Payload(), created_at=stamp, updated_at=stamp, attempt=1,
        **more,
    )  # fmt: skip


class Chain:
    """Writes one chain. `save(values)` looks at every value, `save(values, changes)` at those named."""

    def __init__(self, bus: Bus, run: str | None = None, **options: Any) -> None:
        self.bus, self.run = bus, run or new_run_id()
        self.log, self.store = EventLog(bus), Checkpoints(bus, Blobs(bus))
        self.scribe = self.store.scribe(self._flush, **options)
        self.owner = self.n = self.bytes = 0
        self.more: dict[str, Any] = {}
        """What else the run's record says."""
        self.saved: list[tuple[int, dict[str, Any]]] = []
        """What was saved, by sequence, as it was."""

    async def _flush(self) -> None:
        """Everything is written at once."""

    async def begin(self, status: Status = Status.RUNNING) -> Chain:
        self.owner = await self.log.append_state(record(self.run, status, **self.more), self.owner)
        return self

    async def state(self, status: Status) -> None:
        self.owner = await self.log.append_state(record(self.run, status, **self.more), self.owner)

    async def save(
        self, values: Mapping[str, Any], changes: Mapping[str, list[Any] | None] | None = None, namespace: str = "",
        plan: Any = None, **more: Any,
    ) -> int:  # fmt: skip
        self.n += 1
        frame = Checkpoint(
            attempt=1, n=self.n, source=more.pop("source", "loop"), agent="a", step=self.n, ns=namespace, **more
        )
        known = None if changes is None else {k: None if v is None else dump(v) for k, v in changes.items()}
        sheet = await self.scribe.sheet(
            frame, values.keys(), lambda name: dump(values[name]), known, None if plan is None else dump(plan)
        )
        body = sheet.body()
        self.bytes += len(body)
        sequence = await self.log.append(self.run, kind_of(namespace), body, self.owner)
        sheet.written(sequence)
        self.saved.append((sequence, msgspec.json.decode(dump(values))))
        return sequence

    async def again(self, **options: Any) -> State:
        """Goes on as another process would: from what the log says."""
        state = await self.store.load(self.run)
        assert state is not None
        self.scribe = self.store.scribe(self._flush, state, **options)
        return state

    async def newest(self) -> Saved:
        found = await self.store.newest(self.run)
        assert found is not None
        return found


async def agrees(chain: Chain) -> None:
    """Every checkpoint that was saved can be loaded, and says what it was."""
    for sequence, values in chain.saved:
        state = await chain.store.load(chain.run, str(sequence))
        assert state is not None
        assert state.values == values
