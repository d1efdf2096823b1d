"""Whatever nested type and value Hypothesis builds comes out equal and of the declared type, or is refused."""

import dataclasses
import datetime as dt
import ipaddress
import json
import math
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from itertools import count
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pydantic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callboard.topics.codec import DecodeError, EncodeError, canonical, decode, encode

Case = tuple[Any, st.SearchStrategy[Any]]
"""A type and what makes its values."""


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ZONES = st.integers(-1439, 1439).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
SCALARS: list[Case] = [
    (int, st.integers() | st.integers(-(2**70), 2**70)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (str, TEXT),
    (bytes, st.binary(max_size=8)),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (UUID, st.uuids()),
    (dt.date, st.dates()),
    (dt.datetime, st.datetimes(timezones=st.none() | ZONES)),
    (dt.time, st.times(timezones=st.none() | ZONES)),
    (dt.timedelta, st.timedeltas()),
    (Colour, st.sampled_from(Colour)),
    (PurePosixPath, TEXT.map(PurePosixPath)),
    (ipaddress.IPv4Address, st.ip_addresses(v=4)),
]
KEYS = [case for case in SCALARS if case[0] not in (bool, dt.time)]
numbers = count()


class _Numbered(NamedTuple):
    fields: dict[str, Any]
    values: dict[str, st.SearchStrategy[Any]]


def _fields(cases: list[Case]) -> _Numbered:
    names = [f"f{index}" for index in range(len(cases))]
    types = {name: case[0] for name, case in zip(names, cases, strict=True)}
    return _Numbered(types, {name: case[1] for name, case in zip(names, cases, strict=True)})


def _record(make: Callable[[str, dict[str, Any]], Any]) -> Callable[[list[Case]], Case]:
    def build(cases: list[Case]) -> Case:
        numbered = _fields(cases)
        cls = make(f"Made{next(numbers)}", numbered.fields)
        return cls, st.builds(cls, **numbered.values)

    return build


def _named_tuple(name: str, fields: dict[str, Any]) -> Any:
    return NamedTuple(name, list(fields.items()))


def _model(name: str, fields: dict[str, Any]) -> Any:
    config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    definitions: dict[str, Any] = {key: (kind, ...) for key, kind in fields.items()}
    return pydantic.create_model(name, __config__=config, **definitions)


RECORDS = [
    _record(lambda name, fields: dataclasses.make_dataclass(name, list(fields.items()))),
    _record(lambda name, fields: msgspec.defstruct(name, list(fields.items()))),
    _record(_named_tuple),
    _record(_model),
]


def nest(inner: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    """Types that hold others: the generic ones are made at run time, so the checker sees them as Any."""
    generic: Any = {"list": list, "tuple": tuple, "set": set, "dict": dict}
    keys = st.sampled_from(KEYS)
    records = [st.lists(inner, min_size=1, max_size=3).map(record) for record in RECORDS]
    return st.one_of(
        inner.map(lambda case: (generic["list"][case[0]], st.lists(case[1], max_size=3))),
        inner.map(lambda case: (generic["tuple"][case[0], ...], st.lists(case[1], max_size=3).map(tuple))),
        inner.map(lambda case: (case[0] | None, st.none() | case[1])),
        keys.map(lambda case: (generic["set"][case[0]], st.sets(case[1], max_size=3))),
        st.tuples(keys, inner).map(
            lambda pair: (
                generic["dict"][pair[0][0], pair[1][0]],
                st.dictionaries(pair[0][1], pair[1][1], max_size=3),
            )
        ),
        *records,
    )


CASES = st.recursive(st.sampled_from(SCALARS), nest, max_leaves=6)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_every_value_comes_out_equal_and_of_the_declared_type(data: st.DataObject) -> None:
    declared, values = data.draw(CASES)
    value = data.draw(values)
    text = encode(value)
    again = decode(text, declared)
    assert again == value
    assert type(again) is type(value)
    assert encode(again) == text
    assert canonical(canonical(text)) == canonical(text)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=4) | st.just(object()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(), max_size=3) | st.integers(-3, 3), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=500, deadline=None)
@given(ANYTHING)
def test_plain_values_are_carried_exactly_or_refused(value: Any) -> None:
    try:
        text = encode(value)
    except EncodeError:
        text = b""
    assert bool(text) == carried(value)
    if text:
        assert decode(text) == json.loads(text) == with_text_keys(value)


def carried(value: Any) -> bool:
    """The rules for plain values, said once more and simply."""
    if isinstance(value, dict):
        texts = [str(key) for key in value]
        return len(set(texts)) == len(texts) and all(map(carried, value)) and all(map(carried, value.values()))
    if isinstance(value, list):
        return all(map(carried, value))
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, str):
        return not any("\ud800" <= char <= "\udfff" for char in value)
    return value is None or isinstance(value, int)


def with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): with_text_keys(item) for key, item in value.items()}
    return [with_text_keys(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    for declared in (Any, dict[str, int], list[UUID], Colour | None):
        try:
            decode(data, declared)
        except DecodeError as error:
            path = error.path
        else:
            path = "$"
        assert path.startswith("$")
