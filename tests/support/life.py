"""A model of the life of runs, written from DESIGN §4 and the documentation alone: it knows nothing of the coordinator.

`World` holds all runs of some trees and threads. `world.after(command)` gives the worlds that may follow: what the log
must show once everything has come to rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations
from types import MappingProxyType
from typing import Any, NamedTuple

ENDED = frozenset(
    {"completed", "failed", "canceled", "interrupted", "rolled_back", "timed_out", "rejected", "orphaned"}
)
FINAL = {"cancel": "canceled", "interrupt": "interrupted", "rollback": "rolled_back", "timeout": "timed_out"}
STRENGTH = ["timeout", "interrupt", "cancel", "rollback"]
PATHS = {
    "queued": {"queued", "running", "cancel_requested", "rejected", "failed"},
    "running": {
        "running", "queued", "waiting", "input_required", "cancel_requested", "completed", "failed", "timed_out",
    },
    "waiting": {"queued", "cancel_requested", "failed"},
    "input_required": {"queued", "input_required", "cancel_requested", "failed"},
    "cancel_requested": {"cancel_requested", "canceled", "interrupted", "rolled_back", "timed_out", "orphaned"},
}  # fmt: skip
"""The figure of DESIGN §4. What is at rest when it is canceled may also end at once."""
AT_ONCE = {"canceled", "interrupted", "rolled_back", "timed_out"}
MOST_LOSSES = 5


def legal(before: str, after: str) -> bool:
    """Whether a status may follow another one."""
    return after in PATHS.get(before, ()) or (before in ("queued", "waiting", "input_required") and after in AT_ONCE)


@dataclass(frozen=True)
class Run:
    """What a run is, for everybody outside."""

    id: str
    parent: str | None = None
    detached: bool = False
    status: str = "queued"
    attempt: int = 0
    dispatch: int = 1
    epoch: int = 0
    failures: int = 0
    losses: int = 0
    got_on: int = 0
    worker: str | None = None
    lease: int = 0
    delivery: int = 0
    backoff: bool = False
    waits: tuple[str, ...] = ()
    clock: bool = False
    asked: tuple[str, ...] = ()
    action: str = ""
    scope: str = "run"
    by: str = ""
    orphan: bool = False
    deadline: bool = False
    starves: bool = False
    thread: str | None = None
    policy: str = ""
    held: bool = False

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def resting(self) -> bool:
        """Whether it goes on when what it waits for has come."""
        return self.status in ("waiting", "input_required")

    @property
    def ready(self) -> bool:
        """Whether a worker may have it."""
        return self.status == "queued" and not self.backoff and not self.held


class Command(NamedTuple):
    """Something that happens to a run. `kind` is the name of the method below that says what follows."""

    kind: str
    run: str
    given: Mapping[str, Any] = MappingProxyType({})


@dataclass
class World:
    """Runs, and the order of each thread: who is at work, then who waits."""

    runs: dict[str, Run] = field(default_factory=dict)
    threads: dict[str, list[str]] = field(default_factory=dict)

    def after(self, command: Command) -> list[World]:
        """What may follow."""
        if not self._is_to_be_kept(command):
            return [self._next(command)]
        conflict = command._replace(given={**command.given, "kind": "failed", "retryable": False})
        idle = not self.threads.get(self.runs[command.run].thread or "")
        return [self._next(conflict), *([self._next(command)] if idle else [])]  # it may have changed meanwhile

    def after_all(self, commands: list[Command]) -> list[World]:
        """What may follow when these happen at once: as if in one order or another."""
        found: list[World] = []
        for order in permutations(commands):
            worlds = [self]
            for command in order:
                worlds = [after for world in worlds for after in world.after(command)]
            found += worlds
        return found

    def _is_to_be_kept(self, command: Command) -> bool:
        run = self.runs.get(command.run)
        if command.kind != "end" or command.given["kind"] != "completed" or run is None:
            return False
        return run.policy == "optimistic" and run.status == "running" and run.attempt == command.given["attempt"]

    def _next(self, command: Command) -> World:
        world = World(dict(self.runs), {name: list(order) for name, order in self.threads.items()})
        getattr(world, command.kind)(command.run, **command.given)
        world._come_to_rest()
        return world

    def _set(self, run: str, **changes: Any) -> None:
        self.runs[run] = replace(self.runs[run], **changes)

    def _queue(self, run: str, **changes: Any) -> None:
        self._set(
            run, status="queued", dispatch=self.runs[run].dispatch + 1, worker=None, lease=0, waits=(), clock=False,
            asked=(), backoff=False, **changes,
        )  # fmt: skip

    def _end(self, run: str, status: str) -> None:
        self._set(run, status=status, worker=None, lease=0, waits=(), clock=False, asked=(), backoff=False, held=False)

    def below(self, run: str) -> Iterator[str]:
        """All that it has started and that did not end yet; a detached run lives on its own."""
        for one in list(self.runs.values()):
            if one.parent == run and not one.detached:
                if not one.ended:
                    yield one.id
                yield from self.below(one.id)

    # -- beginnings ---------------------------------------------------------------------------------------------

    def submit(self, run: str, thread: str | None, policy: str, deadline: bool, starves: bool) -> None:
        if run in self.runs:
            return
        apart = policy in ("fork", "optimistic")
        if thread is None or apart:
            kept_in = thread if policy == "optimistic" else None
            self.runs[run] = Run(run, thread=kept_in, policy=policy, deadline=deadline, starves=starves)
            return
        order = self.threads.setdefault(thread, [])
        self.runs[run] = Run(
            run, thread=thread, policy=policy, held=bool(order), dispatch=0 if order else 1, deadline=deadline,
            starves=starves,
        )  # fmt: skip
        if order and policy == "reject":
            self._end(run, "rejected")
        elif order and policy in ("interrupt", "rollback"):
            order.insert(1 + len(self._replacing(order)), run)
        else:
            order.append(run)

    def _replacing(self, order: list[str]) -> list[str]:
        return [one for one in order[1:] if self.runs[one].policy in ("interrupt", "rollback")]

    def children(self, run: str, attempt: int, epoch: int, names: list[str], detached: bool) -> None:
        parent = self.runs[run]
        if (parent.status, parent.attempt, parent.epoch) == ("running", attempt, epoch):
            for name in names:
                self.runs.setdefault(name, Run(name, parent=run, detached=detached))

    # -- attempts -----------------------------------------------------------------------------------------------

    def claim(self, run: str, worker: str, dispatch: int, lease: int, delivery: int) -> None:
        one = self.runs[run]
        if dispatch != one.dispatch or one.ended:
            return
        if one.ready:
            self._begin(run, worker, lease, delivery, one.losses)
        elif one.lease == lease and one.worker and delivery > one.delivery:
            self._taken_over(one, worker, lease, delivery)

    def _taken_over(self, one: Run, worker: str, lease: int, delivery: int) -> None:
        losses = one.losses if worker == one.worker else self._losses(one)
        if one.status == "cancel_requested":
            self._set(one.id, worker=None, lease=0)
        elif losses >= MOST_LOSSES:
            self._set(one.id, losses=losses)
            self._end(one.id, "failed")
        else:
            self._begin(one.id, worker, lease, delivery, losses)

    def write(self, run: str, attempt: int) -> None:
        """The attempt, which owns the run, leaves a result."""
        self._set(run, got_on=attempt)

    def _losses(self, one: Run) -> int:
        """With this one more: those before an attempt that has left a result do not count."""
        return 1 if one.got_on == one.attempt else one.losses + 1

    def _begin(self, run: str, worker: str, lease: int, delivery: int, losses: int) -> None:
        attempt = self.runs[run].attempt + 1
        self._set(run, status="running", attempt=attempt, worker=worker, lease=lease, delivery=delivery, losses=losses)

    def end(self, run: str, attempt: int, kind: str, retryable: bool = True, waits: tuple[str, ...] = (),
            clock: bool = False, tries: int = 2) -> None:  # fmt: skip
        one = self.runs[run]
        if attempt != one.attempt or one.worker is None:
            return
        if one.status == "cancel_requested":
            self._set(run, worker=None, lease=0)
            return
        match kind:
            case "completed":
                self._end(run, "completed")
                if one.policy == "optimistic":  # its turn is over when all that it has started has ended
                    self.threads.setdefault(one.thread or "", []).append(run)
            case "failed" | "timed_out":
                failures = one.failures + 1
                self._set(run, failures=failures)
                if not retryable or failures >= tries:
                    self._end(run, kind)
                else:
                    self._set(run, status="queued", worker=None, lease=0, backoff=True)
            case "suspended" if waits or clock:
                self._rest(run, "waiting", waits=waits, clock=clock)
            case "input_required":
                self._rest(run, "input_required", waits=waits, clock=clock, asked=("1", "2"))
            case _:
                self._queue(run)

    def _rest(self, run: str, status: str, **waits: Any) -> None:
        self._set(run, status=status, failures=0, losses=0, worker=None, lease=0, **waits)

    def lost(self, run: str, worker: str) -> None:
        """The process of a worker is gone, and all that it held."""
        for one in list(self.runs.values()):
            if one.worker == worker and one.status == "running":
                losses = self._losses(one)
                self._set(one.id, losses=losses)
                self._end(one.id, "failed") if losses >= MOST_LOSSES else self._queue(one.id)
            elif one.worker == worker:
                self._set(one.id, worker=None, lease=0)

    # -- words --------------------------------------------------------------------------------------------------

    def cancel(self, run: str, scope: str, action: str) -> None:
        one = self.runs[run]
        if scope == "children" or (scope == "tree" and one.ended):
            for child in list(self.below(run)):
                self._cancel(child, "run", action, run)
        else:
            self._cancel(run, scope, action, "")

    def _cancel(self, run: str, scope: str, action: str, by: str) -> None:
        one = self.runs[run]
        if one.ended:
            return
        if one.status == "cancel_requested":
            action = max(action, one.action, key=STRENGTH.index)
            scope = "tree" if "tree" in (scope, one.scope) else one.scope
            if (action, scope) != (one.action, one.scope):
                self._set(run, action=action, scope=scope, epoch=one.epoch + 1)
            return
        self._set(
            run, status="cancel_requested", epoch=one.epoch + 1, action=action, scope=scope, by=by, waits=(),
            clock=False, asked=(), backoff=False, held=False,
        )  # fmt: skip

    def cancel_deadline(self, run: str, epoch: int) -> None:
        one = self.runs[run]
        if one.status == "cancel_requested" and one.worker and one.epoch == epoch:
            self._set(run, worker=None, lease=0, orphan=bool(one.by))

    def wake(self, run: str) -> None:
        one = self.runs[run]
        if one.resting and (one.waits or one.clock):
            self._queue(run)

    def due(self, run: str, dispatch: int) -> None:
        one = self.runs[run]
        if one.status == "queued" and one.backoff and one.dispatch == dispatch:
            self._queue(run)

    def deadline(self, run: str) -> None:
        if self.runs[run].deadline and self.runs[run].status != "cancel_requested":
            self._cancel(run, "tree", "timeout", "")

    def starved(self, run: str, dispatch: int) -> None:
        one = self.runs[run]
        if one.ready and one.starves and one.dispatch == dispatch:
            self._cancel(run, "tree", "timeout", "")

    def fail(self, run: str) -> None:
        if self.runs[run].status in ("queued", "waiting", "input_required"):
            self._end(run, "failed")

    def reconcile(self, run: str, effect: str) -> None:
        one = self.runs[run]
        if one.status == "input_required" and effect in one.asked:
            self._set(run, asked=tuple(name for name in one.asked if name != effect))
            if not self.runs[run].asked:
                self._queue(run)

    def sweep(self, run: str) -> None:
        """A look changes nothing where nothing is wrong."""

    def child(self, run: str) -> None:
        """So does a word that a child has ended."""

    # -- what follows by itself ---------------------------------------------------------------------------------

    def _come_to_rest(self) -> None:
        before = None
        while before != (before := (dict(self.runs), {name: list(order) for name, order in self.threads.items()})):
            for run in list(self.runs):
                self._follow(run)
            for order in self.threads.values():
                self._go_on(order)

    def _follow(self, run: str) -> None:
        one = self.runs[run]
        if one.status == "cancel_requested":
            if one.scope == "tree":
                action = "cancel" if one.action == "timeout" else one.action
                for child in map(self.runs.__getitem__, list(self.below(run))):
                    if child.status != "cancel_requested" or STRENGTH.index(child.action) < STRENGTH.index(action):
                        self._cancel(child.id, "run", action, run)
            if one.worker is None and (one.scope != "tree" or not any(True for _ in self.below(run))):
                self._end(run, "orphaned" if one.orphan else FINAL[one.action])
        elif one.resting and one.waits and all(self.runs[name].ended for name in one.waits):
            self._queue(run)

    def _go_on(self, order: list[str]) -> None:
        line = [*order[:1], *self._replacing(order)] if order else []
        for place, run in enumerate(line[:-1]):
            undo = any(self.runs[later].policy == "rollback" for later in line[place + 1 :])
            action = "rollback" if undo else "interrupt"
            self._cancel(run, "tree", action, "")
            if self.runs[run].ended:
                for child in list(self.below(run)):
                    self._cancel(child, "run", action, run)
        for run in list(order):
            if self.runs[run].ended and not any(True for _ in self.below(run)):
                order.remove(run)
        if order and self.runs[order[0]].held:
            self._set(order[0], held=False, dispatch=self.runs[order[0]].dispatch + 1)
