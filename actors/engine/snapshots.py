"""A graph's snapshots as checkpoints, and back."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...store.checkpoints import State
from ...topics import codec
from ...topics.messages import Source
from ..graph.errors import UnknownChannel, UnknownNode
from ..graph.ground import Shape, Snapshot, Task
from ..migrations import migrated_raws, unfitting


class _Planned(msgspec.Struct, omit_defaults=True):
    """A task as JSON. No array: a plain task beside sent ones has no input, and an array cannot leave it out."""

    node: str
    number: int | None = None
    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Plan(msgspec.Struct, omit_defaults=True):
    """What an engine needs to go on, besides the values and the names of the next nodes."""

    next: list[_Planned] | None = None
    """None: the names in the checkpoint say everything."""
    deferred: list[_Planned] = []
    joins: dict[str, tuple[str, ...]] = {}


_NOTHING = _Plan()
_decode = msgspec.json.Decoder(_Plan).decode
_SOURCES: dict[str, Source] = {"input": "input", "loop": "loop", "update": "update", "fork": "fork"}


def plan_of(snapshot: Snapshot, shape: Shape) -> bytes | None:
    """The plan of a snapshot, as JSON; None where the names of its next nodes are all there is."""
    plain = all(task.number is None for task in snapshot.next)
    plan = _Plan(
        next=None if plain else _planned(snapshot.next, shape),
        deferred=_planned(snapshot.deferred, shape),
        joins=dict(snapshot.joins),
    )
    return None if plan == _NOTHING else msgspec.json.encode(plan)


def _planned(tasks: Sequence[Task], shape: Shape) -> list[_Planned]:
    found = []
    for task in tasks:
        given = shape.dump_input(task)
        found.append(_Planned(task.node, task.number, msgspec.UNSET if given is None else msgspec.Raw(given)))
    return found


def snapshot_of(state: State, shape: Shape) -> Snapshot:
    """The snapshot that a checkpoint holds, in today's form and under today's names. Raises MigrationMissing,
    MigrationFailed."""
    made = state.saved.checkpoint
    try:
        return _snapshot(state, shape, migrated_raws(state.raws, shape.steps(made.version, made.schema)))
    except (UnknownChannel, UnknownNode, codec.DecodeError) as error:
        raise unfitting(made.agent, made.version, shape.version, error) from error


def _snapshot(state: State, shape: Shape, raws: dict[str, bytes]) -> Snapshot:
    made = state.saved.checkpoint
    plan = _NOTHING if state.plan is None else _decode(state.plan)
    values = {shape.channel(name) or name: shape.restore(name, raw) for name, raw in raws.items()}
    tasks = _next_of(state)
    return Snapshot(
        step=made.step,
        source="fork" if made.source == "fork" else "update" if made.source == "update" else "loop",
        values=values,
        next=_loaded(tasks, shape),
        ran=tuple(key_now(key, shape) for key in made.ran),
        joins=plan.joins,
        deferred=_loaded(plan.deferred, shape),
        heard=made.heard,
        id=state.saved.id,
        parent=state.saved.parent or "",
    )


def _next_of(state: State) -> list[_Planned]:
    plan = _NOTHING if state.plan is None else _decode(state.plan)
    return [_Planned(name) for name in state.saved.checkpoint.next] if plan.next is None else plan.next


def key_now(key: str, shape: Shape) -> str:
    """The key of a task under the name that its node has today."""
    node, mark, number = key.partition("#")
    return f"{shape.node(node) or node}{mark}{number}"


def former_keys(state: State, shape: Shape) -> dict[tuple[int, str], str]:
    """Of the tasks that this checkpoint ran or plans, and whose nodes have other names today: the keys under which the
    journal knows them, by superstep and today's key."""
    made = state.saved.checkpoint
    planned = [Task(task.node, task.number).key for task in _next_of(state)]
    keys = [*((made.step, key) for key in made.ran), *((made.step + 1, key) for key in planned)]
    return {(step, now): key for step, key in keys if (now := key_now(key, shape)) != key}


def _loaded(tasks: Sequence[_Planned], shape: Shape) -> tuple[Task, ...]:
    return tuple(
        shape.load_task(
            task.node, task.number, None if isinstance(task.input, msgspec.UnsetType) else bytes(task.input)
        )
        for task in tasks
    )


def source_of(snapshot: Snapshot) -> Source:
    """What led to it, as the checkpoint says it."""
    return _SOURCES[snapshot.source]


def migrates(state: State, shape: Shape) -> bool:
    """Whether the state is brought into another form."""
    made = state.saved.checkpoint
    return bool(shape.steps(made.version, made.schema))


def renamed(state: State, shape: Shape) -> bool:
    """Whether a channel has another name today, or the state another form."""
    return migrates(state, shape) or any(shape.channel(name) != name for name in state.raws)
