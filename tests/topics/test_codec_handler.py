"""Types of handlers, names of types, and JSON Schema."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import jsonschema
import msgspec
import pydantic
import pytest

from callboard.topics.codec import TypeNotCarried, decode, encode, handler_types, json_schema, type_name

if TYPE_CHECKING:
    from somewhere import Context, Hidden  # type: ignore[import-not-found]


@dataclass
class Task:
    path: str


class Review(pydantic.BaseModel):
    text: str
    raw: bytes = b""


class Leaf(msgspec.Struct):
    name: str
    kids: list[Leaf] = []


class Holder(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    leaf: Leaf
    review: Review


@dataclass
class Everything:
    holder: Holder
    tasks: list[Task]


async def typed(ctx: Context, task: Task) -> Review:
    raise AssertionError


async def bare(ctx, task): ...  # type: ignore[no-untyped-def]
async def alone(ctx: Context) -> None: ...
async def optional(ctx: Context, task: Task | None = None, *, verbose: bool = False) -> list[Review]:
    raise AssertionError


async def hidden(ctx: Context, task: Hidden) -> None: ...
async def unreadable(ctx: Context, task: complex) -> None: ...
async def greedy(ctx: Context, a: int, b: int) -> None: ...
async def nothing() -> None: ...


class Reviews:
    async def received(self, ctx: Context, message: Review) -> int:
        raise AssertionError

    async def __call__(self, ctx: Context, message: Task) -> str:
        raise AssertionError


@functools.wraps(typed)
async def wrapped(*args: Any, **kwargs: Any) -> Any: ...


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (typed, (Task, Review)),
        (wrapped, (Task, Review)),
        (bare, (Parameter.empty, Parameter.empty)),
        (alone, (Parameter.empty, type(None))),
        (optional, (Task | None, list[Review])),
        (Reviews.received, (Review, int)),
        (Reviews().received, (Review, int)),
        (Reviews(), (Task, str)),
        (functools.partial(optional, verbose=True), (Task | None, list[Review])),
    ],
)
def test_input_and_result_come_from_the_annotations(fn: Any, expected: tuple[Any, Any]) -> None:
    assert handler_types(fn) == expected


def test_classes_of_the_functions_around_are_found() -> None:
    @dataclass
    class Local:
        a: int

    def register(fn: Any) -> Any:
        return handler_types(fn)

    @register
    async def handler(ctx: Context, task: Local) -> dict[str, Local]:
        raise AssertionError

    class Inside:
        class Message(pydantic.BaseModel):
            b: int

        @register
        async def received(self, ctx: Context, message: Message) -> list[Local]:
            raise AssertionError

    assert handler == (Local, dict[str, Local])
    assert Inside.received == (Inside.Message, list[Local])


def test_an_annotation_that_does_not_resolve_names_handler_and_name() -> None:
    with pytest.raises(TypeNotCarried, match=r"'Hidden' of the input of .*hidden does not resolve.*TYPE_CHECKING"):
        handler_types(hidden)


def test_a_handler_with_an_unreadable_type_is_refused() -> None:
    with pytest.raises(TypeNotCarried, match="complex"):
        handler_types(unreadable)


@pytest.mark.parametrize("fn", [greedy, nothing])
def test_a_handler_that_cannot_be_called_is_refused(fn: Any) -> None:
    with pytest.raises(TypeError, match=fn.__name__):
        handler_types(fn)


def test_type_names_are_readable() -> None:
    here = __name__
    assert type_name(list[Task | None]) == f"list[{here}.Task | None]"
    assert type_name(dict[str, tuple[int, ...]]) == "dict[str, tuple[int, ...]]"
    assert type_name(Annotated[int, 1]) == "int"
    assert type_name(Literal["a", 1]) == "Literal['a', 1]"
    assert {type_name(plain) for plain in (Any, object, Parameter.empty)} == {"Any"}
    assert type_name(None) == "None"


def test_the_schema_accepts_what_is_encoded() -> None:
    holder = Holder(leaf=Leaf("a", [Leaf("b")]), review=Review(text="x", raw=b"\xff"))
    for declared, value in (
        (Everything, Everything(holder, [Task("p")])),
        (list[Holder], [holder]),
        (Review, holder.review),
        (Leaf, holder.leaf),
        (int | None, None),
        (Task, Task("p")),
    ):
        schema = json_schema(declared)
        assert schema is not None
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        validator.validate(decode(encode(value)))
        assert not validator.is_valid({"holder": 5})
    assert [json_schema(plain) for plain in (Any, object, Parameter.empty)] == [None, None, None]
