"""One superstep: its tasks, in parallel, each with its own copy of the state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from ..agent import Terminal
from .cache import Cache
from .command import Command
from .compiled import Compiled
from .copying import copied
from .errors import InvalidUpdate
from .form import Form
from .ground import Desk, Ground, Question, Snapshot, Task, Unanswered, Writes
from .interrupting import Asking, asking
from .node import Node
from .watching import Watch, event

if TYPE_CHECKING:
    from .engine import Engine


_ERRORS, _ERROR_CHARS = 5, 200


class Superstep:
    """The tasks of one superstep."""

    def __init__(
        self,
        graph: Compiled,
        ground: Ground,
        before: Snapshot,
        threads: Executor | None,
        watch: Watch | None,
        engine: type[Engine],
        former: Mapping[str, str],
    ) -> None:
        self._graph, self._ground, self._before = graph, ground, before
        self._threads, self._watch, self._engine = threads, watch, engine
        self._step = before.step + 1
        self._former = former
        self._left = 0
        self._failed = False

    async def run(self) -> list[tuple[Task, Writes]]:
        """The writes of all tasks, in their fixed order; those that were noted are not run again.

        All tasks end before anything is raised: the error of the one that failed, an ExceptionGroup if several did, or
        Unanswered with the questions of all."""
        tasks, noted = self._before.next, self._noted()
        if len(tasks) == 1 and not noted:
            return [(tasks[0], await self._task(tasks[0]))]
        found: dict[str, Writes] = {task.key: noted[task.key] for task in tasks if task.key in noted}
        errors, questions = await self._parallel([task for task in tasks if task.key not in found], found)
        if errors:
            raise errors[0] if len(errors) == 1 else BaseExceptionGroup(
                f"superstep {self._step}: {len(errors)} nodes failed: {_named(errors)}", errors
            )  # fmt: skip
        if questions:
            raise Unanswered(*questions)
        return [(task, found[task.key]) for task in tasks]

    def _noted(self) -> dict[str, Writes]:
        return {self._graph.key_now(key): writes for key, writes in self._ground.noted(self._step).items()}

    def _placed(self, task: Task) -> Task:
        """The task under the name that its node had when this superstep began: that is where it finds what it left."""
        former = self._former.get(task.key)
        return Task(former.partition("#")[0], task.number, task.input) if former else task

    async def _parallel(
        self, tasks: list[Task], found: dict[str, Writes]
    ) -> tuple[list[BaseException], list[Question]]:
        self._left = len(tasks)
        jobs = [asyncio.create_task(self._noting(task, found), name=f"node-{task.key}") for task in tasks]
        try:
            results = await asyncio.gather(*jobs, return_exceptions=True)
        except asyncio.CancelledError:
            await _end(jobs)
            raise
        errors: list[BaseException] = []
        questions: list[Question] = []
        for result in results:
            if isinstance(result, Unanswered):
                questions += result.questions
            elif isinstance(result, BaseException):
                errors.append(result)
        return errors, questions

    async def _noting(self, task: Task, found: dict[str, Writes]) -> None:
        """Runs a task. What it wrote is noted unless the superstep is about to be saved."""
        try:
            writes = found[task.key] = await self._task(task)
        except Unanswered:
            self._failed = True
            if self._left > 1:
                self._ground.ask()
            raise
        except BaseException:
            self._failed = True
            raise
        finally:
            self._left -= 1
        if self._left or self._failed:
            await self._ground.note(self._step, self._placed(task), writes)

    async def _task(self, task: Task) -> Writes:
        node = self._graph.nodes[task.node]
        if self._watch is None:
            return await self._cached(node, task)
        self._watch(event("node_started", self._step, task.key))
        writes = await self._cached(node, task)
        self._watch(event("node", self._step, task.key, dict(writes.updates)))
        return writes

    async def _cached(self, node: Node, task: Task) -> Writes:
        if node.cache is None:
            return await self._called(node, task)
        key = self._key(node.cache, task, self._state(node, task)())
        kept = node.cache.get(key)
        if kept is None:
            kept = await self._called(node, task)
            node.cache.put(key, kept)
        return kept

    def _key(self, cache: Cache, task: Task, state: Any) -> str:
        try:
            key = cache.key(state)
        except Exception as error:
            error.add_note(
                f"in the cache key of node {task.key!r}, superstep {self._step} of graph {self._graph.name!r}"
            )
            raise
        if not isinstance(key, str):
            raise InvalidUpdate(
                f"the cache key of node {task.node!r} is {type(key).__name__}: give a string", source=task.key
            )
        return key

    def _state(self, node: Node, task: Task) -> Callable[[], Any]:
        """Makes what the node is given: its copy of the state, or of the input that was sent to it."""
        view, values = self._graph.schema.view, self._before.values
        if task.number is None:
            return lambda: view(values)
        if node.takes_state:
            return lambda: view({**values, **task.input})
        return lambda: copied(task.input)

    async def _called(self, node: Node, task: Task) -> Writes:
        step, placed = self._step, self._placed(task)
        with self._ground.inside(step, placed, node.retries.max_attempts) as desk:
            asked = Asking(desk, step, placed.key)
            token = asking.set(asked)
            try:
                writes = self._writes(node, await self._result(node, task, desk, asked))
                asked.require_answers()
                return writes
            except (SystemExit, KeyboardInterrupt) as error:  # would end the event loop, and whatever else runs there
                raise Terminal(f"node {task.key!r} of graph {self._graph.name!r} wanted to end the process") from error
            except Exception as error:
                error.add_note(f"in node {task.key!r}, superstep {step} of graph {self._graph.name!r}")
                raise
            finally:
                asking.reset(token)

    async def _result(self, node: Node, task: Task, desk: Desk, asked: Asking) -> Any:
        given = self._state(node, task)

        def state() -> Any:
            asked.again()
            return given()

        match node.kind:
            case "graph":
                return await node.call(self._subgraph, lambda: (node, task, state()), self._threads)
            case "agent":
                return await node.call(self._agent, lambda: (node, task, state(), desk.context), self._threads)
        if node.takes_context:
            return await node.call(node.fn, lambda: (state(), desk.context), self._threads)
        return await node.call(node.fn, lambda: (state(),), self._threads)

    def _writes(self, node: Node, result: Any) -> Writes:
        """What a node returned, each value made to fit its channel."""
        source, goto = f"node {node.name!r}", None
        if isinstance(result, Command):
            goto, result = result.targets(source), result.changes(source)
        if not isinstance(result, dict) and result is not None:
            raise InvalidUpdate(
                f"{source} returned {type(result).__name__}: return a dict of the channels that change, a Command, or "
                "None",
                source=source,
            )
        return Writes(self._graph.schema.prepare(result, source), goto)

    async def _subgraph(self, node: Node, task: Task, state: Any) -> Any:
        """Runs the subgraph of a node on a ground below; it goes on inside where an earlier attempt left it."""
        inner: Compiled = node.part
        ground = self._ground.below(self._step, self._placed(task), Form(inner))
        watch = None if self._watch is None else self._watch.below(self._step, task.key)
        given = state if task.number is not None else node.mapping.into(state)
        final = await self._engine(inner, ground, threads=self._threads, watch=watch).run(given)
        return node.mapping.out(inner, given, final)

    async def _agent(self, node: Node, task: Task, state: Any, context: Any) -> Any:
        """Has a child run of the node's agent done; what was sent to the node is the agent's input."""
        given = state if task.number is not None else node.mapping.into(state)
        return node.mapping.out(await context.call(node.part, given))


def _named(errors: Sequence[BaseException]) -> str:
    told = [f"{type(one).__name__}: {one}"[:_ERROR_CHARS] for one in errors[:_ERRORS]]
    return "; ".join([*told, "…"] if len(errors) > _ERRORS else told)


async def _end(jobs: list[asyncio.Task[None]]) -> None:
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
