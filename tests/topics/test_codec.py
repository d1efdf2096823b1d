"""The table of docs/types.md, row by row: each carried value comes out equal and as the declared type."""

from __future__ import annotations

import collections
import datetime as dt
import ipaddress
import json
import math
import re
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
import typing_extensions

from callboard.topics.codec import canonical, decode, encode

T = TypeVar("T")
TYPES_PAGE = Path(__file__).resolve().parents[2] / "docs" / "types.md"
ZONED = dt.datetime(2025, 3, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=1)))
ID = UUID("12345678-1234-5678-1234-567812345678")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = -2


class Kind(StrEnum):
    BUG = "bug"


class Right(Flag):
    READ = 1
    WRITE = 2


class Mode(IntFlag):
    A = 1
    B = 2


class Options(TypedDict):
    depth: int
    since: NotRequired[dt.date]


class Wishes(typing_extensions.TypedDict):
    id: UUID


class Point(NamedTuple):
    x: int
    label: str = "here"


@dataclass(frozen=True, slots=True)
class Box(Generic[T]):
    content: T
    tags: frozenset[str] = frozenset()


@dataclass
class Plain:
    a: int
    later: list[Plain] = field(default_factory=list)
    fixed: int = field(default=7, init=False)


class Leaf(msgspec.Struct, rename="camel"):
    the_name: str
    when: dt.datetime | None = None
    extra: int | msgspec.UnsetType = msgspec.UNSET
    raw: bytes = b""


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag="woof", omit_defaults=True):
    names: set[str] = msgspec.field(default_factory=set)
    age: int = 3


class Pair(msgspec.Struct, array_like=True, tag=True):
    left: int
    right: set[int]


class Review(pydantic.BaseModel):
    title: str
    at: dt.datetime = ZONED
    scores: dict[int, float] = {}
    colour: Colour = Colour.RED
    limit: dt.timedelta = dt.timedelta(seconds=-1.5)
    price: Decimal = Decimal("1.50")


class Holder(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    leaf: Leaf
    payload: bytes
    points: list[Point] = []
    own: dict[str, Leaf] = {}
    ids: set[UUID] = set()


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="allow")
    payload: bytes
    at: dt.datetime
    ids: frozenset[UUID]


class PartlyStrict(pydantic.BaseModel):
    payload: bytes
    at: dt.datetime = pydantic.Field(strict=True)


class Generics(pydantic.BaseModel, Generic[T]):
    item: T
    more: list[T] = []


class Root(pydantic.RootModel[list[bytes]]):
    pass


class Aliased(pydantic.BaseModel):
    given: str = pydantic.Field(alias="givenName")
    family: str = pydantic.Field(validation_alias="fam", serialization_alias="last")


class Hexed(pydantic.BaseModel):
    data: bytes

    @pydantic.field_serializer("data")
    def _write(self, value: bytes) -> str:
        return value.hex()

    @pydantic.field_validator("data", mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        return bytes.fromhex(value) if isinstance(value, str) else value


class Links(pydantic.BaseModel):
    url: pydantic.HttpUrl
    packed: pydantic.Base64Bytes
    listed: pydantic.Json[list[int]] = [1]
    later: collections.deque[int] = collections.deque([1])


@dataclass
class Mixture:
    holder: Holder
    boxes: dict[UUID, Box[Review]]
    options: Options
    where: PurePosixPath
    maybe: Holder | None = None


class Ann(pydantic.BaseModel):
    kind: Literal["ann"] = "ann"
    n: int


class Bob(pydantic.BaseModel):
    kind: Literal["bob"] = "bob"
    n: int


UserId = NewType("UserId", int)
Choice = Literal["a", 1, None]  # noqa: PYI061 -- None inside Literal is carried too
LEAF = Leaf("x", ZONED, 4, b"\xff\x00")
HOLDER = Holder(leaf=LEAF, payload=b"\xff\xfe", points=[Point(1)], own={"a": Leaf("y")}, ids={ID})
REVIEW = Review(title="t", scores={1: 0.5, -2: 1.0})

CARRIED: dict[str, list[tuple[Any, Any]]] = {
    "None": [(None, None), (type(None), None)],
    "bool": [(bool, True), (bool, False)],
    "int": [(int, number) for number in (0, -1, 2**53 + 1, 2**63, 2**64, -(2**200), 10**4299)],
    "float": [(float, number) for number in (0.1, -0.0, 5e-324, 1.7976931348623157e308, 1e16)],
    "str": [(str, text) for text in ("", "a\0b", "\u2028 \x7f \x1f", "😀", '"\\')],
    "Decimal": [(Decimal, Decimal(text)) for text in ("1.50", "-0", "1E+400", "0.1000000000000000000000000000000001")],
    "datetime": [
        (dt.datetime, ZONED),
        (dt.datetime, dt.datetime(2025, 3, 1, 1, 2, 3, 4)),  # noqa: DTZ001 -- without zone is carried too
        (dt.datetime, dt.datetime(2025, 7, 1, tzinfo=ZoneInfo("Europe/Berlin"))),
        (dt.datetime, dt.datetime.max.replace(tzinfo=dt.UTC)),
        (dt.datetime, dt.datetime(1, 1, 1)),  # noqa: DTZ001
    ],
    "date": [(dt.date, dt.date(1, 1, 1)), (dt.date, dt.date.max)],
    "time": [(dt.time, dt.time(1, 2, 3, 4)), (dt.time, dt.time(23, tzinfo=dt.timezone(dt.timedelta(hours=-3))))],
    "timedelta": [
        (dt.timedelta, dt.timedelta.max),
        (dt.timedelta, dt.timedelta.min),
        (dt.timedelta, dt.timedelta(microseconds=-1)),
    ],
    "UUID": [(UUID, ID)],
    "bytes": [(bytes, b""), (bytes, bytes(range(256)))],
    "bytearray": [(bytearray, bytearray(b"\xff"))],
    "Enum": [(Colour, Colour.BLUE), (list[Colour], [Colour.RED])],
    "IntEnum": [(Level, Level.HIGH)],
    "StrEnum": [(Kind, Kind.BUG)],
    "Flag": [(Right, Right.READ | Right.WRITE), (Mode, Mode.A | Mode.B)],
    "PurePath": [
        (PurePosixPath, PurePosixPath("/a/b")),
        (PureWindowsPath, PureWindowsPath("c:\\x")),
        (Path, Path("x")),
        (PurePath, PurePath("y")),
    ],
    "IPv4Address": [
        (type(address), address)
        for address in (
            ipaddress.ip_address("10.0.0.1"),
            ipaddress.ip_address("::1"),
            ipaddress.ip_network("10.0.0.0/8"),
            ipaddress.ip_network("fe80::/10"),
            ipaddress.ip_interface("10.0.0.1/8"),
            ipaddress.ip_interface("fe80::1/10"),
        )
    ],
    "list": [(list, [1, "a", None]), (list[list[int]], [[1], []])],
    "tuple": [(tuple[int, str], (1, "a")), (tuple[int, ...], (1, 2, 3)), (tuple[()], ())],
    "set": [(set[int], {3, 1, 2}), (set[str], set()), (set[tuple[int, UUID]], {(1, ID)})],
    "frozenset": [(frozenset[bytes], frozenset({b"a", b"b"}))],
    "dict": [
        (dict, {"b": 1, "a": None}),
        (dict[int, str], {1: "a", -(2**70): "b"}),
        (dict[UUID, int], {ID: 1}),
        (dict[Colour, int], {Colour.RED: 1}),
        (dict[Level, int], {Level.LOW: 1}),
        (dict[dt.date, int], {dt.date(2025, 1, 1): 1}),
        (dict[dt.datetime, int], {ZONED: 1}),
        (dict[dt.timedelta, int], {dt.timedelta(1): 1}),
        (dict[float, int], {1.5: 1, 2.0: 2}),
        (dict[Decimal, int], {Decimal("1.50"): 1}),
        (dict[bytes, int], {b"\xff": 1}),
        (dict[PurePosixPath, int], {PurePosixPath("a"): 1}),
        (dict[ipaddress.IPv4Address, int], {ipaddress.IPv4Address("1.1.1.1"): 1}),
        (dict[dt.time, int], {dt.time(1): 1}),
    ],
    "TypedDict": [(Options, {"depth": 1}), (Wishes, {"id": ID}), (Options, {"depth": 1, "since": dt.date(2025, 1, 1)})],
    "NamedTuple": [(Point, Point(1, "a")), (list[Point], [Point(2)])],
    "dataclass": [
        (Plain, Plain(1, [Plain(2)])),
        (Box[int], Box(1, frozenset({"a"}))),
        (Box[Review], Box(REVIEW)),
        (Box[Box[bytes]], Box(Box(b"\xff"))),
    ],
    "msgspec.Struct": [
        (Leaf, LEAF),
        (Leaf, Leaf("x")),
        (Pair, Pair(1, {2, 3})),
        (Dog, Dog()),
        (Dog, Dog({"a"}, 4)),
        (list[Cat | Dog], [Cat(1), Dog({"b"})]),
    ],
    "pydantic.BaseModel": [
        (Review, REVIEW),
        (list[Review], [REVIEW]),
        (Holder, HOLDER),
        (Generics[Review], Generics[Review](item=REVIEW)),
        (Generics[bytes], Generics[bytes](item=b"\xff", more=[b"a"])),
        (Root, Root([b"\xff"])),
        (Aliased, Aliased(givenName="a", fam="b")),
        (Hexed, Hexed(data=b"\xde\xad")),
        (Links, Links(url="https://a.example/x", packed=b"aGk=")),
        (Mixture, Mixture(HOLDER, {ID: Box(REVIEW)}, {"depth": 1}, PurePosixPath("p"), HOLDER)),
        (Strict, Strict(payload=b"\xff", at=ZONED, ids=frozenset({ID}), more="x")),
        (PartlyStrict, PartlyStrict(payload=b"", at=ZONED)),
        (pydantic.RootModel[dict[int, str]], pydantic.RootModel[dict[int, str]]({1: "a"})),
    ],
    "Optional": [(int | None, None), (Review | None, REVIEW), (Holder | None, None)],
    "Union": [
        (int | str, "1"),
        (int | str, 1),
        (float | int, 1),
        (float | int, 1.0),
        (list[int] | dict[str, int], {"a": 1}),
        (Ann | Bob, Bob(n=1)),
        (list[Ann | Bob], [Bob(n=1), Ann(n=2)]),
        (Ann | int, Ann(n=1)),
        (dict[str, Review | Plain], {"a": Plain(1), "b": REVIEW}),
    ],
    "Literal": [(Choice, "a"), (Choice, 1), (Choice, None)],
    "Annotated": [(Annotated[int, msgspec.Meta(ge=1)], 2)],
    "NewType": [(UserId, UserId(3))],
    "msgspec.Raw": [(msgspec.Raw, msgspec.Raw(b'{"a":1}'))],
}


def same(one: Any, other: Any) -> bool:
    """Equal, of the same type, all the way down through the builtin containers."""
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, float):
        return math.copysign(1, one) == math.copysign(1, other)
    if isinstance(one, dict):
        return all(same(a, b) for a, b in zip(one.items(), other.items(), strict=True))
    if isinstance(one, list | tuple):
        return all(map(same, one, other))
    return True


@pytest.mark.parametrize("row", CARRIED)
def test_each_row_of_the_table_comes_out_equal_and_as_declared(row: str) -> None:
    for declared, value in CARRIED[row]:
        data = encode(value)
        json.loads(data, parse_int=str, parse_constant=pytest.fail)
        assert same(decode(data, declared), value), (declared, value, data)
        assert decode(msgspec.Raw(data), declared) == value
        assert same(decode(encode([value]), list.__class_getitem__(declared)), [value])
        assert same(decode(encode({"k": value, "s": {1}}), dict[str, Any])["k"], decode(data, Any))


def test_the_page_and_these_tests_name_the_same_rows() -> None:
    table = TYPES_PAGE.read_text(encoding="utf-8").split("## What is carried")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE) == list(CARRIED)


def test_wire_forms_are_those_of_the_page() -> None:
    wire = {
        b'"1.50"': Decimal("1.50"),
        b'"2025-03-01T12:00:00+01:00"': ZONED,
        b'"2025-03-01T11:00:00Z"': ZONED.astimezone(dt.UTC),
        b'"/w=="': b"\xff",
        b'"PT90S"': dt.timedelta(seconds=90),
        b"3": Mode.A | Mode.B,
        b'"\\u0000"': "\0",
        b'["Pair",1,[2]]': Pair(1, {2}),
        b'{"type":"woof"}': Dog(),
        b'{"givenName":"a","fam":"b"}': Aliased(givenName="a", fam="b"),
        b'{"data":"dead"}': Hexed(data=b"\xde\xad"),
        b'{"theName":"x","when":null,"raw":""}': Leaf("x"),
        b'{"a":1,"b":{"c":2}}': collections.OrderedDict(a=1, b=collections.defaultdict(int, c=2)),
    }
    for data, value in wire.items():
        assert encode(value) == data


def test_sets_are_written_in_one_order() -> None:
    assert encode({"b", "a", "c"}) == encode(frozenset(["c", "b", "a"])) == b'["a","b","c"]'


def test_subclasses_of_builtins_are_written_as_what_they_extend() -> None:
    class Text(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "something else"

    class Count(int):
        pass

    assert encode([Text("a"), Count(3), collections.Counter(a=1)]) == b'["a",3,{"a":1}]'


def test_both_ways_of_encoding_write_the_same_struct() -> None:
    """A set beside it sends the Struct through the careful way; its form must not change."""
    for value in (Leaf("x", ZONED, 4, b"\xff"), Leaf("y"), Cat(9), Dog(), Dog(age=4), Plain(1, [Plain(2)])):
        assert json.loads(encode([value, {1}]))[0] == json.loads(encode(value))


def test_raw_json_is_carried_and_checked() -> None:
    assert encode({"a": msgspec.Raw(b'{"b": 1}')}) == b'{"a":{"b":1}}'


def test_canonical_ignores_order_spaces_and_escapes() -> None:
    one = canonical(b'{"b": [1, {"z": null, "y": "\\u0041"}], "a": 1.50}')
    assert (
        one
        == canonical(msgspec.Raw(b'{"a":1.5,"b":[1,{"y":"A","z":null}]}'))
        == b'{"a":1.5,"b":[1,{"y":"A","z":null}]}'
    )
    assert canonical(b"1") != canonical(b"1.0")
