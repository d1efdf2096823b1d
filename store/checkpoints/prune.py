"""Pruning: checkpoints that nobody needs any more are removed from the log.

What stays, and can be loaded: everything from the oldest checkpoint on that is to be kept, the newest of each subgraph,
whatever has a label, and what other runs began from. Besides, messages that hold values of those: a checkpoint that is
left for that alone is not listed any more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ...topics import reads
from ...topics.bus import Bus, fence
from ...topics.errors import BrokerError, Conflict, InvalidInput, StaleFence
from ...topics.messages import Label, encode
from .chain import chains
from .labels import Labels
from .marks import PRUNED, Mark, Marks
from .state import KIND, Saved, pointers

_AT_ONCE = 100
_LEASE_S = 60.0
"""A mark left open that long was left by a process that is gone."""
_GONE = 10057


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was removed, or would be."""

    run: str
    dry_run: bool
    removed: int
    """Messages."""
    removed_bytes: int
    kept: int
    """Checkpoints that can be loaded."""
    held: int
    """Those of them that stay for a label or another run alone."""
    carriers: int
    """Messages that stay for the values that they hold."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which checkpoints of a run are to be kept; a checkpoint stays if one of the two says so."""

    keep: int | None = None
    """The newest so many of the run's own state."""
    older_than: timedelta | None = None
    """Those that are younger."""

    def __post_init__(self) -> None:
        """Raises InvalidInput."""
        if self.keep is None and self.older_than is None:
            raise InvalidInput(
                "say what is to be kept: the newest so many checkpoints, those younger than an age, or both"
            )
        if self.keep is not None and self.keep < 1:
            raise InvalidInput("at least the newest checkpoint is kept: it is what the run goes on from")
        if self.older_than is not None and self.older_than < timedelta(0):
            raise InvalidInput("an age is not negative")

    def floor(self, chain: list[Saved], now: datetime) -> int:
        """The id of the oldest checkpoint that this keeps, of a chain that is not empty."""
        floors = [] if self.keep is None else [chain[max(0, len(chain) - self.keep)].sequence]
        if self.older_than is not None:
            young = (one.sequence for one in chain if one.time > now - self.older_than)
            floors.append(next(young, chain[-1].sequence))
        return min(floors)


class Pruner:
    """Removes checkpoints of runs."""

    def __init__(self, bus: Bus, labels: Labels, clock: Callable[[], float] = time.time) -> None:
        self._bus, self._labels, self._clock = bus, labels, clock
        self._stream = bus.subjects.events

    async def prune(self, run: str, choice: Choice, *, dry_run: bool = False) -> Pruned:
        """Removes what is not to be kept. May run beside the run itself, and beside forks; one that is cut short leaves
        everything loadable that was to be kept. Raises Conflict while another pruning of the run is under way."""
        found, marks = await chains(self._bus, run), await self._labels.of(run)
        own = found.get(KIND, [])
        if not own:
            return _report(run, found, marks, 0, [], dry_run=dry_run)
        shown = [saved for saved in _without_copies(own) if marks.shows(saved) or saved is own[-1]]
        wanted = choice.floor(shown, datetime.fromtimestamp(self._clock(), UTC))
        floor = max(wanted, marks.pruned.checkpoint + 1)
        if dry_run or all(chain[0].sequence >= floor for chain in found.values()):
            return _report(run, found, marks, floor, _doomed(found, marks, floor), dry_run=dry_run)
        mark = await self._open(run, await self._labels.mark(run), floor - 1)
        marks = await self._labels.of(run, mark.sequence)
        doomed = _doomed(found, marks, floor)
        mark = await self._remove(run, mark, doomed)
        await self._write(run, Label(checkpoint=mark.checkpoint), mark.sequence)
        return _report(run, found, marks, floor, doomed, dry_run=False)

    async def _open(self, run: str, before: Mark, up_to: int) -> Mark:
        if before.open and self._clock() - before.time.timestamp() < _LEASE_S:
            raise Conflict(f"run {run} is being pruned already: try again in a minute", run=run)
        return await self._write(run, Label(checkpoint=max(up_to, before.checkpoint), open=True), before.sequence)

    async def _write(self, run: str, label: Label, after: int) -> Mark:
        """The next mark, if the last one has the sequence `after`."""
        subject = self._bus.subjects.label(run, PRUNED)
        try:
            sequence = await self._bus.store(subject, encode(label), fence(after))
        except StaleFence as error:
            mark = await self._labels.mark(run)
            if (mark.checkpoint, mark.open) == (label.checkpoint, label.open) and mark.sequence > after:
                return mark  # the answer to the first try got lost
            raise Conflict(f"run {run} is being pruned by somebody else: try again in a minute", run=run) from error
        return Mark(label.checkpoint, label.open, sequence)

    async def _remove(self, run: str, mark: Mark, doomed: list[Saved]) -> Mark:
        """Removes messages, the oldest first, under a mark that is renewed in time."""
        since = self._clock()
        for start in range(0, len(doomed), _AT_ONCE):
            if self._clock() - since > _LEASE_S / 4:
                mark, since = (
                    await self._write(run, Label(checkpoint=mark.checkpoint, open=True), mark.sequence),
                    self._clock(),
                )
            await asyncio.gather(*(self._delete(one.sequence) for one in doomed[start : start + _AT_ONCE]))
        return mark

    async def _delete(self, sequence: int) -> None:
        body = {"seq": sequence, "no_erase": True}
        try:
            await self._bus.api(f"STREAM.MSG.DELETE.{self._stream}", body, missing_ok=True)
        except BrokerError as error:
            gone = error.facts.get("err_code") == _GONE
            if not gone or await reads.leader_by_sequence(self._bus, self._stream, sequence) is not None:
                raise


def _without_copies(chain: list[Saved]) -> list[Saved]:
    """A write that was repeated because its answer got lost counts once, as its last copy."""
    last: dict[object, Saved] = {}
    for saved in chain:
        made = saved.checkpoint
        mark = (made.attempt, made.n) if made.n else saved.sequence
        last.pop(mark, None)
        last[mark] = saved
    return list(last.values())


def _kept(found: Mapping[str, list[Saved]], marks: Marks, floor: int) -> list[Saved]:
    return [
        saved
        for chain in found.values()
        for saved in chain
        if saved.sequence >= floor or saved is chain[-1] or marks.keeps(saved)
    ]


def _needed(kept: Iterable[Saved]) -> set[int]:
    """The messages that hold a value of one of these."""
    return {
        number for saved in kept for levels in pointers(saved).values() for level in levels for number, _ in level
    }  # fmt: skip


def _doomed(found: Mapping[str, list[Saved]], marks: Marks, floor: int) -> list[Saved]:
    kept = _kept(found, marks, floor)
    stay = {saved.sequence for saved in kept} | _needed(kept)
    gone = [saved for chain in found.values() for saved in chain if saved.sequence not in stay]
    return sorted(gone, key=lambda saved: saved.sequence)


def _report(
    run: str, found: Mapping[str, list[Saved]], marks: Marks, floor: int, doomed: list[Saved], *, dry_run: bool
) -> Pruned:
    kept = _kept(found, marks, floor)
    newest = {id(chain[-1]) for chain in found.values() if chain}
    return Pruned(
        run=run,
        dry_run=dry_run,
        removed=len(doomed),
        removed_bytes=sum(saved.size_bytes for saved in doomed),
        kept=len(kept),
        held=sum(1 for saved in kept if saved.sequence < floor and id(saved) not in newest),
        carriers=sum(map(len, found.values())) - len(kept) - len(doomed),
    )
