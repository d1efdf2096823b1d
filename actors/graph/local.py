"""`Execution`: one execution of a graph in process, with its history in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import Executor
from typing import Any, Generic, TypeVar

from ...topics.errors import InterruptAmbiguous, InterruptNotFound, InvalidInput, NotFound
from .answering import accepted_answer
from .compiled import Compiled
from .editing import edited
from .engine import Engine
from .errors import GraphInterrupted
from .given import taken
from .ground import Question, Snapshot, Unanswered
from .local_context import LocalHost
from .memory import Memory, MemoryGround
from .watching import GraphEvent, Watch, event

S = TypeVar("S")
_ENDED: Any = object()


class Execution(Generic[S]):
    """Runs a graph in this process. Everything durable on a worker is in memory here: for tests, scripts, notebooks.

    An execution that stopped (at a question, by an error) goes on by `run()` or `resume(...)` where it was: nodes that
    had finished are not run again."""

    def __init__(self, graph: Compiled, memory: Memory | None = None, *, threads: Executor | None = None) -> None:
        self.graph = graph
        self.memory = memory or Memory()
        self._threads = threads

    # -- running ------------------------------------------------------------------------------------------------

    async def run(self, input: Any = None) -> S:
        """Runs to the end; gives the state, or the graph's `output`. `input` counts only at the first call.

        Raises what a node raised, and GraphInterrupted when a question is open: see `interrupts`."""
        return await self._run(input, None)

    async def _run(self, input: Any, watch: Watch | None) -> S:
        self.memory.open.clear()
        ground = MemoryGround(LocalHost(self.memory, watch))
        try:
            final = await Engine(self.graph, ground, threads=self._threads, watch=watch).run(taken(self.graph, input))
        except Unanswered:
            names = ", ".join(map(repr, self.memory.open))
            raise GraphInterrupted(
                f"graph {self.graph.name!r} waits for an answer to {names}: answer with execution.resume(...)",
                self,
                open=list(self.memory.open),
            ) from None
        result: S = self.graph.schema.result(final.values, self.graph.output_type)
        return result

    async def stream(self, input: Any = None) -> AsyncGenerator[GraphEvent, None]:
        """What happens, as it happens; the last event is `ended` or `interrupted`. An error is raised after the events
        before it. Leaving the loop early stops the execution; it can go on later."""
        queue: asyncio.Queue[Any] = asyncio.Queue()
        task = asyncio.create_task(self._run(input, Watch(queue.put_nowait)))
        task.add_done_callback(lambda _: queue.put_nowait(_ENDED))
        try:
            while (one := await queue.get()) is not _ENDED:
                yield one
            try:
                yield event("ended", data=await task)
            except GraphInterrupted:
                yield event("interrupted", data=dict(self.interrupts))
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))

    # -- questions ----------------------------------------------------------------------------------------------

    @property
    def interrupts(self) -> Mapping[str, Question]:
        """The open questions, by id."""
        return dict(self.memory.open)

    async def resume(self, answer: Any = None, *, answers: Mapping[str, Any] | None = None, edit: Any = None) -> S:
        """Answers open questions and goes on: the only one by `answer`, some of several by `answers={id: answer}`.

        An answer is a value, or an `Answer` that approves, edits or rejects. `edit` (or `Answer.update`) changes the
        state first, as `update_state` does. Raises InterruptNotFound, InterruptAmbiguous; InvalidAnswer for one that is
        not of the type or schema that was asked for. Then nothing was accepted."""
        accepted = {
            name: accepted_answer(self.memory.open[name], name, one)
            for name, one in self._named(answer, answers).items()
        }
        for one in (edit, *(given.update for given in accepted.values())):
            if one is not None:
                await self.update_state(one)
        self.memory.answers.update(accepted)
        return await self.run()

    def _named(self, answer: Any, answers: Mapping[str, Any] | None) -> Mapping[str, Any]:
        open_ = self.memory.open
        self._require_open()
        listed = f"open: {', '.join(map(repr, open_))}"
        if answers is not None and answer is not None:
            raise InvalidInput("give one answer, or answers={id: answer}, not both")
        if answers is None:
            if len(open_) > 1:
                raise InterruptAmbiguous(
                    f"say which question is answered, as answers={{id: answer}}; {listed}", open=list(open_)
                )
            answers = dict.fromkeys(open_, answer)
        for name in answers:
            if name not in open_:
                raise InterruptNotFound(f"no question {name!r} is open; {listed}", open=list(open_))
        return answers

    def _require_open(self) -> None:
        if not self.memory.open:
            raise InterruptNotFound("no question is open: there is nothing to answer", open=[])

    # -- time travel --------------------------------------------------------------------------------------------

    def say(self, message: Any) -> None:
        """Puts a message into the graph's inbox channel after the superstep that is under way."""
        self.memory.said.append(message)

    def history(self, namespace: str = "") -> list[Snapshot]:
        """The snapshots, newest first; of a subgraph by its namespace, as `2/research`."""
        return self.memory.history(namespace)[::-1]

    def snapshot(self, checkpoint: str | None = None) -> Snapshot:
        """The snapshot with this id; the newest without one. Raises NotFound."""
        return self._found(checkpoint)[1]

    def state(self, checkpoint: str | None = None) -> S:
        """The state at a checkpoint, as nodes see it. Raises NotFound."""
        view: S = self.graph.schema.view(self.snapshot(checkpoint).values)
        return view

    def _found(self, checkpoint: str | None) -> tuple[int, Snapshot]:
        known = list(enumerate(self.memory.history()))
        for at, one in reversed(known):
            if checkpoint is None or one.id == checkpoint:
                return at, one
        if not known:
            raise NotFound("there is no checkpoint yet: run the execution first")
        raise NotFound(f"there is no checkpoint {checkpoint!r}; there are {', '.join(one.id for _, one in known)}")

    async def update_state(self, values: Any, *, as_node: str | None = None) -> Snapshot:
        """Edits the newest state as if by a node, validated by the schema; gives the new checkpoint. See `edited`.

        To edit an older one, `fork` it first. Raises NotFound before the first superstep."""
        _, newest = self._found(None)
        snapshot = await edited(self.graph, newest, values, as_node)
        await MemoryGround(LocalHost(self.memory, None)).save(snapshot)
        return self.snapshot()

    def fork(self, checkpoint: str | None = None) -> Execution[S]:
        """Another execution that begins at a checkpoint of this one; this one stays as it is. Its nodes after the
        checkpoint run again, and ask again. Raises NotFound."""
        at, _ = self._found(checkpoint)
        return Execution(self.graph, self.memory.upto(at), threads=self._threads)

    async def replay(self, checkpoint: str) -> S:
        """Runs on from a checkpoint in a fork, with the same code; gives its result. Raises as `run`."""
        return await self.fork(checkpoint).run()
