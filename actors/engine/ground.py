"""The ground of graphs on workers: their snapshots are checkpoints in the run's log, their notes its journal."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from ...store.checkpoints import State
from ...store.checkpoints.reader import kind_of
from ...store.errors import naming
from ...topics import crash
from ...topics.messages import Cell, Payload, Step, encode
from ..answer import Answer
from ..graph.ground import Desk, Durability, Question, Said, Shape, Snapshot, Task, Writes
from .answers import Answers
from .chain import Chain
from .desk import NodeDesk
from .snapshots import former_keys, key_now, migrates, plan_of, renamed, snapshot_of, source_of

if TYPE_CHECKING:
    from .context import Context
    from .parts import Parts

_BEHIND = 8
"""Snapshots that may be on their way when the next superstep begins, where durability is "async"."""
_read_cell = msgspec.json.Decoder(Cell).decode


class DurableGround:
    """One namespace of one execution; see `Ground` for what each method promises.

    `namespace` names the executions that led here, `path` their nodes alone: the checkpoints of a node's subgraph stand
    under one subject however often the node runs, and say to which execution they belong."""

    def __init__(
        self,
        parts: Parts,
        context: Context,
        shape: Shape,
        durability: Durability,
        answers: Answers | None = None,
        namespace: str = "",
        path: str = "",
    ) -> None:
        self._parts, self._context, self._shape, self._durability = parts, context, shape, durability
        self.answers = answers or Answers(parts)
        self._namespace, self._path = namespace, path
        self._prefix = f"{namespace}|" if namespace else ""
        self._chain: Chain | None = None
        self._begun = False
        self._last: Snapshot | None = None
        self._notes: dict[str, Writes] = {}
        self._unwritten: list[tuple[int, Task, Writes]] = []
        self._whole = False
        self._held: Snapshot | None = None
        self._touched: set[str] = set()
        self._pending: deque[asyncio.Future[int]] = deque()
        self._below: dict[str, DurableGround] = {}
        self._former: dict[tuple[int, str], str] = {}
        """Under which keys the journal knows tasks whose nodes have other names today."""

    # -- where it begins ----------------------------------------------------------------------------------------

    async def load(self) -> Snapshot | None:  # noqa: D102  # Ground says it
        if not self._begun:
            self._begun = True
            if not self._namespace:
                await self.answers.begin()
            state = await self._stored()
            if state is not None:
                await self._take_up(state)
        return self._last

    async def edited(self, snapshot: Snapshot) -> Snapshot:  # noqa: D102
        for edit in self.answers.edits(self._prefix, snapshot.step):
            self._last = snapshot
            await self._edit(edit)
            snapshot = self._last
        return snapshot

    async def _take_up(self, state: State) -> None:
        """Goes on from a checkpoint: of this run, or of one that is retried or forked."""
        self._last = snapshot_of(state, self._shape)
        self._goes_on(state)
        fork = self._parts.record.forked_from
        if state.saved.checkpoint.as_node:
            await self._edit({}, state.saved.checkpoint.as_node)
        if self._namespace or fork is None or state.saved.sequence != fork.checkpoint:
            if not migrates(state, self._shape):  # what a task wrote in the old form is not taken: it runs again
                await self._load_notes(self._last.step + 1)
            return
        if fork.update is not None:
            with naming("the edit of the state", self._parts.record.id):
                values = msgspec.json.decode(await self._parts.blobs.value(fork.update))
            await self._edit(values, fork.as_node)
        self._last = replace(self._last, source="fork", heard=0)
        self._former = {}  # its own log knows today's names alone
        await self._write(self._last, {})

    async def _edit(self, values: Any, as_node: str | None = None) -> None:
        """Writes values into the state; they are saved with the next snapshot, and until then follow from the journal
        again."""
        assert self._last is not None
        self._last = await self._shape.edited(self._last, values, as_node)
        self._whole = True

    async def _stored(self) -> State | None:
        """The newest checkpoint of this namespace that earlier attempts have left for this execution."""
        memory, known = self._parts.memory, self._parts.journal.snapshots
        if not self._namespace:
            return None if memory.anew else memory.begun
        sequence = known.get(kind_of(self._path))
        if sequence is None:
            return None
        saved = await memory.checkpoints.reader.number(sequence)
        return await memory.checkpoints.reader.state(saved) if saved.checkpoint.scope == self._namespace else None

    def _goes_on(self, state: State) -> None:
        self._chain = self._parts.memory.chain(self._path, state)
        self._whole = renamed(state, self._shape)
        self._former = former_keys(state, self._shape)

    def _key(self, step: int, key: str) -> str:
        """What names a task in the journal."""
        return self._former.get((step, key), key)

    async def _load_notes(self, step: int) -> None:
        prefix = f"{self._prefix}{step}/"
        for at, entry in self._parts.journal.steps.items():
            if entry.kind == "node" and at.startswith(prefix):
                cell = _read_cell(await self._parts.blobs.value(entry.value or Payload()))
                raw = await self._parts.memory.checkpoints.cells.read(cell)
                self._notes[key_now(at[len(prefix) :], self._shape)] = self._shape.load_writes(raw)

    async def base(self) -> Snapshot | None:  # noqa: D102
        state = None if self._namespace else await self._parts.memory.base()
        if state is None:
            return None
        self._goes_on(state)
        self._former = {}
        found = replace(snapshot_of(state, self._shape), heard=0)
        fork = self._parts.record.forked_from
        if fork is not None and fork.update is not None:
            values = msgspec.json.decode(await self._parts.blobs.value(fork.update))
            self._whole = True
            found = await self._shape.edited(found, values)
        return found

    # -- what it leaves -----------------------------------------------------------------------------------------

    async def save(self, snapshot: Snapshot, *, last: bool = False) -> str:  # noqa: D102
        self._parts.check()
        self._last = snapshot
        self._notes = {}
        self._unwritten.clear()
        self._below.clear()
        if self._durability == "exit":
            self._hold_back(snapshot)
            return await self._write_held() if last else ""
        changes = self._changes(snapshot)
        return await self._write(snapshot, changes)

    def _changes(self, snapshot: Snapshot) -> dict[str, bytes | None]:
        changes: dict[str, bytes | None] = dict.fromkeys(snapshot.replaced)
        for name, items in snapshot.appended.items():
            changes[name] = self._shape.dump_items(name, items)
        return changes

    def _hold_back(self, snapshot: Snapshot) -> None:
        self._held = snapshot
        self._touched.update(snapshot.replaced, snapshot.appended)

    async def _write_held(self) -> str:
        snapshot, self._held = self._held, None
        if snapshot is None:
            return ""
        changes: dict[str, bytes | None] = dict.fromkeys(sorted(self._touched))
        self._touched.clear()
        return await self._write(snapshot, changes)

    async def _write(self, snapshot: Snapshot, changes: dict[str, bytes | None]) -> str:
        parts, shape = self._parts, self._shape
        if self._chain is None:
            self._chain = parts.memory.chain(self._path, None)
        frame = parts.memory.frame(
            source=source_of(snapshot), step=snapshot.step, ns=self._path, scope=self._namespace,
            fingerprint=shape.fingerprint, schema=str(shape.schema_version), ran=list(snapshot.ran),
            heard=snapshot.heard, since=self._since() if self._durability == "exit" else 0,
            next=[task.key for task in snapshot.next],
        )  # fmt: skip
        whole, self._whole = self._whole, False
        stored = await self._chain.save(
            frame, snapshot.values.keys(), lambda name: shape.dump(name, snapshot.values[name]),
            None if whole else changes, plan_of(snapshot, shape),
        )  # fmt: skip
        if self._durability == "async":
            self._pending.append(stored)
            if len(self._pending) > _BEHIND:
                await self._pending.popleft()
            return ""
        sequence = await stored
        crash.point("worker.after-checkpoint-write")
        return str(sequence)

    def _since(self) -> int:
        """With "exit" the journal has entries of the superstep under way before the snapshot that it goes on from."""
        begun = self._parts.memory.begun
        return 1 if begun is None or begun.saved.run != self._parts.record.id else begun.saved.since

    async def flush(self) -> None:  # noqa: D102
        self._parts.check()
        with self._parts.hold.working():
            await self._write_held()
            unwritten, self._unwritten = self._unwritten, []
            for step, task, writes in unwritten:
                await self._write_note(step, task, writes)
            await self._parts.writer.flush()

    # -- finished tasks of a superstep --------------------------------------------------------------------------

    def noted(self, step: int) -> Mapping[str, Writes]:  # noqa: D102
        return self._notes if self._last is not None and step == self._last.step + 1 else {}

    async def note(self, step: int, task: Task, writes: Writes) -> None:  # noqa: D102
        self._notes[task.key] = writes
        if self._durability == "exit":  # it belongs to a state that is not saved yet
            self._unwritten.append((step, task, writes))
            return
        with self._parts.hold.working():
            await self._write_note(step, task, writes)

    async def _write_note(self, step: int, task: Task, writes: Writes) -> None:
        parts = self._parts
        parts.check()
        cell = await parts.memory.checkpoints.cells.make(self._shape.dump_writes(task, writes))
        entry = Step(
            at=f"{self._prefix}{step}/{self._key(step, task.key)}", name=task.node, attempt=parts.record.attempt,
            n=parts.writer.number(), kind="node", value=await parts.blobs.payload(encode(cell)),
        )  # fmt: skip
        crash.point("worker.before-note-write")
        await parts.steps.note(entry)
        crash.point("worker.after-note-write")

    # -- what its tasks may ask ---------------------------------------------------------------------------------

    def inside(self, step: int, task: Task, tries: int = 1) -> AbstractContextManager[Desk]:  # noqa: D102
        place = f"{self._prefix}{step}/{self._key(step, task.key)}"
        return NodeDesk(self._parts, self._context, self.answers, place, tries)

    def asked(self, question: Question) -> Answer:  # noqa: D102
        key = self._key(question.step, question.task)
        return self.answers.get(f"{self._prefix}{question.step}/{key}!{question.when}", question)

    def ask(self) -> None:  # noqa: D102
        self.answers.ask()

    async def heard(self, position: int) -> Said | None:  # noqa: D102
        new = [] if self._namespace else await self._parts.inbox.since(position)
        if not new:
            return None
        blobs = self._parts.blobs
        contents = [msgspec.json.decode(await blobs.value(one.word.content or Payload())) for one in new]
        return Said(tuple(contents), new[-1].sequence)

    def below(self, step: int, task: Task, shape: Shape) -> DurableGround:  # noqa: D102
        key = self._key(step, task.key)
        here = f"{self._prefix}{step}/{key}"
        found = self._below.get(here)
        if found is None:
            path = f"{self._path}|{key}" if self._path else key
            found = DurableGround(self._parts, self._context, shape, self._durability, self.answers, here, path)
            self._below[here] = found
        return found
