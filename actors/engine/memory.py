"""What an attempt remembers besides its journal: the checkpoint that it began from, and those that it writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ...store.blobs import Blobs
from ...store.checkpoints import Checkpoints, State
from ...store.errors import CheckpointMissing
from ...topics import codec, crash
from ...topics.errors import InvalidInput
from ...topics.messages import Answered, Checkpoint, RunRecord, encode
from ..agent import Agent
from ..migrations import Ages, migrated_raws, planned, unfitting
from .chain import Chain
from .errors import CheckpointMisplaced
from .hold import Hold
from .place import Places
from .writer import Writer

if TYPE_CHECKING:
    from .ground import DurableGround

log = logging.getLogger(__name__)

_TOOK = 200
"""So many answers of one attempt are remembered in its checkpoints: as many as in a record."""
_read = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Memory:
    """The state of a run that is carried out, as its code sees it, and how it is saved."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        writer: Writer,
        hold: Hold,
        places: Places,
        record: RunRecord,
        agent: Agent[Any],
        begun: State | None,
        heard: Callable[[], int],
        taken: Callable[[], list[Answered]],
        blobs: Blobs,
    ) -> None:
        self.checkpoints, self.begun = checkpoints, begun
        self.root: DurableGround | None = None
        """Of a run that a graph carries out."""
        self._writer, self._hold, self._places, self._record, self._agent = writer, hold, places, record, agent
        self._heard, self._taken, self._blobs = heard, taken, blobs
        self._edits: dict[str, bytes] = {}
        self._chain: Chain | None = None
        """Of the run's own namespace."""
        self._state: Any = None
        self._step = begun.saved.checkpoint.step if begun is not None else 0

    async def begin(self) -> None:
        """Fetches what the state of a fork is edited by."""
        fork = self._record.forked_from
        if fork is None or fork.update is None or self.begun is None or self.begun.saved.sequence != fork.checkpoint:
            return
        raws = _read(await self._blobs.value(fork.update))
        self._edits = {name: bytes(raw) for name, raw in raws.items()}

    @property
    def state(self) -> Any:
        """The state of a code agent: as it was saved last, or new. Raises InvalidInput when the agent's type cannot be
        made without arguments, DecodeError when what was saved is not of that type."""
        if self._state is None:
            self._state = self._restored() if self.begun is not None else self._new()
        return self._state

    def _new(self) -> Any:
        type_ = self._agent.state_type
        if type_ is None:
            return {}
        try:
            return type_()
        except TypeError as error:
            raise InvalidInput(
                f"the state of agent {self._agent.name!r} begins as {codec.type_name(type_)}(), which raises {error}: "
                "give every field a default"
            ) from error

    def edit(self, update: bytes) -> None:
        """Sets fields of the state of a code agent, in place where its type lets that be. Raises InvalidInput for a
        field that the type does not have, DecodeError for a value that it does not take; then nothing is set."""
        state, type_, given = self.state, self._agent.state_type, _read(update)
        if type_ is None:
            state.update({name: codec.decode(bytes(raw)) for name, raw in given.items()})
            return
        known = self._known(state, given)
        edited = codec.decode(encode(known | given), type_)
        try:
            for name in given:
                setattr(state, name, getattr(edited, name))
        except AttributeError:  # frozen: whoever asks for it again has the new one
            self._state = edited

    def _known(self, state: Any, given: Mapping[str, Any]) -> dict[str, msgspec.Raw]:
        """The fields of a state. Raises InvalidInput for an edit of others."""
        known = _read(codec.encode(state))
        if strange := sorted(given.keys() - known.keys()):
            raise InvalidInput(
                f"the state of agent {self._agent.name!r} has no field {strange[0]!r}: it has {', '.join(known)}"
            )
        return known

    def _restored(self) -> Any:
        assert self.begun is not None
        type_, made, version = self._agent.state_type, self.begun.saved.checkpoint, self._agent.version
        steps = planned(Ages(agent=self._agent.name, found=made.version, wanted=version))
        raws = migrated_raws(self.begun.raws, steps) | self._edits
        raw = b",".join(msgspec.json.encode(name) + b":" + value for name, value in raws.items())
        try:
            restored = codec.decode(b"{" + raw + b"}", dict[str, Any] if type_ is None else type_)
        except codec.DecodeError as error:
            if made.version == version:
                raise
            raise unfitting(self._agent.name, made.version, version, error) from error
        if type_ is not None and self._edits:
            self._known(restored, self._edits)
        return restored

    async def save(self, label: str | None) -> str:
        """Saves the state of a code agent, and the place where its code is; gives the checkpoint's id once it is
        durable."""
        self._check()
        self._step += 1
        values = self._fields()
        chain = self._chain or self.chain("", self.begun)
        frame = self.frame(
            source="code", step=self._step, place=self._places.position(), label=label or "", heard=self._heard()
        )
        with self._hold.working():
            sequence = await (await chain.save(frame, values.keys(), lambda name: bytes(values[name])))
        crash.point("worker.after-checkpoint-write")
        return str(sequence)

    @property
    def anew(self) -> bool:
        """Whether a graph begins with the run's input, although there is a checkpoint: a fork that has its own."""
        fork = self._record.forked_from
        return fork is not None and fork.anew and (self.begun is None or self.begun.saved.run != self._record.id)

    async def base(self) -> State | None:
        """The state that the input of a graph's new run is added to: of a fork, or of the thread."""
        if self._record.forked_from is not None:
            return self.begun if self.anew else None
        tip = self._record.turn.tip if self._record.turn is not None else None
        if tip is None or tip.agent != self._record.agent:
            return None
        try:
            return await self.checkpoints.reader.state(await self.checkpoints.reader.number(tip.checkpoint))
        except CheckpointMissing as error:
            log.warning("run %s begins without the state of its thread: %s", self._record.id, error)
            return None

    def chain(self, namespace: str, state: State | None) -> Chain:
        """The checkpoints that are written from here on of a namespace."""
        chain = Chain(self.checkpoints, self._writer, namespace, state)
        if not namespace:
            self._chain = chain
        return chain

    @property
    def newest(self) -> int:
        """The newest checkpoint of the run itself; 0: none."""
        if self._chain is not None and self._chain.newest:
            return self._chain.newest
        saved = None if self.begun is None else self.begun.saved
        return saved.sequence if saved is not None and saved.run == self._record.id else 0

    def frame(self, **more: Any) -> Checkpoint:
        """A checkpoint of this attempt, without values."""
        record = self._record
        took = [] if more.get("ns") else self._taken()[-_TOOK:]
        return Checkpoint(
            attempt=record.attempt, n=self._writer.number(), agent=record.agent, version=self._agent.version,
            took=took, **more,
        )  # fmt: skip

    def _check(self) -> None:
        if not self._places.own:
            raise CheckpointMisplaced(
                "ctx.checkpoint() is for the agent's own task: a task that it has created, and the function of a step, "
                "have no part in the state"
            )
        if self._hold.busy:
            raise CheckpointMisplaced(
                "ctx.checkpoint() is called while other operations of the context are under way: await them first, "
                "because what they record before the checkpoint would be forgotten after it"
            )

    def _fields(self) -> dict[str, msgspec.Raw]:
        raw, type_ = codec.encode(self.state), self._agent.state_type
        if type_ is not None:
            codec.decode(raw, type_)  # or no later attempt could read it
        try:
            return _read(raw)
        except msgspec.MsgspecError as error:
            raise InvalidInput(f"the state of agent {self._agent.name!r} is no object: {error}") from error
