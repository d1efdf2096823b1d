"""Reading checkpoints: the newest by one direct get, any by its id, and their values wherever they lie."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Collection, Mapping

from ...topics import reads
from ...topics.bus import Bus
from ...topics.errors import InvalidInput
from ...topics.messages import Checkpoint
from ...topics.reads import Stored
from ..errors import CheckpointMissing
from .cell import Cells
from .piece import Carrier, Piece, joined
from .state import KIND, Saved, State, cell_of, decoded, is_checkpoint, pointers

_LAG_S = (0.01, 0.05, 0.2)
"""On a cluster any replica may answer, a moment behind; after these pauses its leader is asked."""
_TOKEN = re.compile(r"[A-Za-z0-9_:#/~=+-]{1,100}\Z")


def kind_of(namespace: str) -> str:
    """The kind of event of the checkpoints of a namespace: one subject token."""
    if not namespace:
        return KIND
    if _TOKEN.match(namespace):
        return f"{KIND}@{namespace}"
    return f"{KIND}@{hashlib.blake2b(namespace.encode(), digest_size=12).hexdigest()}"


def id_number(checkpoint: str) -> int:
    """A checkpoint's id as the sequence that it is. Raises InvalidInput."""
    if not (checkpoint.isascii() and checkpoint.isdigit() and len(checkpoint) < 20):
        raise InvalidInput(f"{checkpoint[:80]!r} is no checkpoint id: ids are numbers, as the history lists them")
    return int(checkpoint)


class Reader:
    """Reads what scribes have written."""

    def __init__(self, bus: Bus, cells: Cells) -> None:
        self._bus, self._cells = bus, cells
        self._stream = bus.subjects.events

    async def newest(self, run: str, namespace: str = "") -> Saved | None:
        """The newest checkpoint of a run as the stream's leader knows it, without its values: one direct get. Raises
        InvalidMessage."""
        subject = self._bus.subjects.event(run, kind_of(namespace))
        stored = await reads.last_from_leader(self._bus, self._stream, subject)
        return None if stored is None else Saved.of(stored)

    async def at(self, run: str, checkpoint: str) -> Saved:
        """The checkpoint of this run with this id: one direct get. Raises CheckpointMissing, InvalidInput."""
        sequence = id_number(checkpoint)
        stored = (await self._messages([sequence], {})).get(sequence) if sequence else None
        words = stored.subject.split(".") if stored is not None else []
        if stored is None or len(words) != 5 or words[3] != run or not is_checkpoint(words[4]):
            raise CheckpointMissing(
                f"run {run} has no checkpoint {checkpoint}: it was pruned, or never was", run=run, checkpoint=checkpoint
            )
        return Saved.of(stored)

    async def number(self, sequence: int) -> Saved:
        """The checkpoint with this id, whatever run it is of. Raises CheckpointMissing, InvalidMessage."""
        stored = (await self._messages([sequence], {})).get(sequence)
        if stored is None:
            raise CheckpointMissing(f"there is no checkpoint {sequence}", checkpoint=str(sequence))
        return Saved.of(stored)

    async def state(self, saved: Saved) -> State:
        """The values of a checkpoint: at most one request for each message that holds a part of them, all at once.
        Raises CheckpointMissing, CheckpointKeyMissing, BlobMissing, BlobCorrupt, InvalidMessage, Unavailable."""
        where = pointers(saved)
        wanted = {number for levels in where.values() for level in levels for number, _ in level} - {saved.sequence}
        messages = await self._messages(wanted, {}) if wanted else {}
        if missing := sorted(wanted - messages.keys()):
            raise self._gone(saved, missing)
        found = {number: (decoded(stored), stored.time.timestamp()) for number, stored in messages.items()}
        found[saved.sequence] = (saved.checkpoint, saved.time.timestamp())
        carriers = {number: Carrier(number, written) for number, (_, written) in found.items()}
        spots = [(spot, spot[0]) for levels in where.values() for level in levels for spot in level]
        raws = await self._raws({spot for spot, _ in spots}, {number: found[number][0] for _, number in spots})
        levels_of = {
            name: [[Piece(carriers[number], key, raws[number, key]) for number, key in level] for level in levels]
            for name, levels in where.items()
        }
        values = {
            name: joined([raws[spot] for level in levels for spot in level]) for name, levels in where.items()
        }  # fmt: skip
        plan = saved.checkpoint.plan
        return State(saved, values, levels_of, None if plan is None else await self._cells.read(plan))

    async def piece(self, piece: Piece) -> bytes:
        """The JSON of one piece, read again. Raises as `state` does."""
        number = piece.carrier.sequence
        stored = (await self._messages([number], {})).get(number)
        if stored is None:
            raise CheckpointMissing(f"message {number} of the log is gone", checkpoint=str(number))
        return await self._cells.read(cell_of(decoded(stored), piece.key, number))

    async def _raws(
        self, spots: Collection[tuple[int, str]], found: Mapping[int, Checkpoint]
    ) -> dict[tuple[int, str], bytes]:
        """The JSON at each of these spots; what lies in the object store is fetched side by side."""
        cells = {spot: cell_of(found[spot[0]], spot[1], spot[0]) for spot in spots}
        raws = {spot: await self._cells.read(cell) for spot, cell in cells.items() if cell.ref is None}
        large = [spot for spot, cell in cells.items() if cell.ref is not None]
        if large:
            read = await asyncio.gather(*(self._cells.read(cells[spot]) for spot in large))
            raws |= dict(zip(large, read, strict=True))
        return raws

    async def _messages(self, wanted: Collection[int], found: dict[int, Stored]) -> dict[int, Stored]:
        """The messages with these sequences; one that a replica does not know yet is asked for again."""
        for delay_s in (0.0, *_LAG_S):
            if delay_s:
                await asyncio.sleep(delay_s)
            left = [number for number in wanted if number not in found]
            found |= await reads.by_sequences(self._bus, self._stream, left)
            if len(found) == len(wanted) or self._bus.replicas == 1:
                return found
        for number in wanted:
            if number not in found:
                stored = await reads.leader_by_sequence(self._bus, self._stream, number)
                found |= {number: stored} if stored is not None else {}
        return found

    def _gone(self, saved: Saved, missing: list[int]) -> CheckpointMissing:
        return CheckpointMissing(
            f"checkpoint {saved.id} of run {saved.run} cannot be loaded: {len(missing)} of the messages that hold its "
            f"values are gone ({', '.join(map(str, missing[:5]))}): pruned by hand, or older than what is kept",
            run=saved.run, checkpoint=saved.id,
        )  # fmt: skip
