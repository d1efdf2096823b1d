"""The fast question before encoding: does msgspec alone write this value exactly as the rules demand?

Most values do, and then the look costs less than a microsecond: whole containers are judged by the set of the types in
them, in C. The answer "no" is never final; it only means that `lower` must look at each value.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from math import isfinite
from operator import attrgetter
from types import NoneType
from typing import Any
from uuid import UUID

import msgspec

MAX_DEPTH = 128
"""Containers inside containers. JSON readers commonly stop at 200 or more; pydantic's does at 200."""

_MAX_CONTAINERS = 2_000_000
_ATOMS = frozenset({str, int, bool, NoneType, UUID, dt.date, dt.timedelta, bytes, bytearray})
_PLAIN = _ATOMS | {float}
_STR_ONLY = {str}
_Reader = Callable[[Any], Iterable[Any]]


class _Suspicious(Exception):
    """Leave it to `lower`."""


def scan(value: Any) -> bool:
    """Say whether msgspec may write it. Lone surrogates and too large ints are left to msgspec, which refuses them."""
    level: list[Any] = [value]
    try:
        for _ in range(MAX_DEPTH):
            below: list[Any] = []
            for box in level:
                children = _children(box)
                kinds = set(map(type, children))
                if float in kinds:
                    _check_finite(children, only=len(kinds) == 1)
                kinds -= _PLAIN
                if kinds:
                    below += [child for child in children if type(child) in kinds]
            if not below:
                return True
            if len(below) > _MAX_CONTAINERS:
                break
            level = below
    except (_Suspicious, AttributeError):
        pass
    return False


def _check_finite(children: Iterable[Any], *, only: bool) -> None:
    """Refuse NaN and infinities: msgspec would write null."""
    if not all(map(isfinite, children if only else [child for child in children if type(child) is float])):
        raise _Suspicious


def _children(box: Any) -> Any:
    kind: Any = type(box)
    if kind is dict:
        if box and set(map(type, box)) != _STR_ONLY:
            raise _Suspicious
        return box.values()
    if kind is list or kind is tuple:
        return box
    return reader(kind)(box)


@lru_cache(maxsize=4096)
def reader(kind: Any) -> _Reader:
    """Return the function that lists what an instance of `kind` holds; it raises when `lower` must look."""
    if kind in _ATOMS:
        return _nothing
    if kind is float:
        return lambda value: (value,)
    if kind in _CHECKED:
        return _CHECKED[kind]
    if issubclass(kind, Enum):
        return _nothing if enum_is_carried(kind) else _suspect
    if issubclass(kind, msgspec.Struct):
        return _attributes(kind.__struct_fields__)
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        # msgspec leaves out a field with init=False that still has its default.
        return _attributes(tuple(field.name for field in fields)) if all(field.init for field in fields) else _suspect
    return _suspect


@lru_cache(maxsize=4096)
def enum_is_carried(kind: type[Enum]) -> bool:
    """Say whether the members' values are all str or all 64-bit int, so that a member can be found again."""
    try:
        msgspec.json.Decoder(kind)
    except (TypeError, NotImplementedError):
        return False
    return True


def whole_minutes(value: dt.datetime | dt.time) -> bool:
    """Say whether the zone, if any, can be written: it has an offset, and that is of whole minutes."""
    if value.tzinfo is None:
        return True
    offset = value.utcoffset()
    return offset is not None and not offset % dt.timedelta(minutes=1)


def _attributes(names: tuple[str, ...]) -> _Reader:
    if not names:
        return _nothing
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda box: (get(box),)


def _nothing(_: Any) -> tuple[()]:
    return ()


def _suspect(_: Any) -> tuple[()]:
    raise _Suspicious


def _zoned(value: Any) -> tuple[()]:
    if not whole_minutes(value):
        raise _Suspicious
    return ()


def _finite(value: Any) -> tuple[()]:
    if not value.is_finite():
        raise _Suspicious
    return ()


_CHECKED: dict[type, _Reader] = {dt.datetime: _zoned, dt.time: _zoned, Decimal: _finite}
