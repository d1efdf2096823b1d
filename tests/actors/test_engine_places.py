"""Places stay the same whatever the timing: operations of parallel branches find their own results in every attempt."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.engine.place import Places, apart, number_branches

Tree = list["Tree"]
TREES: st.SearchStrategy[Tree] = st.recursive(st.just([]), lambda below: st.lists(below, max_size=4), max_leaves=20)


@contextmanager
def numbered() -> Iterator[None]:
    loop = asyncio.get_running_loop()
    number_branches(loop)
    try:
        yield
    finally:
        loop.set_task_factory(None)


async def walk(
    places: Places, tree: Tree, name: str, found: dict[str, str], chance: random.Random, group: bool
) -> None:
    """A branch of an agent: operations and branches below it, with pauses of any length between them."""

    async def pause() -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if chance.random() < 0.1:
            await asyncio.sleep(0.001)

    async def operation(label: str) -> None:
        await pause()
        found[label] = places.next()
        await pause()

    await pause()
    await operation(f"{name}.first")
    below = [walk(places, one, f"{name}/{index}", found, chance, group) for index, one in enumerate(tree)]
    if group:
        async with asyncio.TaskGroup() as tasks:
            for one in below:
                tasks.create_task(one)
                await pause()
    else:
        await asyncio.gather(*below)
    await operation(f"{name}.last")


async def attempt(tree: Tree, seed: int, group: bool) -> dict[str, str]:
    places, found = Places(), dict[str, str]()

    async def code() -> None:
        places.enter()
        await walk(places, tree, "", found, random.Random(seed), group)

    with numbered():
        await asyncio.create_task(code())
    return found


@settings(max_examples=60, deadline=None)
@given(tree=TREES, seeds=st.tuples(st.integers(), st.integers()), group=st.booleans())
def test_places_do_not_depend_on_timing(tree: Tree, seeds: tuple[int, int], group: bool) -> None:
    """Two attempts with other delays give each operation the same place, and no two operations one place."""
    first = asyncio.run(attempt(tree, seeds[0], group))
    second = asyncio.run(attempt(tree, seeds[1], group))
    assert first == second
    assert len(set(first.values())) == len(first)


async def test_form_of_places() -> None:
    """Own task, branches, branches of branches, inside of a step."""
    places = Places()

    async def branch(depth: int) -> list[str]:
        mine = [places.next()]
        if depth:
            mine += await asyncio.create_task(branch(depth - 1))
        return [*mine, places.next()]

    async def code() -> list[str]:
        places.enter()
        found = await asyncio.gather(branch(1), branch(0))
        mine = places.next()
        with places.inside(mine):
            inner = [places.next(), places.next()]
        return [*found[0], *found[1], mine, *inner, places.next()]

    with numbered():
        assert await asyncio.create_task(code()) == [
            "b0:0", "b0:b0:0", "b0:b0:1", "b0:1", "b1:0", "b1:1", "0", "0s:0", "0s:1", "1",
        ]  # fmt: skip


async def test_tasks_of_the_engine_are_no_branches() -> None:
    """What the engine begins for itself during a call does not shift the branches of the code."""
    places = Places()

    async def nothing() -> None: ...

    async def place() -> str:
        return places.next()

    async def code() -> str:
        places.enter()
        await apart(nothing())
        return await asyncio.create_task(place())

    with numbered():
        assert await asyncio.create_task(code()) == "b0:0"


async def test_factory_that_was_there_before_stays_in_use() -> None:
    """Installed once, on top of another factory; tasks outside of agents pass through."""
    loop = asyncio.get_running_loop()
    made: list[object] = []

    def factory(loop: asyncio.AbstractEventLoop, coroutine: object, **options: object) -> asyncio.Task[object]:
        task: asyncio.Task[object] = asyncio.Task(coroutine, loop=loop, **options)  # type: ignore[arg-type]
        made.append(task)
        return task

    loop.set_task_factory(factory)  # type: ignore[arg-type]
    try:
        number_branches(loop)
        number_branches(loop)

        async def nothing() -> None: ...

        await asyncio.create_task(nothing(), name="mine")
        assert len(made) == 1
    finally:
        loop.set_task_factory(None)


@pytest.mark.parametrize("eager", [False, True])
async def test_eager_tasks(eager: bool) -> None:
    """Python's own eager factory works below."""
    if not hasattr(asyncio, "eager_task_factory"):
        pytest.skip("needs Python 3.12")
    loop = asyncio.get_running_loop()
    loop.set_task_factory(asyncio.eager_task_factory if eager else None)
    try:
        number_branches(loop)
        places = Places()

        async def place() -> str:
            await asyncio.sleep(0)
            return places.next()

        async def code() -> list[str]:
            places.enter()
            return list(await asyncio.gather(place(), place()))

        assert await asyncio.create_task(code()) == ["b0:0", "b1:0"]
    finally:
        loop.set_task_factory(None)
