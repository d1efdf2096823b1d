"""The audit follows checkpoints: who wrote them, in which order, and whether what they point to is there."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from callboard.actors.audit import audit
from callboard.store.blobs import Blobs
from callboard.store.checkpoints import Checkpoints, Choice
from callboard.topics.bus import Bus
from callboard.topics.ids import new_run_id
from callboard.topics.messages import Cell, Checkpoint, Label, Status, encode
from tests.actors.auditing import WAIT_S, Forger

ONE = {"x": Cell(json=Raw(b"1"))}


class Hand(Forger):
    """Writes checkpoints as well."""

    async def saved(self, run: str, step: int, n: int = 1, attempt: int = 1, **fields: Any) -> int:
        given: dict[str, Any] = {"source": "loop", "put": ONE} | fields
        made = Checkpoint(attempt=attempt, n=n, agent="reviewer", step=step, **given)
        return await self.raw(run, "checkpoint", encode(made))

    async def ended(self, run: str) -> set[str]:
        """The codes of what is found once the run has ended."""
        await self.state(run, Status.COMPLETED, attempt=1)
        return {one.code for one in (await audit(self.bus, wait_s=WAIT_S)).findings}


@pytest.fixture
async def hand(bus: Bus) -> Hand:
    return Hand(bus)


@pytest.fixture
async def run(hand: Hand) -> str:
    """A run that is running."""
    run = new_run_id()
    await hand.path(run, Status.QUEUED, Status.RUNNING)
    return run


async def test_a_right_chain_is_clean(hand: Hand, run: str) -> None:
    first = await hand.saved(run, 0, 1, source="input")
    second = await hand.saved(run, 1, 2, parent=first, put={}, kept={"x": first})
    await hand.saved(run, 2, 3, parent=second, grown={"x": [[first], [0]]})
    await hand.saved(run, 2, 3, parent=second, grown={"x": [[first], [0]]})  # a write that was repeated
    assert await hand.ended(run) == set()


async def test_a_parent_that_is_not_there(hand: Hand, run: str) -> None:
    await hand.saved(run, 1, parent=10**9)
    assert await hand.ended(run) == {"checkpoint_orphan"}


async def test_a_parent_that_was_pruned(hand: Hand, run: str) -> None:
    first = await hand.saved(run, 1, 1)
    await hand.saved(run, 2, 2, parent=first)
    await hand.bus.api(f"STREAM.MSG.DELETE.{hand.bus.subjects.events}", {"seq": first})
    await hand.bus.write(hand.bus.subjects.label(run, "@pruned"), encode(Label(checkpoint=first)))
    assert await hand.ended(run) == set()


async def test_steps_that_do_not_grow(hand: Hand, run: str) -> None:
    first = await hand.saved(run, 3, 1)
    await hand.saved(run, 3, 2, parent=first)
    assert await hand.ended(run) == {"checkpoint_order"}


@pytest.mark.parametrize("fields", [{"kept": {"x": 10**9}}, {"kept": {"y": 0}}, {"grown": {"x": [[10**9], [0]]}}])
async def test_a_pointer_to_nothing(hand: Hand, run: str, fields: dict[str, Any]) -> None:
    """A message that is not there, one that does not hold that channel, and a piece that is gone."""
    first = await hand.saved(run, 1, 1)
    if "kept" in fields:
        fields = {"put": {}, "kept": {name: number or first for name, number in fields["kept"].items()}}
    await hand.saved(run, 2, 2, parent=first, **fields)
    assert await hand.ended(run) == {"checkpoint_broken"}


async def test_a_checkpoint_of_somebody_else(hand: Hand, run: str) -> None:
    await hand.saved(run, 1, attempt=2)
    assert await hand.ended(run) == {"write_not_owned"}


async def test_an_edit_of_a_run_that_is_carried_out(hand: Hand, run: str) -> None:
    await hand.saved(run, 1, n=0, source="update")
    assert await hand.ended(run) == {"write_not_owned"}


async def test_a_checkpoint_after_the_end(hand: Hand, run: str) -> None:
    await hand.state(run, Status.COMPLETED, attempt=1)
    await hand.saved(run, 1)
    codes = {one.code for one in (await audit(hand.bus, wait_s=WAIT_S)).findings}
    assert "write_after_end" in codes


async def test_a_checkpoint_that_cannot_be_read(hand: Hand, run: str) -> None:
    await hand.raw(run, "checkpoint", b"{")
    await hand.raw(run, "checkpoint@part", b"[]")
    assert await hand.ended(run) == {"entry_unreadable"}


async def test_what_was_pruned_by_the_store_is_clean(hand: Hand, run: str) -> None:
    sequences = [await hand.saved(run, 0, 1, source="input")]
    for step in range(1, 9):
        sequences.append(await hand.saved(run, step, step + 1, parent=sequences[-1], put={}, kept={"x": sequences[0]}))
    store = Checkpoints(hand.bus, Blobs(hand.bus))
    await store.prune(run, Choice(keep=2))
    assert [saved.sequence for saved in await store.history(run)] == sequences[:-3:-1]
    assert await hand.ended(run) == set()
