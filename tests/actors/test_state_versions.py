"""Runs whose code has changed while they were at work: their state is migrated, or refused, on real workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

from callboard.actors import migrations
from callboard.actors.agent import Agent, agent
from callboard.actors.engine import Context
from callboard.actors.graph import END, START, Graph, Was, append
from callboard.actors.migrations import migrate
from callboard.store.attention import Attention
from callboard.store.blobs import Blobs
from callboard.store.checkpoints import Checkpoints
from callboard.topics.bus import Bus
from callboard.topics.config import BrokerSettings
from callboard.topics.errors import IllegalTransition
from callboard.topics.messages import RunRecord, Status

from .company import Company, company, eventually, result_of


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """No migrations of other tests."""
    monkeypatch.setattr(migrations.REGISTERED, "_steps", {})


def counter(version: str, field: str = "i", **options: Any) -> Agent[Any]:
    """Counts to four under the name `field`, with a checkpoint each time; in version 1 it stays at two."""

    @agent("counter", version=version, **options)
    async def count(ctx: Context, by: int) -> dict[str, Any]:
        state = ctx.state
        while state.setdefault(field, 0) < 4:
            if version == "1" and state[field] == 2:
                await asyncio.sleep(60)
            state[field] += by
            await ctx.checkpoint()
        return dict(state)

    return count


async def taken_over(
    all_: Company, old: Agent[Any], new: Agent[Any], value: Any, ready: Callable[[Any], bool]
) -> RunRecord:
    """A run that a worker of `old` has brought to a checkpoint that is `ready`, and that a worker of `new` goes on with
    after that one was killed."""
    first = await all_.worker(old)
    run = await all_.submit(old.name, value)
    checkpoints = Checkpoints(all_.bus, Blobs(all_.bus))

    async def there() -> bool:
        state = await checkpoints.load(run)
        return state is not None and ready(state.values)

    await eventually(there)
    await first.kill()
    await all_.worker(new)
    return await all_.ended(run)


async def test_the_state_of_a_code_agent_is_migrated_where_it_is_loaded(settings: BrokerSettings, bus: Bus) -> None:
    """Through two versions that no worker of this test has; what is written after that is of the new one."""

    @migrate("counter", from_version="1", to_version="2")
    def rename(state: dict[str, Any]) -> None:
        state["number"] = state.pop("i")

    @migrate("counter", from_version="2", to_version="3")
    def mark(state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "migrated": True}

    async with company(settings, bus) as all_:
        record = await taken_over(all_, counter("1"), counter("3", "number"), 1, lambda values: values == {"i": 2})
        assert result_of(record) == {"number": 4, "migrated": True}
        history = await Checkpoints(bus, Blobs(bus)).history(record.id)
        assert [(one.checkpoint.version, one.channels) for one in history[:3]] == [
            ("3", ["migrated", "number"]), ("3", ["migrated", "number"]), ("1", ["i"]),
        ]  # fmt: skip


async def test_an_agent_without_migrations_takes_the_state_as_it_is(settings: BrokerSettings, bus: Bus) -> None:
    async with company(settings, bus) as all_:
        record = await taken_over(all_, counter("1"), counter("2"), 1, lambda values: values == {"i": 2})
        assert (result_of(record), record.version) == ({"i": 4}, "2")


async def test_a_missing_migration_fails_the_run_and_a_retry_goes_on_once_it_is_there(
    settings: BrokerSettings, bus: Bus
) -> None:
    @migrate("counter", from_version="0", to_version="1")
    def before(state: dict[str, Any]) -> None: ...

    async with company(settings, bus) as all_:
        record = await taken_over(all_, counter("1"), counter("2", "number"), 1, lambda values: values == {"i": 2})
        assert (record.status, record.error and record.error.code) == (Status.FAILED, "migration_missing")
        assert record.error is not None
        assert "write @migrate(\"counter\", from_version='1', to_version='2')" in record.error.message
        assert record.failures == 1

        async def noted() -> bool:
            return [item.id for item in await Attention(bus).items()] == [record.id]

        await eventually(noted)

        @migrate("counter", from_version="1", to_version="2")
        def rename(state: dict[str, Any]) -> None:
            state["number"] = state.pop("i")

        retried = await all_.submitter.retry(record.id)
        assert result_of(await all_.ended(retried.id)) == {"number": 4}


async def test_a_migration_that_raises_ends_the_run_by_name(settings: BrokerSettings, bus: Bus) -> None:
    @migrate("counter", from_version="1", to_version="2")
    def rename(state: dict[str, Any]) -> None:
        state["number"] = state.pop("nothing")

    async with company(settings, bus) as all_:
        record = await taken_over(all_, counter("1"), counter("2"), 1, lambda values: values == {"i": 2})
        assert (record.status, record.error and record.error.code) == (Status.FAILED, "migration_failed")


async def test_by_policy_a_new_run_starts_from_the_input_and_both_say_so(settings: BrokerSettings, bus: Bus) -> None:
    migrate("counter", from_version="0", to_version="1")(lambda state: None)
    new = counter("2", "number", on_missing="new_run")
    async with company(settings, bus, coordinators=2) as all_:
        record = await taken_over(all_, counter("1"), new, 2, lambda values: values == {"i": 2})
        assert (record.status, record.error and record.error.code) == (Status.FAILED, "migration_missing")
        assert record.successor is not None
        assert record.reason == f"run {record.successor} has started in its place"
        after = await all_.ended(record.successor)
        assert (result_of(after), after.successor_of, after.version) == ({"number": 4}, record.id, "2")
        assert not await Attention(bus).items()
        with pytest.raises(IllegalTransition, match="has started in the place"):
            await all_.submitter.retry(record.id)
        await bus.store(bus.subjects.command(record.id, "sweep"), b"")
        assert len(await all_.states(after.id)) == 3


# -- graphs -----------------------------------------------------------------------------------------------------


class Old(TypedDict, total=False):
    name: str
    log: Annotated[list[str], append]


class Renamed(TypedDict, total=False):
    title: Annotated[str, Was("name")]
    lines: Annotated[list[str], append, Was("log")]


class Parted(TypedDict, total=False):
    first: str
    last: str
    log: Annotated[list[str], append]


def old(version: str = "1") -> Agent[Any]:
    """Runs `collect`, and then `publish`, which never ends."""
    graph = Graph(Old)

    async def collect(state: Old) -> Old:
        return {"name": "Ada Lovelace", "log": ["collected"]}

    async def publish(state: Old) -> Old:
        await asyncio.sleep(60)
        return {}

    graph.node("collect", collect).node("publish", publish).chain(START, "collect", "publish", END)
    return graph.agent("book", version=version)


def collected(values: Any) -> bool:
    return "collected" in values.get("log", [])


async def test_nodes_and_fields_have_other_names_when_a_run_goes_on(settings: BrokerSettings, bus: Bus) -> None:
    graph = Graph(Renamed)

    async def gather(state: Renamed) -> Renamed:
        raise AssertionError("it was done by version 1")

    async def release(state: Renamed) -> Renamed:
        return {"title": state["title"].upper(), "lines": ["released"]}

    graph.node("gather", gather, was=["collect"]).node("release", release, was=["publish"])
    graph.chain(START, "gather", "release", END)
    async with company(settings, bus) as all_:
        record = await taken_over(all_, old(), graph.agent("book", version="2"), {}, collected)
        assert result_of(record) == {"title": "ADA LOVELACE", "lines": ["collected", "released"]}
        newest = await Checkpoints(bus, Blobs(bus)).load(record.id)
        assert newest is not None
        assert newest.values == {"title": "ADA LOVELACE", "lines": ["collected", "released"]}


def parted(schema_version: int, **options: Any) -> Agent[Any]:
    graph = Graph(Parted, schema_version=schema_version)

    async def collect(state: Parted) -> Parted:
        return {"first": "Grace", "last": "Hopper", "log": ["collected anew"]}

    async def publish(state: Parted) -> Parted:
        return {"log": [f"{state['last']}, {state['first']}"]}

    graph.node("collect", collect).node("publish", publish).chain(START, "collect", "publish", END)
    return graph.agent("book", version="2", **options)


async def test_the_state_of_a_graph_is_migrated_by_its_schema_s_version(settings: BrokerSettings, bus: Bus) -> None:
    @migrate(Parted, from_version=1, to_version=2)
    def part(state: dict[str, Any]) -> None:
        state["first"], _, state["last"] = state.pop("name").partition(" ")

    async with company(settings, bus) as all_:
        record = await taken_over(all_, old(), parted(2), {}, collected)
        wanted = {"first": "Ada", "last": "Lovelace", "log": ["collected", "Lovelace, Ada"]}
        assert result_of(record) == wanted
        newest = await Checkpoints(bus, Blobs(bus)).load(record.id)
        assert newest is not None
        assert (newest.values, newest.saved.checkpoint.schema, newest.saved.checkpoint.version) == (wanted, "2", "2")


@pytest.mark.parametrize("schema_version", [1, 2])
async def test_a_graph_whose_state_does_not_fit_is_refused_or_starts_anew(
    settings: BrokerSettings, bus: Bus, schema_version: int
) -> None:
    """Also when its author has forgotten to count the schema up."""
    async with company(settings, bus) as all_:
        record = await taken_over(all_, old(), parted(schema_version, on_missing="new_run"), {}, collected)
        assert (record.status, record.error and record.error.code) == (Status.FAILED, "migration_missing")
        after = await all_.ended(record.successor or "")
        assert result_of(after)["log"] == ["collected anew", "Hopper, Grace"]
