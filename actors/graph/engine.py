"""The engine: one superstep after the other, until nothing is planned.

A superstep runs its tasks in parallel, each on its own copy of the state as it was at the start, reconciles what they
wrote in a fixed order, plans what comes next, and has the ground keep the snapshot. Whatever the timing, the same input
gives the same snapshots.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, Literal

from .compiled import Compiled
from .errors import StepLimit
from .given import Given
from .ground import Ground, Question, Said, Snapshot, Task, Unanswered, Writes
from .plan import Plan, Planned, first
from .reconcile import Reconciled
from .superstep import Superstep
from .watching import Watch, event

log = logging.getLogger(__name__)


class Engine:
    """Carries out one execution of a graph on its ground."""

    def __init__(
        self, graph: Compiled, ground: Ground, *, threads: Executor | None = None, watch: Watch | None = None
    ) -> None:
        self._graph, self._ground = graph, ground
        self._threads, self._watch = threads, watch
        self._added: set[str] = set()
        self._former: dict[str, str] = {}
        """Of the superstep that was under way: by the key of a task today, the one that it had."""

    async def run(self, input: Any = None) -> Snapshot:
        """Goes on from the ground's newest snapshot, or begins with the input; gives the last snapshot.

        Raises what a node raised (an ExceptionGroup if several did), Unanswered with all open questions, StepLimit."""
        try:
            loaded = await self._ground.load()
            snapshot = await self._begin(input) if loaded is None else self._adopted(loaded)
            while True:
                snapshot = await self._ground.edited(snapshot)
                self._pause(snapshot)
                if not snapshot.next:
                    break
                snapshot = await self._step(snapshot)
        except (Exception, Unanswered):
            await self._ground.flush()
            raise
        return snapshot

    def _adopted(self, loaded: Snapshot) -> Snapshot:
        """What was loaded, under the names of today; channels that have come since are saved with the next snapshot."""
        snapshot = self._graph.adopted(loaded)
        if snapshot is not loaded:
            self._added = set(snapshot.replaced)
            before = [*loaded.ran, *(task.key for task in loaded.next)]
            now = [*snapshot.ran, *(task.key for task in snapshot.next)]
            self._former = {new: old for old, new in zip(before, now, strict=True) if old != new}
        return snapshot

    async def _begin(self, input: Any) -> Snapshot:
        """Superstep 0: the input, written over the defaults or over what the ground begins with."""
        schema, base = self._graph.schema, await self._ground.base()
        values = {**schema.initial(), **(base.values if base else {})}
        written = Reconciled(schema.channels, values, 0)
        given = schema.taken_apart(input.read(self._graph) if isinstance(input, Given) else input)
        written.write("input", Writes(schema.prepare(given, "the input")))
        planned = await first(self._graph, lambda: schema.view(written.values), written.changed)
        written.replaced.update(values.keys() - (base.values.keys() if base else ()))
        for name in written.replaced & written.appended.keys():
            del written.appended[name]
        return await self._save(0, (), written, planned, base.heard if base else 0)

    async def _step(self, before: Snapshot) -> Snapshot:
        graph, step = self._graph, before.step + 1
        if before.step >= graph.step_limit:
            raise StepLimit(
                f"graph {graph.name!r} has done {before.step} supersteps, its limit: raise step_limit, or see why it "
                f"does not end (next: {', '.join(task.key for task in before.next)})",
                graph=graph.name,
                limit=graph.step_limit,
            )
        if self._watch is not None:
            self._watch(event("started", step, data=[task.key for task in before.next]))
        superstep = Superstep(graph, self._ground, before, self._threads, self._watch, Engine, self._former)
        ended = await superstep.run()
        return await self._ended(before, step, ended)

    async def _ended(self, before: Snapshot, step: int, ended: Sequence[tuple[Task, Writes]]) -> Snapshot:
        graph, schema = self._graph, self._graph.schema
        written = Reconciled(schema.channels, before.values, step)
        for task, writes in ended:
            written.write(task.key, writes)
        self._note_added(written)
        self._former = {}
        heard = await self._hear(before.heard, written) if graph.inbox else before.heard
        planned = await self._planned(before, ended, written)
        return await self._save(step, tuple([task.key for task, _ in ended]), written, planned, heard)

    def _note_added(self, written: Reconciled) -> None:
        written.replaced.update(self._added)
        for name in self._added:
            written.appended.pop(name, None)
        self._added = set()

    async def _planned(self, before: Snapshot, ended: Sequence[tuple[Task, Writes]], written: Reconciled) -> Planned:
        graph = self._graph
        if len(ended) == 1 and not before.deferred:
            task, writes = ended[0]
            if writes.goto is None and (follow := graph.follow.get(task.node)) is not None:
                return Planned(follow, before.joins)
        plan = Plan(graph, lambda: graph.schema.view(written.values), before.joins)
        await plan.follow([(task.node, writes) for task, writes in ended])
        if graph.triggers:
            plan.changed(written.changed)
        return plan.made(before.deferred)

    async def _hear(self, position: int, written: Reconciled) -> int:
        said: Said | None = await self._ground.heard(position)
        if said is None:
            return position
        assert self._graph.inbox is not None
        channel = self._graph.schema.channels[self._graph.inbox]
        for at, message in enumerate(said.messages):
            try:
                update = channel.prepare(self._graph.hear(message) if self._graph.hear else message, "what was said")
            except Exception as error:  # noqa: BLE001  # anybody may say anything: the run goes on
                log.warning("graph %s: a message to the run is left out: %s", self._graph.name, error)
                continue
            written.write(f"said.{position}.{at}", Writes({channel.name: update}))
        return said.position

    async def _save(
        self, step: int, ran: tuple[str, ...], written: Reconciled, planned: Planned, heard: int
    ) -> Snapshot:
        snapshot = Snapshot(
            step=step,
            source="loop" if step else "input",
            values=written.values,
            replaced=tuple(sorted(written.replaced)),
            appended=written.appended,
            next=planned.next,
            ran=ran,
            joins=planned.joins,
            deferred=planned.deferred,
            heard=heard,
        )
        name = await self._ground.save(snapshot, last=not planned.next)
        if self._watch is not None:
            self._watch(event("superstep", step, data=snapshot, checkpoint=name))
        return snapshot

    def _pause(self, snapshot: Snapshot) -> None:
        """Asks what is to be asked between two supersteps. Raises Unanswered."""
        if not self._graph.pauses:
            return
        open_: list[Question] = []
        questions = [*self._stops(snapshot.ran, snapshot.step, "after")]
        questions += self._stops([task.key for task in snapshot.next], snapshot.step + 1, "before")
        for question in questions:
            try:
                self._ground.asked(question)
            except Unanswered as stop:
                open_ += stop.questions
        if open_:
            raise Unanswered(*open_)

    def _stops(self, keys: Sequence[str], step: int, when: Literal["before", "after"]) -> Iterator[Question]:
        for key in keys:
            node = self._graph.nodes[key.partition("#")[0]]
            if node.after if when == "after" else node.before:
                place = self._former.get(key, key)
                yield Question(step=step, task=place, when=when, payload={"node": key, "interrupt": when})
