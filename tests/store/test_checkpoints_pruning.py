"""Labels, pruning and sizes on a real server: what must stay stays, what nobody needs goes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from callboard.store.checkpoints import Choice, Saved
from callboard.store.checkpoints.marks import PRUNED
from callboard.store.checkpoints.prune import Pruner
from callboard.store.errors import CheckpointMissing
from callboard.store.size import Scale
from callboard.topics.bus import Bus
from callboard.topics.errors import Conflict, InvalidInput, InvalidSubject, NotFound
from callboard.topics.messages import Label, encode
from tests.store.chains import Chain, agrees

LONG = "some text of a certain length"


async def grown(bus: Bus, turns: int = 12) -> Chain:
    """A run with values that change, that stay and that grow."""
    chain = await Chain(bus).begin()
    items = [LONG] * 20
    for turn in range(turns):
        items = [*items, f"{turn}"] if turn % 4 == 3 else items
        values = {"turn": turn, "fixed": LONG, "items": items, f"of {turn // 3}": turn // 3}
        await chain.save(values)
    return chain


def ids(found: list[Saved]) -> list[str]:
    return [saved.id for saved in found]


async def listed(chain: Chain) -> list[str]:
    return ids(await chain.store.history(chain.run, limit=99))


async def test_the_newest_are_kept_and_can_be_loaded(bus: Bus) -> None:
    chain = await grown(bus)
    names = [str(sequence) for sequence, _ in chain.saved]
    told = await chain.store.prune(chain.run, Choice(keep=3), dry_run=True)
    assert len(await listed(chain)) == 12
    done = await chain.store.prune(chain.run, Choice(keep=3))
    assert (told.removed, told.removed_bytes, told.kept) == (done.removed, done.removed_bytes, done.kept)
    assert (done.kept, done.held, done.dry_run, told.dry_run) == (3, 0, False, True)
    assert done.removed + done.carriers == 9
    assert done.removed_bytes > 0
    assert await listed(chain) == names[::-1][:3]
    chain.saved = chain.saved[-3:]
    await agrees(chain)
    await chain.again()
    await chain.save({"turn": 99, "fixed": LONG})
    await agrees(chain)
    assert (await chain.store.prune(chain.run, Choice(keep=4))).removed == 0


async def test_what_is_young_is_kept(bus: Bus) -> None:
    chain = await grown(bus, 5)
    late = datetime.now(UTC).timestamp() + 7200
    pruner = Pruner(bus, chain.store.labels, lambda: late)
    assert (await pruner.prune(chain.run, Choice(older_than=timedelta(hours=3)))).removed == 0
    both = await pruner.prune(chain.run, Choice(keep=2, older_than=timedelta(hours=1)), dry_run=True)
    assert both.kept == 2
    done = await pruner.prune(chain.run, Choice(older_than=timedelta(hours=1)))
    assert done.kept == 1
    chain.saved = chain.saved[-1:]
    await agrees(chain)


@pytest.mark.parametrize(
    "wrong", [{}, {"keep": 0}, {"keep": -1}, {"older_than": timedelta(seconds=-1)}, {"keep": 0, "older_than": None}]
)
def test_a_choice_that_says_nothing_or_would_take_everything_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Choice(**wrong)  # type: ignore[arg-type]  # that is the point


async def test_a_run_without_checkpoints_has_nothing_to_prune(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    done = await chain.store.prune(chain.run, Choice(keep=1))
    assert (done.removed, done.kept) == (0, 0)


async def test_a_labelled_checkpoint_stays_until_the_label_is_taken_away(bus: Bus) -> None:
    chain = await grown(bus)
    second, sixth = (str(chain.saved[index][0]) for index in (1, 5))
    labels = chain.store.labels
    await labels.put(chain.run, "good", second)
    await labels.put(chain.run, "good", sixth)
    await labels.put(chain.run, "also", sixth)
    marks = await labels.of(chain.run)
    at = chain.store.reader.at
    assert marks.names_of(await at(chain.run, sixth)) == ["also", "good"]
    assert marks.names_of(await at(chain.run, second)) == []
    assert await labels.find(chain.run, "good") == sixth
    assert await labels.find(chain.run, "17") == "17"
    done = await chain.store.prune(chain.run, Choice(keep=1))
    assert (done.kept, done.held) == (2, 1)
    assert await listed(chain) == [str(chain.saved[-1][0]), sixth]
    kept = [chain.saved[5], chain.saved[-1]]
    everything, chain.saved = chain.saved, kept
    await agrees(chain)
    await labels.drop(chain.run, "good")
    assert (await chain.store.prune(chain.run, Choice(keep=1))).removed == 0
    await labels.drop(chain.run, "also")
    assert (await chain.store.prune(chain.run, Choice(keep=1))).removed > 0
    assert await listed(chain) == [str(everything[-1][0])]
    with pytest.raises(CheckpointMissing):
        await chain.store.load(chain.run, sixth)


async def test_a_label_given_by_the_code_counts_until_people_say_something_else(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    for turn in range(9):
        await chain.save({"turn": turn}, label="reviewed" if turn in (1, 3) else "")
    labels, names = chain.store.labels, [str(sequence) for sequence, _ in chain.saved]
    assert await labels.find(chain.run, "reviewed") == names[3]
    await chain.store.prune(chain.run, Choice(keep=1))
    assert await listed(chain) == [names[8], names[3], names[1]]
    await labels.put(chain.run, "reviewed", names[8])
    assert await labels.find(chain.run, "reviewed") == names[8]
    await labels.drop(chain.run, "reviewed")
    assert await listed(chain) == [names[8]]
    assert (await chain.store.prune(chain.run, Choice(keep=1))).removed == 2
    await chain.save({"turn": 9}, label="reviewed")
    assert await labels.find(chain.run, "reviewed") == str(chain.saved[-1][0])
    await labels.drop(chain.run, "reviewed")
    with pytest.raises(InvalidInput):
        await labels.find(chain.run, "reviewed")


async def test_labels_that_cannot_be(bus: Bus) -> None:
    chain = await grown(bus, 3)
    labels, first = chain.store.labels, str(chain.saved[0][0])
    for name in ("@mine", "a b", "a.b", ""):
        with pytest.raises(InvalidSubject):
            await labels.put(chain.run, name, first)
    with pytest.raises(CheckpointMissing):
        await labels.put(chain.run, "name", str(chain.owner))
    with pytest.raises(NotFound, match="no label"):
        await labels.drop(chain.run, "name")
    with pytest.raises(InvalidInput, match="neither a checkpoint id nor a label"):
        await labels.find(chain.run, "name")
    assert (await labels.of(chain.run)).labels == {}


async def test_a_checkpoint_that_is_gone_takes_no_label(bus: Bus) -> None:
    chain = await grown(bus)
    second = chain.saved[1][0]
    await chain.store.prune(chain.run, Choice(keep=1))
    with pytest.raises(CheckpointMissing):
        await chain.store.labels.put(chain.run, "late", str(second))
    with pytest.raises(CheckpointMissing):
        await chain.store.labels.hold(chain.run, second, "another")
    assert (await chain.store.labels.of(chain.run)).labels == {}


async def test_a_fork_stays_whole_and_so_does_what_it_began_from(bus: Bus) -> None:
    chain = await grown(bus)
    sequence, values = chain.saved[4]
    fork = Chain(bus)
    assert await chain.store.labels.hold(chain.run, sequence, fork.run)
    state = await chain.store.load(chain.run, str(sequence))
    assert state is not None
    fork = await Chain(bus, fork.run, state=state).begin()
    await fork.save({**values, "turn": "fork"})
    done = await chain.store.prune(chain.run, Choice(keep=1))
    assert (done.kept, done.held) == (2, 1)
    assert done.removed > 0
    assert list((await fork.newest()).checkpoint.put) == ["turn"]
    await agrees(fork)
    chain.saved = [chain.saved[4], chain.saved[-1]]
    await agrees(chain)


async def test_while_a_run_is_being_pruned_nobody_else_prunes_or_labels_what_may_go(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = await grown(bus)
    labels, (second, *_, last) = chain.store.labels, [str(sequence) for sequence, _ in chain.saved[1:]]
    subject = bus.subjects.label(chain.run, PRUNED)
    await bus.store(subject, encode(Label(checkpoint=int(last) - 1, open=True)))
    monkeypatch.setattr("callboard.store.checkpoints.labels._PATIENCE_S", 0.1)
    with pytest.raises(Conflict, match="already"):
        await chain.store.prune(chain.run, Choice(keep=1))
    with pytest.raises(Conflict, match="is being pruned"):
        await labels.put(chain.run, "name", second)
    await labels.put(chain.run, "name", last)
    assert not await labels.hold(chain.run, int(second), "fork")
    later = datetime.now(UTC).timestamp() + 100
    done = await Pruner(bus, labels, lambda: later).prune(chain.run, Choice(keep=1))
    assert done.held == 1, "what a fork holds stays, although it was told to copy"
    assert not (await labels.of(chain.run)).pruned.open


async def test_a_label_waits_for_the_end_of_a_pruning(bus: Bus) -> None:
    chain = await grown(bus)
    last, subject = chain.saved[-1][0], bus.subjects.label(chain.run, PRUNED)
    await bus.store(subject, encode(Label(checkpoint=last - 1, open=True)))
    labelling = asyncio.create_task(chain.store.labels.put(chain.run, "name", str(chain.saved[2][0])))
    await asyncio.sleep(0.1)
    assert not labelling.done()
    await bus.store(subject, encode(Label(checkpoint=last - 1)))
    assert (await labelling).sequence == chain.saved[2][0]


async def test_pruning_beside_the_run_itself_does_not_harm_it(bus: Bus) -> None:
    chain = await grown(bus, 40)
    items = [LONG] * 60
    for turn in range(40, 80):
        items = [*items, f"{turn}"]
        values = {"turn": turn, "fixed": LONG, "items": items, f"of {turn // 7}": turn // 7}
        _, done = await asyncio.gather(chain.save(values), chain.store.prune(chain.run, Choice(keep=2)))
        assert done.kept >= 2
    chain.saved = chain.saved[-2:]
    await agrees(chain)
    await chain.again()
    await chain.save({"items": [*items, "end"], "fixed": LONG})
    await agrees(chain)


async def test_of_each_subgraph_the_newest_stays(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    inner = Chain(bus, chain.run)
    inner.owner = chain.owner
    for turn in range(6):
        await chain.save({"turn": turn})
        if turn < 3:
            await inner.save({"inner": turn}, namespace="sub")
    await chain.store.prune(chain.run, Choice(keep=1))
    assert len(await chain.store.history(chain.run, namespace="sub")) == 1
    state = await chain.store.load(chain.run, namespace="sub")
    assert state is not None
    assert state.values == {"inner": 2}


async def test_the_size_says_where_the_room_goes(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    large = ["x" * 1000] * 200
    await chain.save({"large": large, "n": 1})
    await chain.save({"large": large, "n": 2})
    await chain.save({"large": [*large, "more"], "other": ["y" * 1000] * 200, "n": 3})
    size = await Scale(bus).run(chain.run)
    assert size.messages.count == 4
    assert size.messages.bytes == sum(kind.bytes for kind in size.kinds.values())
    assert {kind: amount.count for kind, amount in size.kinds.items()} == {"state": 1, "checkpoint": 3}
    assert {name: amount.count for name, amount in size.channels.items()} == {"large": 2, "n": 3, "other": 1}
    assert size.channels["n"].bytes == 3
    assert size.blobs.count == 2
    assert 400_000 < size.blobs.bytes < 410_000
    fork = await Chain(bus, state=await chain.again()).begin()
    await fork.save({"large": [*large, "more"], "other": ["y" * 1000] * 200, "n": 4})
    both = await Scale(bus).thread("no-thread", [chain.run, fork.run])
    assert both.messages.count == 6
    assert both.blobs == size.blobs
