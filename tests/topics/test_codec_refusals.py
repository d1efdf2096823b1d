"""What is refused, and that the error says where, what was expected and what was found."""

import datetime as dt
import sys
from collections import deque
from dataclasses import dataclass, make_dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Any, Optional
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from callboard.topics.codec import (
    DecodeError,
    EncodeError,
    TypeNotCarried,
    canonical,
    check_type,
    decode,
    encode,
)


class Mixed(Enum):
    ONE = 1
    TWO = "two"


class Composite(Enum):
    PAIR = (1, 2)


class Wide(IntEnum):
    HUGE = 2**70


class Stamp(dt.datetime):
    nanosecond = 5


class Secretive(pydantic.BaseModel):
    token: pydantic.SecretStr


class Deep(pydantic.BaseModel):
    inner: str = pydantic.Field(validation_alias=pydantic.AliasPath("a", "b"))


class Item(pydantic.BaseModel):
    n: float
    owner: Any = None
    raw: bytes = b""


class KeysMeet(pydantic.BaseModel):
    counts: dict[int | str, int]


class Simple(pydantic.BaseModel):
    n: int


class Task(msgspec.Struct):
    items: list[Item]


class Word(msgspec.Struct):
    text: str


@dataclass
class One:
    name: str


@dataclass
class Other:
    name: str


@dataclass
class Lost:
    when: "NowhereToBeFound"  # type: ignore[name-defined]  # noqa: F821


@dataclass
class WithDeque:
    queue: deque[int]


def unfinished() -> One:
    return One.__new__(One)


def cycle() -> list[Any]:
    ring: list[Any] = []
    ring.append({"again": ring})
    return ring


def wide_cycle() -> list[Any]:
    ring: list[Any] = []
    ring += [ring, ring]
    return ring


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


NAN = float("nan")
EMPTY: dict[str, Any] = {}
REFUSED: list[tuple[Any, str, str]] = [
    (NAN, "$", "nan has no JSON form"),
    ({"findings": [{}, {}, {}, {"owner": object()}]}, "$.findings[3].owner", "not carried"),
    ({"a": [1.0, None, float("inf")]}, "$.a[2]", "inf has no JSON form"),
    ([None, {"b": -float("inf")}], "$[1].b", "-inf"),
    (Task([Item(n=1), Item(n=NAN)]), "$.items[1].n", "nan"),
    (Task([Item(n=1, owner={"x": {1, 2j}})]), "$.items[0].owner.x", "complex"),
    (Word("\ud800"), "$.text", "lone surrogate at index 0"),
    ({"ok": "x", "bad\udfff": 1}, "$", "lone surrogate at index 3"),
    ({"odd key": [NAN]}, '$["odd key"][0]', "nan"),
    (Decimal("NaN"), "$", "NaN"),
    ([Decimal("sNaN")], "$[0]", "sNaN"),
    ([Decimal("-Infinity")], "$[0]", "-Infinity"),
    ({1: "a", "1": "b"}, '$["1"]', "two keys"),
    ({dt.date(2025, 1, 1): 1, "2025-01-01": 2}, '$["2025-01-01"]', "two keys"),
    ({None: 1}, "$", "a key must be"),
    ({"a": {True: 1}}, "$.a", "a key must be"),
    ({(1, 2): 1}, "$", "a key must be"),
    ({NAN: 1}, "$", "nan"),
    ([10**4300], "$[0]", "4300 digits"),
    ([dt.datetime(1880, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))], "$[0]", "whole minutes"),
    ([dt.time(1, tzinfo=ZoneInfo("Europe/Berlin"))], "$[0]", "whole minutes"),
    ([Stamp(2025, 1, 1, tzinfo=dt.UTC)], "$[0]", "subclass of datetime.datetime"),
    ([Mixed.ONE], "$[0]", "all str or all int"),
    ([Composite.PAIR], "$[0]", "all str or all int"),
    ([Wide.HUGE], "$[0]", "all str or all int"),
    ([Secretive(token="x")], "$[0]", "secret"),
    (Deep(a={"b": "x"}), "$", "alias path"),
    ([unfinished()], "$[0]", "field name has no value"),
    ([Item.model_construct(**EMPTY)], "$[0]", "field n has no value"),
    ([1j], "$[0]", "not carried"),
    ([print], "$[0]", "functions"),
    ([int], "$[0]", "class"),
    ([One], "$[0]", "class"),
    ([iter([])], "$[0]", "iterators"),
    ([range(3)], "$[0]", "not carried"),
    ([ValueError("x")], "$[0]", "not carried"),
    ([msgspec.UNSET], "$[0]", "not carried"),
    ([msgspec.Raw(b"{")], "$[0]", "no JSON"),
    (cycle(), "$[0].again", "contains itself"),
    (wide_cycle(), "$[0]", "contains itself"),
    (nested(129), "$" + "[0]" * 128, "deeper than 128"),
    (nested(100_000), "$" + "[0]" * 128, "deeper than 128"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "path", "text"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_not_carried_is_refused_with_its_path(value: Any, path: str, text: str) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(value)
    error = caught.value
    assert error.path == path
    assert text in str(error) or text in error.type_name
    assert path in str(error)
    assert (error.code, error.retryable) == ("encode_error", False)


def test_the_error_names_the_type() -> None:
    with pytest.raises(EncodeError) as caught:
        encode({"a": 1j})
    assert caught.value.type_name == "complex"


def test_the_deepest_nesting_comes_back() -> None:
    value = nested(128)
    assert decode(encode(value)) == value
    assert decode(encode(value), list[Any]) == value


def test_a_call_near_the_end_of_the_stack_is_refused_too() -> None:
    def dive(left: int) -> bytes:
        return dive(left - 1) if left else encode([nested(110), {1}])

    with pytest.raises(EncodeError, match="too deep"):
        dive(sys.getrecursionlimit() - 150)


def test_a_value_held_twice_is_no_cycle() -> None:
    shared = [1]
    assert encode({"a": shared, "b": shared, "c": {2}}) == b'{"a":[1],"b":[1],"c":[2]}'


WRONG: list[tuple[bytes, Any, str, list[str]]] = [
    (b"{", Item, "$", ["truncated"]),
    (b"{", Simple, "$", ["Invalid JSON"]),
    (b"{", One, "$", ["truncated"]),
    (b"NaN", float, "$", ["malformed"]),
    (b"1e999", float, "$", ["out of range"]),
    (b'"\xff"', str, "$", ["UTF-8"]),
    (b"[" * 100_000, Any, "$", ["too deep"]),
    (b'{"name":5}', One, "$.name", ["`str`", "`int`"]),
    (b"{}", One, "$", ["name"]),
    (b"null", int, "$", ["`int`", "`null`"]),
    (b'"5"', int, "$", ["`int`", "`str`"]),
    (b'{"items":[{"n":1},{"n":"x"}]}', Task, "$.items[1].n", ["number", "`str` 'x'"]),
    (b'{"items":[{"n":1},{}]}', Task, "$.items[1].n", ["missing"]),
    (b'{"items":[{"n":1,"raw":"!!"}]}', Task, "$.items[0].raw", ["base64"]),
    (b'{"n":1,"raw":5}', Item, "$.raw", ["`bytes`", "`int`"]),
    (b'[{"n":[]}]', list[Item], "$[0].n", ["number", "`list`"]),
    (b'["x"]', list[UUID], "$[0]", ["UUID"]),
    (b'{"x":1}', dict[UUID, int], "$", ["UUID"]),
    (b'["1.1.1.300"]', list[IPv4Address], "$[0]", ["IPv4Address", "1.1.1.300"]),
    (b"[5]", list[PurePosixPath], "$[0]", ["PurePosixPath", "int"]),
]


@pytest.mark.parametrize(("data", "declared", "path", "texts"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_text_is_refused_with_path_expected_and_found(
    data: bytes, declared: Any, path: str, texts: list[str]
) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(data, declared)
    assert caught.value.path == path
    assert (caught.value.code, caught.value.retryable) == ("decode_error", False)
    for text in texts:
        assert text in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"a":NaN}', b"[" * 100_000])
def test_canonical_refuses_what_is_no_json(data: bytes) -> None:
    with pytest.raises(DecodeError):
        canonical(data)


UNREADABLE: list[tuple[Any, str]] = [
    (dt.datetime | str, "look alike"),
    (UUID | Decimal | None, "look alike"),
    (One | Other, "look alike"),
    (list[One | Item], "not supported"),
    (dict[int | str, int], "told apart"),
    (dict[bool, int], "keys"),
    (Optional[complex], "complex"),  # noqa: UP045 -- the old spelling must be understood
    (list[set[range]], "range"),
    (list[KeysMeet], "told apart"),
    (WithDeque, "deque"),
    (Lost, "NowhereToBeFound"),
    (Mixed, "str or all int"),
    (list[Secretive], "secret"),
    (make_dataclass("Holder", [("a", list[Secretive])]), "secret"),
]


@pytest.mark.parametrize(("declared", "text"), UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_type_that_cannot_be_read_back_is_refused_as_such(declared: Any, text: str) -> None:
    with pytest.raises(TypeNotCarried, match=text) as caught:
        check_type(declared)
    assert caught.value.code == "type_not_carried"
    with pytest.raises(TypeNotCarried):
        decode(b"null", declared)
