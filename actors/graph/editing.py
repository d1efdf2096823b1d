"""Edits of a snapshot, as if a node had made them."""

from __future__ import annotations

from typing import Any

from ...topics.errors import did_you_mean
from .command import START
from .compiled import Compiled
from .errors import UnknownNode
from .ground import Snapshot, Writes
from .plan import Plan, Planned
from .reconcile import Reconciled


async def edited(graph: Compiled, snapshot: Snapshot, values: Any, as_node: str | None = None) -> Snapshot:
    """The child of a snapshot with these values written through the reducers, with source "update".

    Without `as_node` what is planned stays planned, and the superstep that is under way goes on with the new state.
    With it the snapshot is the one after a superstep in which that node alone had ended: its edges say what comes next.
    Raises InvalidUpdate, UnknownChannel, UnknownNode; the ids are left empty."""
    schema = graph.schema
    step = snapshot.step if as_node is None else snapshot.step + 1
    written = Reconciled(schema.channels, snapshot.values, step)
    writes = Writes(schema.prepare(schema.taken_apart(values), "the edit"))
    written.write(f"edit.{snapshot.id}", writes)
    schema.require_whole(written.values)
    planned = Planned(snapshot.next, snapshot.joins, snapshot.deferred)
    if as_node is not None:
        planned = await _after(graph, snapshot, as_node, written)
    return Snapshot(
        step=step,
        source="update",
        values=written.values,
        replaced=tuple(sorted(written.replaced)),
        appended=written.appended,
        next=planned.next,
        joins=planned.joins,
        deferred=planned.deferred,
        heard=snapshot.heard,
    )


async def _after(graph: Compiled, snapshot: Snapshot, node: str, written: Reconciled) -> Planned:
    now = node if node == START else graph.node_now(node)
    if now is None:
        hint = did_you_mean(node, graph.nodes)
        raise UnknownNode(
            f"as_node names {node!r}, which graph {graph.name!r} does not have{hint}", graph=graph.name, node=node
        )
    plan = Plan(graph, lambda: graph.schema.view(written.values), snapshot.joins)
    await plan.follow([(now, Writes())])
    plan.changed(written.changed)
    return plan.made(snapshot.deferred)
