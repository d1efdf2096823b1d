"""Edits of a run's state from outside, as the child of its newest checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ...topics import codec
from ...topics.bus import Bus
from ...topics.errors import IllegalTransition, InvalidInput, StaleFence
from ...topics.messages import RunRecord, Status
from ..agents import AgentRegistry
from ..errors import CheckpointMissing
from ..log import EventLog
from .nodes import require_node
from .piece import joined
from .reader import Reader
from .scribe import Scribe
from .state import KIND, Saved, State

PARKED = frozenset({Status.INPUT_REQUIRED, Status.AUTH_REQUIRED, Status.WAITING, Status.QUEUED})
"""Nobody carries the run out, and somebody will."""
_EMPTY = b"[]"


class Edit(NamedTuple):
    """What is to be changed, by channel; see `Checkpoints.update_state`."""

    values: Mapping[str, Any]
    append: Mapping[str, list[Any]]
    remove: frozenset[str]
    as_node: str | None

    def applied(self, state: State) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """The state after the edit, and what is new in it. Raises InvalidInput, EncodeError."""
        named = [*self.values, *self.append, *self.remove]
        if not named and self.as_node is None:
            raise InvalidInput("the edit says nothing: give values, items to append, or channels to remove")
        if len(named) != len(set(named)):
            raise InvalidInput(f"the edit names a channel twice: {', '.join(sorted(named))}")
        if gone := sorted(self.remove - state.raws.keys()):
            raise InvalidInput(f"the state has no {', '.join(map(repr, gone))} to remove")
        fresh = {name: codec.encode(value) for name, value in self.values.items()}
        for name, items in self.append.items():
            old = state.raws.get(name, _EMPTY)
            if old[:1] != _EMPTY[:1]:
                raise InvalidInput(f"items are appended to {name!r}, which is no list", channel=name)
            fresh[name] = joined([old, codec.encode(items)])
        edited = {name: raw for name, raw in (state.raws | fresh).items() if name not in self.remove}
        return edited, fresh


class Editing:
    """Edits states."""

    def __init__(self, bus: Bus, reader: Reader) -> None:
        self._bus, self._reader = bus, reader
        self._log, self._agents = EventLog(bus), AgentRegistry(bus)

    async def update(self, run: str, edit: Edit, scribe: Scribe) -> Saved:
        """Writes the edited state; see `Checkpoints.update_state`."""
        loaded = await self._log.require(run)
        _require_parked(loaded.record)
        saved = await self._reader.newest(run)
        if saved is None:
            raise CheckpointMissing(f"run {run} has no state yet: nothing is saved of it", run=run)
        state = await self._reader.state(saved)
        edited, fresh = edit.applied(state)
        await self._check(loaded.record, saved, edit.as_node, edited, fresh)
        scribe.resume(state)
        frame = replace(
            saved.checkpoint, attempt=loaded.record.attempt, n=0, source="update", since=saved.since, label="",
            as_node=edit.as_node or "", put={}, kept={}, alias={}, grown={}, plan=None,
        )  # fmt: skip
        sheet = await scribe.sheet(frame, edited.keys(), edited.__getitem__, dict.fromkeys(fresh), state.plan)
        try:
            sequence = await self._log.append(run, KIND, sheet.body(), loaded.sequence)
        except StaleFence as error:
            raise IllegalTransition(
                f"run {run} has gone on meanwhile: look at its state again, and edit that", run=run
            ) from error
        return await self._reader.number(sequence)

    async def _check(
        self, record: RunRecord, saved: Saved, node: str | None, edited: dict[str, bytes], fresh: dict[str, bytes]
    ) -> None:
        """Raises InvalidInput for an edit that does not go with what the run's agent has registered: its nodes, and the
        schema of its state."""
        info = await self._agents.pinned(record.agent, record.version if record.pin else None)
        if node is not None:
            require_node(saved.checkpoint, info, node)
        if info is None or info.state_schema is None:
            return
        form = _form(info.state_schema)
        known = form.get("properties") or {}
        unknown = [name for name in fresh if known and name not in known and not form.get("additionalProperties")]
        if unknown:
            raise InvalidInput(
                f"the state of agent {record.agent!r} has no {unknown[0]!r}: it has {', '.join(known)}",
                channel=unknown[0],
            )
        whole = msgspec.json.encode({name: msgspec.Raw(raw) for name, raw in edited.items()})
        if faults := codec.faults(msgspec.json.encode(info.state_schema), whole):
            raise InvalidInput(
                f"the edited state does not fit the schema of agent {record.agent!r}: {'; '.join(faults)}"
            )


def _form(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema itself, also where it only refers to one of its definitions."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    found: dict[str, Any] = schema.get("$defs", {}).get(name, schema)
    return found


def _require_parked(record: RunRecord) -> None:
    if record.status in PARKED:
        return
    what = "has ended" if record.terminal else "is being carried out"
    raise IllegalTransition(
        f"run {record.id} {what} ({record.status}): its state cannot be edited. Fork it from a checkpoint with the "
        "edit, and go on there",
        run=record.id, status=str(record.status),
    )  # fmt: skip
