"""States of every kind, their channels, and what reducers make of writes."""

import copy
import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

from callboard import END, START, Graph, Remove, Was, add, append, maximum, merge, messages, union
from callboard.actors.graph import Form, Snapshot
from callboard.actors.graph.errors import InvalidState, InvalidUpdate, UnknownChannel
from callboard.actors.graph.grown import Grown
from callboard.actors.graph.schema import Schema


def longest(old: str, new: str) -> str:
    return max(old, new, key=len)


class Typed(TypedDict):
    log: Annotated[list[str], append]
    total: Annotated[int, add]
    facts: Annotated[dict[str, int], merge]
    best: Annotated[float, maximum]
    seen: Annotated[set[str], union]
    word: Annotated[str, longest]
    last: NotRequired[str]


class Model(pydantic.BaseModel):
    log: Annotated[list[str], append] = []
    total: Annotated[int, add] = 10
    facts: Annotated[dict[str, int], merge] = {}
    best: Annotated[float, maximum] = 0.0
    seen: Annotated[set[str], union] = set()
    word: Annotated[str, longest] = ""
    last: str = "none"


@dataclass
class Data:
    log: Annotated[list[str], append] = field(default_factory=list)
    total: Annotated[int, add] = 10
    facts: Annotated[dict[str, int], merge] = field(default_factory=dict)
    best: Annotated[float, maximum] = 0.0
    seen: Annotated[set[str], union] = field(default_factory=set)
    word: Annotated[str, longest] = ""
    last: str = "none"


class Struct(msgspec.Struct):
    log: Annotated[list[str], append] = []
    total: Annotated[int, add] = 10
    facts: Annotated[dict[str, int], merge] = {}
    best: Annotated[float, maximum] = 0.0
    seen: Annotated[set[str], union] = set()
    word: Annotated[str, longest] = ""
    last: str = "none"


FIRST = {"log": "a", "total": 1, "facts": {"x": 1}, "best": 2.0, "seen": ["p"], "word": "longer", "last": "first"}
SECOND = {"log": ["b", "c"], "total": 2, "facts": {"y": 2, "x": 3}, "best": 1.0, "seen": {"q"}, "word": "tiny"}


@pytest.mark.parametrize("state", [Typed, Model, Data, Struct])
async def test_every_kind_of_state_takes_writes_through_its_reducers(state: Any) -> None:
    graph = Graph(state)
    kinds: list[type] = []

    def second(state: Any) -> dict[str, Any]:
        kinds.append(type(state))
        return SECOND

    graph.node("first", lambda state: FIRST, inline=True).node("second", second, inline=True)
    graph.chain(START, "first", "second", END)
    result = await graph.run()
    values = result if isinstance(result, dict) else {name: getattr(result, name) for name in FIRST}
    assert values == {
        "log": ["a", "b", "c"],
        "total": 3 if state is Typed else 13,
        "facts": {"x": 3, "y": 2},
        "best": 2.0,
        "seen": {"p", "q"},
        "word": "longer",
        "last": "first",
    }
    if state is not Typed:
        assert isinstance(result, state)
        assert kinds == [state]


@pytest.mark.parametrize("given", [Model(total=5, last="x"), Data(total=5, last="x"), Struct(total=5, last="x")])
async def test_an_instance_is_an_input(given: Any) -> None:
    graph = Graph(type(given))
    graph.node("a", lambda state: None, inline=True).chain(START, "a", END)
    result = await graph.run(given)
    assert (result.total, result.last) == (15, "x")


class Needs(msgspec.Struct):
    a: int
    b: str


@dataclass
class NeedsData:
    a: int
    b: str


class NeedsModel(pydantic.BaseModel):
    a: int
    b: str


@pytest.mark.parametrize("state", [Needs, NeedsData, NeedsModel])
async def test_a_required_field_may_come_late_but_not_never(state: Any) -> None:
    graph = Graph(state)
    graph.node("late", lambda state: {"b": str(state.a)}, inline=True).chain(START, "late", END)
    assert await graph.run({"a": 1}) == state(a=1, b="1")
    empty = Graph(state)
    empty.node("never", lambda state: None, inline=True).chain(START, "never", END)
    with pytest.raises(InvalidUpdate, match=f"does not make a .*{state.__name__}"):
        await empty.run({"a": 1})


@pytest.mark.parametrize("state", [Typed, Model, Data, Struct])
async def test_what_a_node_does_to_its_copy_stays_there(state: Any) -> None:
    graph = Graph(state)

    def spoil(state: Any) -> None:
        for name in ("log", "facts", "seen"):
            value = state[name] if isinstance(state, dict) else getattr(state, name)
            value.clear()

    graph.node("spoil", spoil, inline=True).chain(START, "spoil", END)
    result = await graph.run({"log": ["a"], "facts": {"x": 1}, "seen": ["p"]})
    values = result if isinstance(result, dict) else {name: getattr(result, name) for name in FIRST}
    assert (values["log"], values["facts"], values["seen"]) == (["a"], {"x": 1}, {"p"})


async def test_what_a_node_returned_is_no_longer_its_own() -> None:
    kept: list[dict[str, int]] = [{}]
    graph = Graph(Typed)
    graph.node("a", lambda state: {"facts": kept[0]}, inline=True)

    def later(state: Typed) -> None:
        kept[0]["late"] = 1

    graph.node("later", later, inline=True).chain(START, "a", "later", END)
    assert (await graph.run())["facts"] == {}


class Nested(TypedDict, total=False):
    boxes: dict[str, list[int]]
    items: Annotated[list[dict[str, int]], append]
    n: int


def gathered(**values: Any) -> dict[str, Any]:
    return values


def test_a_dict_view_copies_whatever_way_a_value_leaves_it() -> None:
    schema = Schema(Nested)
    values = {"boxes": {"x": [1]}, "items": Grown([{"a": 1}]), "n": 1}
    ways: list[Callable[[Any], Any]] = [
        lambda view: view["boxes"],
        lambda view: view.get("boxes"),
        lambda view: dict(view)["boxes"],
        lambda view: {**view}["boxes"],
        lambda view: dict(view.items())["boxes"],
        lambda view: next(one for one in view.values() if isinstance(one, dict)),
        lambda view: view.copy()["boxes"],
        lambda view: view.pop("boxes"),
        lambda view: view.setdefault("boxes", {}),
        lambda view: (view | {})["boxes"],
        lambda view: ({} | view)["boxes"],
        lambda view: copy.copy(view)["boxes"],
        lambda view: copy.deepcopy(view)["boxes"],
        lambda view: gathered(**view)["boxes"],
    ]
    for way in ways:
        found = way(schema.view(values))
        assert found == {"x": [1]}
        found["x"].append(2)
    view = schema.view(values)
    view["items"][0]["a"] = 2
    view["items"].append({})
    view["n"] = 5
    assert view == {"boxes": {"x": [1]}, "items": [{"a": 2}, {}], "n": 5}
    assert json.loads(json.dumps(schema.view(values))) == {"boxes": {"x": [1]}, "items": [{"a": 1}], "n": 1}
    assert msgspec.json.decode(msgspec.json.encode(schema.view(values)))["items"] == [{"a": 1}]
    assert values == {"boxes": {"x": [1]}, "items": [{"a": 1}], "n": 1}


def test_a_grown_list_is_a_value_although_its_versions_share_one() -> None:
    one = Grown([]).plus([1])
    two = one.plus([2])
    other = one.plus([3])
    assert [one.items(), two.items(), other.items()] == [[1], [1, 2], [1, 3]]
    assert two == [1, 2] != one
    assert (len(two), two[-1], two[0:1], list(two)) == (2, 2, [1], [1, 2])
    with pytest.raises(IndexError):
        one[1]


# -- messages ---------------------------------------------------------------------------------------------------------


class Chat(TypedDict):
    messages: Annotated[list[dict[str, Any]], messages]


@dataclass
class Message:
    text: str
    id: str | None = None


async def chatted(state: Any, *updates: Any) -> list[Any]:
    graph = Graph(state)
    for at, update in enumerate(updates):
        graph.node(f"n{at}", lambda state, update=update: {"messages": update}, inline=True)
    graph.chain(START, *(f"n{at}" for at in range(len(updates))), END)
    return list((await graph.run())["messages"])


async def test_messages_are_appended_replaced_and_removed_by_id() -> None:
    found = await chatted(
        Chat,
        [{"id": "a", "text": "1"}, {"id": "b", "text": "2"}],
        {"id": "a", "text": "1 again"},
        [Remove("b"), {"id": "c", "text": "3"}],
        Remove("unknown"),
    )
    assert found == [{"id": "a", "text": "1 again"}, {"id": "c", "text": "3"}]


async def test_messages_without_an_id_get_one_that_is_the_same_each_time() -> None:
    first = await chatted(Chat, [{"text": "1"}, {"text": "2"}], {"text": "3"})
    assert first == await chatted(Chat, [{"text": "1"}, {"text": "2"}], {"text": "3"})
    assert len({message["id"] for message in first}) == 3


async def test_messages_may_be_objects() -> None:
    class Objects(TypedDict):
        messages: Annotated[list[Message], messages]

    found = await chatted(Objects, [Message("1"), Message("2", id="b")], Message("changed", id="b"))
    assert [(one.text, one.id is not None) for one in found] == [("1", True), ("changed", True)]


async def test_only_new_messages_are_an_increment() -> None:
    graph = Graph(Chat)
    graph.node("new", lambda state: {"messages": {"id": "b", "text": "2"}}, inline=True)
    graph.node("old", lambda state: {"messages": {"id": "a", "text": "1!"}}, inline=True)
    graph.chain(START, "new", "old", END)
    execution = graph.execution()
    await execution.run({"messages": [{"id": "a", "text": "1"}]})
    changed, new, _ = execution.history()
    assert (new.replaced, new.appended) == ((), {"messages": [{"id": "b", "text": "2"}]})
    assert (changed.replaced, changed.appended) == (("messages",), {})


async def test_an_object_without_an_id_field_is_refused() -> None:
    class Objects(TypedDict):
        messages: Annotated[list[NeedsData], messages]

    with pytest.raises(InvalidUpdate, match="has no field `id`"):
        await chatted(Objects, NeedsData(1, "b"))


# -- snapshots --------------------------------------------------------------------------------------------------------


async def test_a_snapshot_says_exactly_what_changed() -> None:
    graph = Graph(Typed)
    graph.node("a", lambda state: {"log": ["x", "y"], "last": "z"}, inline=True)
    graph.node("b", lambda state: {"total": 1}, inline=True).node("c", lambda state: {"log": []}, inline=True)
    graph.chain(START, "a", "b", "c", END)
    execution = graph.execution()
    await execution.run({"total": 3})
    c, b, a, begun = execution.history()
    assert begun.replaced == ("facts", "log", "seen", "total", "word")
    assert (a.replaced, a.appended) == (("last",), {"log": ["x", "y"]})
    assert (b.replaced, b.appended) == (("total",), {})
    assert (c.replaced, c.appended) == ((), {})
    assert a.values["facts"] is b.values["facts"]


class Renamed(TypedDict, total=False):
    text: Annotated[str, Was("body", "content")]
    log: Annotated[list[datetime], append]
    chat: Annotated[list[dict[str, str]], messages]
    tags: Annotated[set[str], union]


async def test_values_are_written_down_and_read_again() -> None:
    graph = Graph(Renamed)
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    graph.node("a", lambda state: {"log": moment, "chat": {"id": "1"}, "tags": ["x"]}, inline=True).chain(
        START, "a", END
    )
    execution = graph.execution()
    await execution.run({"text": "t", "log": [moment]})
    form, snapshot = Form(graph.compile()), execution.snapshot()
    for name, value in snapshot.values.items():
        assert form.restore(name, form.dump(name, value)) == value
    first = execution.history()[-1]
    whole, items = form.dump("log", first.values["log"]), form.dump_items("log", snapshot.appended["log"])
    assert form.restore("log", whole, [items]) == [moment, moment]
    assert form.restore("log", None, [items]) == [moment]
    assert form.restore("content", b'"old"') == "old"
    assert form.channel("body") == "text"
    assert form.channel("gone") is None
    with pytest.raises(UnknownChannel, match=r"Was\('gone'\)"):
        form.restore("gone", b"1")


# -- what is no state -------------------------------------------------------------------------------------------------


class Empty(TypedDict):
    pass


class NoList(TypedDict):
    log: Annotated[str, append]


class NotCarried(TypedDict):
    odd: complex


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (Empty, "has no fields"),
        (int, "declare a TypedDict"),
        ("State", "a state is a class"),
        (NoList, "field 'log' of .* has reducer append: declare it as a list"),
        (NotCarried, "field 'odd'"),
    ],
)
def test_what_cannot_be_a_state_is_refused_with_the_reason(state: Any, text: str) -> None:
    with pytest.raises(InvalidState, match=text):
        Graph(state)


async def test_the_validators_of_a_model_are_held() -> None:
    class Strict(pydantic.BaseModel):
        n: int = pydantic.Field(default=1, gt=0)
        m: Annotated[int, pydantic.Field(lt=10)] = 0

    graph = Graph(Strict)
    graph.node("a", lambda state: {"n": -1}, inline=True).chain(START, "a", END)
    with pytest.raises(InvalidUpdate, match="greater than 0"):
        await graph.run()
    with pytest.raises(InvalidUpdate, match="less than 10"):
        await graph.run({"m": 11})


async def test_constraints_of_msgspec_are_held() -> None:
    class Strict(TypedDict):
        n: Annotated[int, msgspec.Meta(ge=0), add]

    graph = Graph(Strict)
    graph.node("a", lambda state: {"n": -1}, inline=True).chain(START, "a", END)
    with pytest.raises(InvalidUpdate, match=">= 0"):
        await graph.run()


async def test_a_custom_reducer_must_make_what_the_field_declares() -> None:
    def broken(old: int, new: int) -> Any:
        return f"{old}{new}"

    class Wrong(TypedDict):
        n: Annotated[int, broken]

    graph = Graph(Wrong)
    graph.node("a", lambda state: {"n": 1}, inline=True).chain(START, "a", END)
    with pytest.raises(InvalidUpdate, match=r"reducer 'broken' made of channel 'n'"):
        await graph.run()


def test_a_snapshot_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Snapshot(step=0, source="input", values={}).step = 1  # type: ignore[misc]
