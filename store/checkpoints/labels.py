"""Labels: what keeps a checkpoint from being pruned, on `cb.label.{run}.{name}`.

Who labels writes first and looks for a pruning under way afterwards; who prunes writes its mark first and reads the
labels afterwards. So at least one of them sees the other, whatever the order in which they come.
"""

from __future__ import annotations

import asyncio

from ...topics import reads
from ...topics.bus import Bus
from ...topics.errors import Conflict, InvalidInput, NotFound
from ...topics.messages import Label, encode
from ...topics.subjects import require_token
from ..errors import CheckpointMissing
from .history import History
from .marks import HOLD, PRUNED, Mark, Marks
from .reader import Reader
from .state import Saved, pointers

_LAG_S = (0.01, 0.05, 0.2, 0.5, 1.0)
_PATIENCE_S = 5.0
_LOOK_S = 0.05


class Labels:
    """Reads and writes the labels of runs."""

    def __init__(self, bus: Bus, reader: Reader) -> None:
        self._bus, self._reader = bus, reader
        self._stream = bus.subjects.events

    async def of(self, run: str, since: int = 0) -> Marks:
        """The labels of a run. With `since`, the sequence of a mark of its own, everything before that is in: a replica
        that is behind is asked again."""
        for delay_s in (*_LAG_S, None):
            found = await reads.many_last(self._bus, self._stream, [self._bus.subjects.label(run, "*")])
            marks = Marks.of(found.values())
            if marks.pruned.sequence >= since:
                return marks
            if delay_s is not None:
                await asyncio.sleep(delay_s)
        raise Conflict(f"the replicas of the log are behind: the labels of run {run} cannot be read now", run=run)

    async def mark(self, run: str) -> Mark:
        """Up to where a run was pruned, as the stream's leader knows it."""
        subject = self._bus.subjects.label(run, PRUNED)
        return Mark.of(await reads.last_from_leader(self._bus, self._stream, subject))

    async def put(self, run: str, name: str, checkpoint: str) -> Saved:
        """Names a checkpoint, which from then on is not pruned; a name that another checkpoint of the run has moves.
        Raises CheckpointMissing, InvalidInput, and Conflict while a pruning is under way that may take it."""
        require_token("label", name)
        saved = await self._reader.at(run, checkpoint)
        before = (await self.of(run)).labels.get(name, 0)
        await self._write(run, name, saved.sequence)
        try:
            safe = await self._safe(saved)
        except CheckpointMissing:
            await self._write(run, name, before)
            raise
        if not safe:
            await self._write(run, name, before)
            raise Conflict(
                f"run {run} is being pruned up to a later checkpoint than {checkpoint}: try again, or, if that was cut "
                "short, prune again first",
                run=run, checkpoint=checkpoint,
            )  # fmt: skip
        return saved

    async def drop(self, run: str, name: str) -> None:
        """Takes a label away. Raises NotFound."""
        require_token("label", name)
        if await self._named(run, name) is None:
            raise NotFound(f"run {run} has no label {name!r}", run=run, label=name)
        await self._write(run, name, 0)

    async def find(self, run: str, word: str) -> str:
        """The id of the checkpoint that `word` names: a label, or the id itself. Raises InvalidInput."""
        if word.isascii() and word.isdigit():
            return word
        found = await self._named(run, word)
        if found is None:
            known = sorted((await self.of(run)).labels)
            hint = f"; there are the labels {', '.join(known)}" if known else ""
            raise InvalidInput(f"{word[:80]!r} is neither a checkpoint id nor a label of run {run}{hint}", run=run)
        return str(found)

    async def number(self, run: str, word: str) -> int:
        """That id as the number that it is. Raises InvalidInput."""
        number = int(await self.find(run, word))
        if number >= 2**63:
            raise InvalidInput(f"{word[:80]} is no checkpoint id: ids are stream sequences", run=run)
        return number

    async def _named(self, run: str, name: str) -> int | None:
        """The checkpoint that has a label: what was said last counts, by people or by the run's code."""
        marks = await self.of(run)
        coded = await History(self._bus, run).page(None, 1, lambda saved: marks.coded(saved) == name)
        return coded[0].sequence if coded and name else marks.labels.get(name)

    async def hold(self, run: str, checkpoint: int, by: str) -> bool:
        """Keeps what the run `by` begins from. Called before the state is loaded; repeated, it changes nothing. False:
        the checkpoint is being pruned at this moment, so its values must be copied, not referred to. Raises
        CheckpointMissing."""
        await self._write(run, f"{HOLD}{by}", checkpoint)
        return await self._safe(await self._reader.at(run, str(checkpoint)))

    async def _safe(self, saved: Saved) -> bool:
        """Whether a checkpoint that has a label now is there for good; False when a pruning that may have missed the
        label does not end. Raises CheckpointMissing when it is not whole any more."""
        mark = await self.mark(saved.run)
        deadline = asyncio.get_running_loop().time() + _PATIENCE_S
        while mark.open and saved.sequence <= mark.checkpoint:
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_LOOK_S)
            mark = await self.mark(saved.run)
        if saved.sequence <= mark.checkpoint:
            await self._require_whole(saved)
        return True

    async def _require_whole(self, saved: Saved) -> None:
        """Asks the leader: a replica may still have what was removed."""
        spots = (spot for levels in pointers(saved).values() for level in levels for spot in level)
        for number in sorted({saved.sequence, *(number for number, _ in spots)}):
            if await reads.leader_by_sequence(self._bus, self._stream, number) is None:
                raise CheckpointMissing(
                    f"checkpoint {saved.id} of run {saved.run} was pruned", run=saved.run, checkpoint=saved.id
                )

    async def _write(self, run: str, name: str, checkpoint: int) -> None:
        await self._bus.store(self._bus.subjects.label(run, name), encode(Label(checkpoint=checkpoint)))
