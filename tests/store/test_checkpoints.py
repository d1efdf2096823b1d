"""Checkpoints on a real server: what is stored of them, and that they can be loaded again."""

from __future__ import annotations

import msgspec
import pytest

from callboard.store.blobs import Blobs
from callboard.store.checkpoints import Checkpoints
from callboard.store.errors import CheckpointMissing
from callboard.topics.bus import Bus
from callboard.topics.errors import InvalidInput, StaleFence
from callboard.topics.ids import new_run_id
from callboard.topics.messages import Status
from tests.store.chains import Chain, agrees


async def test_a_run_without_checkpoints_has_none(bus: Bus) -> None:
    store = Checkpoints(bus, Blobs(bus))
    run = new_run_id()
    assert await store.load(run) is None
    assert await store.history(run) == []
    with pytest.raises(CheckpointMissing, match="never was"):
        await store.load(run, "1")
    with pytest.raises(InvalidInput, match="is no checkpoint id"):
        await store.load(run, "first")


async def test_what_was_saved_is_loaded(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    values = {"n": 1, "text": "é\n\"'", "list": [1, {"a": None}], "none": None, "map": {"k": [True, 1.5]}, "empty": []}
    await chain.save(values, plan={"next": ["b"]}, next=["b"], ran=["a"])
    state = await chain.store.load(chain.run)
    assert state is not None
    assert state.values == values
    assert msgspec.json.decode(state.plan or b"") == {"next": ["b"]}
    saved = state.saved
    assert (saved.checkpoint.next, saved.checkpoint.ran, saved.parent) == (["b"], ["a"], None)
    assert saved.channels == sorted(values)


async def test_only_what_changed_is_stored(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    values: dict[str, object] = {f"channel_{number}": "x" * 100 + str(number) for number in range(50)}
    await chain.save(values)
    values["channel_7"] = "another"
    await chain.save(values)
    newest = (await chain.newest()).checkpoint
    assert list(newest.put) == ["channel_7"]
    assert len(newest.kept) == 49
    await agrees(chain)


async def test_an_equal_value_is_not_stored_again(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    long = "the same long text" * 10
    await chain.save({"a": long, "b": 1})
    await chain.save({"a": long, "b": 1, "c": long}, {"a": None, "c": None})
    newest = (await chain.newest()).checkpoint
    assert newest.put == {}
    assert list(newest.alias) == ["c"]
    await chain.again()
    await chain.save({"c": long, "d": long}, {"d": None})
    assert (await chain.newest()).checkpoint.put == {}
    await chain.save({"c": long + "!", "d": long})
    await agrees(chain)


async def test_two_new_equal_values_of_one_checkpoint_stand_in_it_once(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    long = list(range(100))
    await chain.save({"a": long, "b": long})
    assert list((await chain.newest()).checkpoint.put) == ["a"]
    await chain.save({"a": [*long, 1], "b": [*long, 2]}, {"a": [1], "b": [2]})
    await chain.again()
    await chain.save({"a": [*long, 1, 3], "b": [*long, 2, 4]})
    await agrees(chain)


async def test_a_thousand_turns_that_append_a_kilobyte_cost_at_most_three_times_that(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    messages: list[str] = []
    for turn in range(1000):
        text = f"{turn:06}" + "m" * 1018
        messages.append(text)
        await chain.save({"messages": messages, "turn": turn}, {"messages": [text], "turn": None})
    chain.saved = [chain.saved[index] for index in (0, 1, 31, 32, 33, 500, 998, 999)]
    await agrees(chain)
    info = await bus.api(f"STREAM.INFO.OBJ_{bus.subjects.blobs}", missing_ok=True)
    stored = chain.bytes + (info["state"]["bytes"] if info else 0)
    assert stored <= 3 * 1024 * 1000, f"{stored} bytes"
    state = await chain.store.load(chain.run)
    assert state is not None
    assert sum(map(len, state.levels["messages"])) <= 62


@pytest.mark.parametrize("steps", [200, 1000])
async def test_a_step_that_adds_200_bytes_stores_at_most_a_kilobyte(bus: Bus, steps: int) -> None:
    chain = await Chain(bus).begin()
    log: list[str] = []
    for step in range(steps):
        log.append("x" * 197)
        await chain.save({"log": log, "i": step}, {"log": log[-1:], "i": None}, plan=["work"], ran=["work"])
    info = await bus.api(f"STREAM.INFO.OBJ_{bus.subjects.blobs}", missing_ok=True)
    stored = chain.bytes + (info["state"]["bytes"] if info else 0)
    assert stored / steps <= 1024, f"{stored / steps} bytes a step"


@pytest.mark.parametrize("kind", ["list", "text", "map"])
async def test_what_grows_is_stored_as_increments_also_when_nobody_says_that_it_grew(bus: Bus, kind: str) -> None:
    chain = await Chain(bus).begin()
    part = "p" * 90
    for turn in range(1, 101):
        grown: object = [part] * turn
        if kind == "text":
            grown = part * turn
        elif kind == "map":
            grown = {f"{number}": part for number in range(turn)}
        await chain.save({"grown": grown})
        if turn == 50:
            await chain.again()
    assert chain.bytes < 100 * 100 * 4, "a hundred whole values would be fifty times the new bytes"
    await agrees(chain)


async def test_a_list_that_shrinks_or_changes_inside_is_stored_as_a_whole(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    items = [f"{number} and some text to make it long" for number in range(20)]
    for value in (
        items,
        [*items, "more"],
        items,
        items[1:],
        [*items[1:], 1, 2],
        ["other", *items[2:], 1, 2],
        [],
        ["a"],
    ):
        await chain.save({"items": value})
        await agrees(chain)


async def test_large_values_lie_in_the_object_store(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    large = ["x" * 1000] * 100
    await chain.save({"large": large})
    cell = (await chain.newest()).checkpoint.put["large"]
    assert cell.ref is not None
    await chain.save({"large": [*large, "one more"]}, {"large": ["one more"]})
    assert (await chain.newest()).checkpoint.put["large"].ref is None
    await chain.again()
    await chain.save({"large": [*large, "one more", "two"]})
    await agrees(chain)


async def test_many_values_that_are_too_much_for_a_message_together_are_stored_all_the_same(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    values = {f"c{number}": f"{number}" + "y" * 30_000 for number in range(60)}
    await chain.save(values)
    assert (await chain.newest()).size_bytes < bus.max_payload
    await agrees(chain)


async def test_the_history_is_a_chain_in_pages(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    for turn in range(7):
        await chain.save({"turn": turn})
    ids = [str(sequence) for sequence, _ in chain.saved][::-1]
    first = await chain.store.history(chain.run, limit=3)
    rest = await chain.store.history(chain.run, before=first[-1].id)
    assert [saved.id for saved in first] == ids[:3]
    assert [saved.id for saved in rest] == ids[3:]
    assert [saved.parent for saved in first] == ids[1:4]
    assert await chain.store.history(chain.run, before=ids[-1]) == []


async def test_namespaces_are_chains_of_their_own(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    await chain.save({"a": 1})
    other = Chain(bus, chain.run)
    other.owner = chain.owner
    odd = "sub graph.with * and > " * 9
    await other.save({"b": 2}, namespace="inner")
    await other.save({"b": 3}, namespace=odd)
    for namespace, values in (("", {"a": 1}), ("inner", {"b": 2}), (odd, {"b": 3})):
        state = await chain.store.load(chain.run, namespace=namespace)
        assert state is not None
        assert state.values == values
    assert await chain.store.load(chain.run, namespace="none") is None


async def test_a_checkpoint_of_another_run_is_not_found_under_this_one(bus: Bus) -> None:
    one, two = await Chain(bus).begin(), await Chain(bus).begin()
    sequence = await one.save({"a": 1})
    with pytest.raises(CheckpointMissing):
        await two.store.load(two.run, str(sequence))
    with pytest.raises(CheckpointMissing):
        await two.store.load(two.run, str(one.owner))


async def test_a_fork_points_into_the_run_that_it_comes_from(bus: Bus) -> None:
    one = await Chain(bus).begin()
    items = ["some text of a certain length"] * 20
    await one.save({"items": items, "n": 1})
    await one.save({"items": [*items, "a"], "n": 2}, {"items": ["a"], "n": None})
    state = await one.store.load(one.run)
    assert state is not None
    two = await Chain(bus, state=state).begin()
    await two.save({"items": [*items, "a"], "n": 2}, {}, source="fork")
    newest = (await two.newest()).checkpoint
    assert newest.put == {}
    await two.save({"items": [*items, "a", "b"], "n": 3}, {"items": ["b"], "n": None})
    await agrees(two)
    assert [saved.run for saved in await two.store.history(two.run)] == [two.run, two.run]


async def test_a_late_checkpoint_is_refused(bus: Bus) -> None:
    chain = await Chain(bus).begin()
    await chain.save({"a": 1})
    old = chain.owner
    await chain.state(Status.RUNNING)
    chain.owner = old
    with pytest.raises(StaleFence):
        await chain.save({"a": 2})


async def test_values_are_stored_anew_before_they_are_too_old(bus: Bus, settings: object) -> None:
    now = [1000.0]
    bus.settings = bus.settings.model_copy(update={"retention_days": 1 / 24})
    chain = await Chain(bus, clock=lambda: now[0]).begin()
    items = ["some text of a certain length"] * 20
    await chain.save({"a": 1, "items": items, "b": 2})
    now[0] += 1700
    await chain.save({"a": 1, "items": [*items, "x"], "b": 3}, {"items": ["x"], "b": None})
    assert set((await chain.newest()).checkpoint.kept) == {"a"}
    now[0] += 200
    await chain.save({"a": 1, "items": [*items, "x"], "b": 3}, {})
    newest = (await chain.newest()).checkpoint
    assert set(newest.put) == {"a", "items"}
    assert set(newest.kept) == {"b"}
    assert newest.grown == {}
    await agrees(chain)
