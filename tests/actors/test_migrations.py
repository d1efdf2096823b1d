"""Migrations: which steps lead from one version to another, and what they make of a state."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.agent import agent
from callboard.actors.engine import Context
from callboard.actors.migrations import (
    REGISTERED,
    Ages,
    Migration,
    MigrationFailed,
    MigrationMissing,
    Migrations,
    migrate,
    migrated,
    planned,
)
from callboard.topics.errors import InvalidInput


class State(TypedDict):
    text: str


def step(found: str, wanted: str, of: str = "agent 'a'") -> Migration:
    return Migration(of, found, wanted, lambda values: {**values, "path": [*values.get("path", []), wanted]})


def chained(*pairs: tuple[str, str], key: Any = "a") -> Migrations:
    found = Migrations()
    for pair in pairs:
        found.add(key, step(*pair))
    return found


def path(registered: Migrations, found: str, wanted: str, key: Any = "a") -> list[str] | None:
    steps = registered.plan(key, found, wanted)
    return None if steps is None else migrated({}, steps).get("path", [])


def test_the_shortest_chain_is_taken_and_nothing_leads_back() -> None:
    registered = chained(("1", "2"), ("2", "3"), ("3", "4"), ("2", "4"))
    assert path(registered, "1", "4") == ["2", "4"]
    assert path(registered, "1", "3") == ["2", "3"]
    assert path(registered, "4", "4") == []
    assert path(registered, "4", "1") is None
    assert path(registered, "0", "1") is None
    assert path(registered, "1", "4", "b") is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20), st.integers(0, 5), st.integers(0, 5))
def test_a_chain_is_found_exactly_when_there_is_one(pairs: list[tuple[int, int]], start: int, end: int) -> None:
    """And no shorter one exists, by the plain definition of reachability."""
    edges = {pair for pair in pairs if pair[0] != pair[1]}
    registered = chained(*((str(one), str(other)) for one, other in sorted(edges)))
    reached, length = {start}, 0
    while end not in reached and length < 10:
        reached |= {other for one, other in edges if one in reached}
        length += 1
    chain = registered.plan("a", str(start), str(end))
    if end not in reached:
        assert chain is None
        return
    assert chain is not None
    assert len(chain) == length
    ends = [str(start), *(one.wanted for one in chain)]
    assert ends[-1] == str(end)
    assert [one.found for one in chain] == ends[:-1]


def test_two_migrations_between_two_versions_and_one_that_leads_nowhere_are_refused() -> None:
    registered = chained(("1", "2"))

    def other(values: dict[str, Any]) -> None: ...

    with pytest.raises(InvalidInput, match=r"two migrations of agent 'a' lead from version '1' to '2'"):
        registered.add("a", Migration("agent 'a'", "1", "2", other))
    with pytest.raises(InvalidInput, match="to itself"):
        registered.add("a", step("2", "2"))
    registered.add("a", step("1", "2"))  # the same definition again


def test_what_is_needed_and_what_is_not() -> None:
    registered = chained(("1", "2"))
    registered.add(State, step("1", "3", "state"))

    def names(**ages: Any) -> list[tuple[str, str]]:
        return [(one.of, one.wanted) for one in planned(Ages(**ages), registered)]

    assert names(agent="a", found="1", wanted="2") == [("agent 'a'", "2")]
    assert names(agent="a", found="2", wanted="2") == []
    assert names(agent="other", found="1", wanted="2") == []  # it has no migrations: the state is taken as it is
    both = {"schema": State, "schema_found": "1", "schema_wanted": "3"}
    assert names(agent="a", found="1", wanted="2", **both) == [("state", "3"), ("agent 'a'", "2")]


@pytest.mark.parametrize(
    ("ages", "says"),
    [
        (Ages(agent="a", found="0", wanted="2"), r'@migrate\("a", from_version=\'0\', to_version=\'2\'\)'),
        (
            Ages(agent="b", found="", wanted="", schema=State, schema_found="1", schema_wanted="2"),
            r"@migrate\(.*State, from_version=1, to_version=2\)",
        ),
    ],
)
def test_a_missing_migration_says_what_to_write(ages: Ages, says: str) -> None:
    with pytest.raises(MigrationMissing, match=says) as caught:
        planned(ages, chained(("1", "2")))
    assert (caught.value.code, caught.value.retryable) == ("migration_missing", False)


def test_a_migration_changes_or_returns_and_what_it_was_given_stays() -> None:
    def in_place(values: dict[str, Any]) -> None:
        values["list"].append(2)

    given_, returns = {"list": [1]}, Migration("a", "1", "2", lambda values: {"other": values["list"]})
    assert migrated(given_, [Migration("a", "0", "1", in_place), returns]) == {"other": [1, 2]}
    assert given_ == {"list": [1]}


@pytest.mark.parametrize(
    ("made", "says"), [(lambda _: [1], "did not give a dict"), (lambda v: v["x"], "raised KeyError")]
)
def test_a_migration_that_fails_is_named(made: Any, says: str) -> None:
    with pytest.raises(MigrationFailed, match=rf"of agent 'a' from version '1' to '2' {says}"):
        migrated({}, [Migration("agent 'a'", "1", "2", made)])


def test_it_is_declared_for_an_agent_its_name_or_the_class_of_a_state() -> None:
    @agent("migrates", version="2")
    async def migrates(ctx: Context) -> None: ...

    @migrate(migrates, from_version="", to_version="1")
    def first(state: dict[str, Any]) -> None: ...

    @migrate("migrates", from_version="1", to_version="2")
    def second(state: dict[str, Any]) -> None: ...

    @migrate(State, from_version=1, to_version=2)
    def third(state: dict[str, Any]) -> None: ...

    chain = REGISTERED.plan("migrates", "", "2")
    assert chain is not None
    assert [one.fn for one in chain] == [first, second]
    assert [one.fn for one in REGISTERED.plan(State, "1", "2") or ()] == [third]
