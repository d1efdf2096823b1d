"""Edits of a run's state from outside, as the child of its newest checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from ...topics import codec
from ...topics.bus import Bus
from ...topics.errors import IllegalTransition, InvalidInput, StaleFence
from ...topics.messages import RunRecord, Status
from ..agents import AgentRegistry
from ..errors import CheckpointMissing
from ..log import EventLog
from .reader import Reader
from .scribe import Scribe
from .state import KIND, Saved, State

PARKED = frozenset({Status.INPUT_REQUIRED, Status.AUTH_REQUIRED, Status.WAITING, Status.QUEUED})
"""Nobody carries the run out, and somebody will."""


class Editing:
    """Edits states."""

    def __init__(self, bus: Bus, reader: Reader) -> None:
        self._bus, self._reader = bus, reader
        self._log, self._agents = EventLog(bus), AgentRegistry(bus)

    async def update(self, run: str, values: Mapping[str, Any], scribe: Scribe, as_node: str | None = None) -> Saved:
        """Writes the edited state; see `Checkpoints.update_state`."""
        loaded = await self._log.require(run)
        _require_parked(loaded.record)
        saved = await self._reader.newest(run)
        if saved is None:
            raise CheckpointMissing(f"run {run} has no state yet: nothing is saved of it", run=run)
        state = await self._reader.state(saved)
        raws = {name: codec.encode(value) for name, value in values.items()}
        await self._check(loaded.record, state, raws)
        scribe.resume(state)
        edited = state.raws | raws
        frame = replace(
            saved.checkpoint, attempt=loaded.record.attempt, n=0, source="update", since=saved.since, label="",
            as_node=as_node or "", put={}, kept={}, alias={}, grown={}, plan=None,
        )  # fmt: skip
        sheet = await scribe.sheet(frame, edited.keys(), edited.__getitem__, dict.fromkeys(raws), state.plan)
        try:
            sequence = await self._log.append(run, KIND, sheet.body(), loaded.sequence)
        except StaleFence as error:
            raise IllegalTransition(
                f"run {run} has gone on meanwhile: look at its state again, and edit that", run=run
            ) from error
        return await self._reader.number(sequence)

    async def _check(self, record: RunRecord, state: State, raws: dict[str, bytes]) -> None:
        """Raises InvalidInput for a state that is none by the schema that the agent's newest worker has registered."""
        info = await self._agents.current(record.agent)
        schema = info.state_schema if info is not None else None
        if schema is None:
            return
        known = schema.get("properties") or {}
        unknown = [name for name in raws if known and name not in known and not schema.get("additionalProperties")]
        if unknown:
            raise InvalidInput(
                f"the state of agent {record.agent!r} has no {unknown[0]!r}: it has {', '.join(known)}",
                channel=unknown[0],
            )
        edited = msgspec.json.encode({name: msgspec.Raw(raw) for name, raw in (state.raws | raws).items()})
        if faults := codec.faults(msgspec.json.encode(schema), edited):
            raise InvalidInput(
                f"the edited state does not fit the schema of agent {record.agent!r}: {'; '.join(faults)}"
            )


def _require_parked(record: RunRecord) -> None:
    if record.status in PARKED:
        return
    what = "has ended" if record.terminal else "is being carried out"
    raise IllegalTransition(
        f"run {record.id} {what} ({record.status}): its state cannot be edited. Fork it from a checkpoint with the "
        "edit, and go on there",
        run=record.id, status=str(record.status),
    )  # fmt: skip
