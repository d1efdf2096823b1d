"""Requests for runs that begin from a checkpoint of another one: what they leave out is taken from that run.

The checkpoint has to be there when the run is created, and stays from then on. Its values, and an edit of them, are the
worker's matter: only it knows the state's schema.
"""

from __future__ import annotations

from msgspec import Raw
from msgspec.structs import replace

from ...store.agents import AgentRegistry
from ...store.blobs import Blobs
from ...store.checkpoints import Checkpoints, Saved
from ...store.checkpoints.nodes import require_node
from ...store.errors import CheckpointMissing
from ...store.log import EventLog
from ...topics.bus import Bus
from ...topics.errors import InvalidInput, NotFound, Unavailable
from ...topics.ids import keyed_run_id, require_run_id
from ...topics.messages import Command, Fork, Payload, RunRecord, TaskRequest


def asked(command: Command, salt: str) -> TaskRequest:
    """The request that a command `fork` is. A run that it does not name has the name that the command always gives.

    Raises InvalidInput when it is about another run."""
    task = command.task or TaskRequest()
    fork = task.fork or Fork()
    if fork.run not in ("", command.run):
        raise InvalidInput(f"the command is to run {command.run}, and its fork is of run {fork.run[:80]}: name one")
    run = task.run
    if run is None and task.key is None and command.key:
        run = keyed_run_id(salt, "fork", command.run, command.key)
    return replace(task, run=run, fork=replace(fork, run=command.run))


def require_valid(request: TaskRequest, fork: Fork) -> None:
    """Raises InvalidInput for a request that could not be meant."""
    if request.topic is not None:
        raise InvalidInput("a fork is a run of the agent whose checkpoint it begins from: leave the topic out")
    require_run_id(fork.run)
    if fork.checkpoint < 0:
        raise InvalidInput(f"checkpoint {fork.checkpoint} cannot be: ids are numbers, as the history lists them")
    if fork.as_node is not None and fork.update is None:
        raise InvalidInput(f"as_node {fork.as_node[:80]!r} says from which node an edit comes: give the update as well")
    inline = None if fork.update is None else fork.update.json
    if isinstance(inline, Raw) and not bytes(inline).lstrip().startswith(b"{"):
        raise InvalidInput("an update is an object: the new values by channel")


class Forks:
    """Completes requests."""

    def __init__(self, bus: Bus, event_log: EventLog, blobs: Blobs) -> None:
        self._log, self._blobs, self._limit = event_log, blobs, bus.inline_limit
        self._checkpoints, self._agents = Checkpoints(bus, blobs), AgentRegistry(bus)

    async def completed(self, request: TaskRequest, fork: Fork) -> TaskRequest:
        """The request with the number of its checkpoint, and with the agent, the thread and the input of the run that
        it forks where it has none of its own; pinned to that run's version if that is.

        Raises NotFound, CheckpointMissing, InvalidInput, UnknownNode, Unavailable."""
        there = await self._log.load_current(request.run or "")
        if there is not None and there.record.forked_from is not None:
            return _as_made(request, there.record)  # whatever has become of the checkpoint since
        source = await self._source(fork.run)
        if request.agent not in (None, source.agent):
            raise InvalidInput(
                f"run {source.id} is one of agent {source.agent!r}: agent {request.agent!r} cannot read its checkpoints"
            )
        saved = await self._checkpoint(source, fork)
        version = source.version if request.version is None and source.pin else request.version
        if fork.as_node is not None:
            require_node(saved.checkpoint, await self._agents.pinned(source.agent, version), fork.as_node)
        await self._hold(saved, request.run or "")
        fork = replace(fork, checkpoint=saved.sequence, update=await self._apart(fork.update))
        if not fork.anew:
            request = request.carrying(source.input)
        thread = request.thread or source.thread
        if thread is None and request.policy == "fork":  # there is none to fork: it gets one
            request, thread = replace(request, policy=None), request.run
        return replace(
            request,
            agent=source.agent,
            thread=thread,
            version=version,
            fork=fork,
        )

    async def _source(self, run: str) -> RunRecord:
        loaded = await self._log.load_current(run)
        if loaded is None:
            raise NotFound(f"there is no run {run} to fork", run=run)
        return loaded.record

    async def _checkpoint(self, source: RunRecord, fork: Fork) -> Saved:
        if fork.checkpoint:
            saved = await self._checkpoints.reader.at(source.id, str(fork.checkpoint))
            if saved.checkpoint.ns:
                raise InvalidInput(
                    f"checkpoint {fork.checkpoint} of run {source.id} is of subgraph {saved.checkpoint.ns}: fork from "
                    "one of the run itself, which has those of its subgraphs"
                )
            return saved
        newest = await self._checkpoints.newest(source.id)
        if newest is None:
            raise CheckpointMissing(
                f"run {source.id} has no checkpoint to fork from: it has not got to one, its agent saves none, or they "
                "are older than what is kept",
                run=source.id,
            )
        return newest

    async def _hold(self, saved: Saved, by: str) -> None:
        """Keeps the checkpoint for as long as the fork may need it."""
        labels = self._checkpoints.labels
        if not (await labels.of(saved.run)).shows(saved):
            raise CheckpointMissing(
                f"checkpoint {saved.id} of run {saved.run} was pruned", run=saved.run, checkpoint=saved.id
            )
        if not await labels.hold(saved.run, saved.sequence, by):
            raise Unavailable(f"run {saved.run} is being pruned: try again in a moment", run=saved.run)

    async def _apart(self, update: Payload | None) -> Payload | None:
        """A large edit in the object store, as with inputs."""
        if update is None or not isinstance(update.json, Raw) or len(bytes(update.json)) <= self._limit:
            return update
        return await self._blobs.payload(bytes(update.json))


def _as_made(request: TaskRequest, record: RunRecord) -> TaskRequest:
    return replace(request.carrying(record.input), agent=record.agent, thread=record.thread, fork=record.forked_from)
