"""States of all kinds of classes: defaults, aliases, bounds, validators, whole instances."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import pytest
from pydantic import AliasChoices, BaseModel, Field, field_validator, model_validator

from callboard.actors.graph import END, START, Graph, append
from callboard.actors.graph.errors import InvalidState, InvalidUpdate
from callboard.topics import codec


def one_node(state: Any, update: dict[str, Any]) -> Graph[Any]:
    graph: Graph[Any] = Graph(state)
    graph.node("n", lambda _: update, inline=True)
    return graph.chain(START, "n", END)


class Person(BaseModel):
    name: str = Field(default="nobody", alias="fullName")
    nick: str = Field(default="", validation_alias=AliasChoices("nickname", "nick_name"))
    age: Annotated[int, Field(ge=0)] = 0
    code: str = Field(default="a1", min_length=2)
    low: int = 0
    high: int = 9

    @field_validator("code")
    @classmethod
    def lower(cls, value: str) -> str:
        if value != value.lower():
            raise ValueError("a code is in lower case")
        return value

    @model_validator(mode="after")
    def ordered(self) -> Person:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


async def test_fields_with_aliases_keep_what_was_written_to_them() -> None:
    done = await one_node(Person, {"nick": "an"}).run({"name": "ann"})
    assert (done.name, done.nick) == ("ann", "an")
    assert (await one_node(Person, {}).run(Person(fullName="bob"))).name == "bob"


@pytest.mark.parametrize(
    ("update", "said"),
    [({"code": "AB"}, "a code is in lower case"), ({"code": "a"}, "at least 2"), ({"age": -1}, "greater than")],
)
async def test_validators_and_bounds_of_a_field_hold_where_it_is_written(update: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidUpdate, match=said) as caught:
        await one_node(Person, update).run({})
    assert "node 'n'" in str(caught.value)


async def test_an_edit_is_held_against_the_class_as_a_whole() -> None:
    execution = one_node(Person, {}).execution()
    await execution.run({})
    for edit, said in (({"low": 10}, "low is above high"), ({"code": "AB"}, "lower case")):
        with pytest.raises(InvalidUpdate, match=said):
            await execution.update_state(edit)
    assert execution.state().low == 0
    assert (await execution.update_state({"low": 10, "high": 11})).values["high"] == 11


async def test_bounds_of_a_model_are_in_the_schema_that_workers_register() -> None:
    known = codec.json_schema(one_node(Person, {}).agent("people").state_type)
    assert known is not None
    properties = next(one for one in known["$defs"].values() if "age" in one["properties"])["properties"]
    assert properties["age"]["minimum"] == 0
    assert properties["code"]["minLength"] == 2


@dataclass
class Tally:
    start: int
    seen: Annotated[list[int], append] = field(default_factory=lambda: [1])
    total: int = field(init=False, default=3)

    def __post_init__(self) -> None:
        if self.start < 0:
            raise ValueError("start is below 0")


class Packed(msgspec.Struct, rename="camel"):
    first_one: int
    seen: Annotated[list[int], append] = msgspec.field(default_factory=lambda: [1])


async def test_fields_of_a_dataclass_that_are_no_parameters_are_kept() -> None:
    done = await one_node(Tally, {"total": 5, "seen": 2}).run({"start": 1})
    assert (done.total, done.seen) == (5, [1, 2])


@pytest.mark.parametrize("given", [Tally(1), Packed(1)])
async def test_the_defaults_of_an_instance_are_not_added_to_themselves(given: Any) -> None:
    assert (await one_node(type(given), {}).run(given)).seen == [1]


async def test_what_an_instance_refuses_to_be_made_of_is_refused_as_an_edit() -> None:
    execution = one_node(Tally, {}).execution()
    await execution.run({"start": 1})
    with pytest.raises(InvalidUpdate, match="start is below 0"):
        await execution.update_state({"start": -1})


async def late(old: int, new: int) -> int:
    return old + new


class Late(BaseModel):
    sum: Annotated[int, late] = 0


def test_a_reducer_is_no_coroutine_function() -> None:
    with pytest.raises(InvalidState, match=r"reducer 'late' of field 'sum' .* is async"):
        Graph(Late)
