"""Whether a value fits a declared type, and the value made to fit.

Most values fit as they are, which costs a look at their types. The others take the way that they would take over the
wire: written as JSON and read as the declared type, so that a graph in process sees what it would see on a worker.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from pydantic import BaseModel

from ...topics import codec
from ...topics.codec.scan import scan
from .copying import ATOMS, copier

Fits = Callable[[Any], bool]
Fit = Callable[[Any], Any]


def fitter(type_: Any) -> Fit:
    """A function that gives a value of the declared type that shares nothing changeable with the one it is given.

    It raises EncodeError for what is not carried, and DecodeError for what does not fit."""
    fits, copy = _fits(type_), copier(type_)

    def fit(value: Any) -> Any:
        if fits(value):
            return value if copy is None else copy(value)
        return codec.decode(codec.encode(value), type_)

    return fit


def _fits(type_: Any) -> Fits:
    """A quick look that is right when it says yes."""
    if type_ is Any or type_ is object:
        return scan_plain
    if type_ in (None, NoneType):
        return lambda value: value is None
    if type_ is float:
        return lambda value: type(value) is float and value - value == 0  # finite
    if isinstance(type_, type) and (type_ in ATOMS or _is_record(type_)):
        return lambda value: type(value) is type_
    origin, inner = get_origin(type_), get_args(type_)
    if origin is Literal:
        return lambda value: any(value is one or (value == one and type(value) is type(one)) for one in inner)
    if origin in (Union, UnionType):
        members = [_fits(one) for one in inner]
        return lambda value: any(member(value) for member in members)
    if origin in (list, set, frozenset) and len(inner) == 1:
        return _each(origin, _fits(inner[0]))
    if origin is dict and len(inner) == 2 and inner[0] is str:
        each = _fits(inner[1])
        return lambda value: type(value) is dict and all(type(key) is str for key in value) and all(
            map(each, value.values())
        )  # fmt: skip
    return _typed_dict(type_) if typing.is_typeddict(type_) else _never


def _each(origin: Any, member: Fits) -> Fits:
    return lambda value: type(value) is origin and all(map(member, value))


def _is_record(type_: type) -> bool:
    """Classes whose instances are taken as valid: they were made through their constructor."""
    if get_args(type_):
        return False
    return issubclass(type_, (BaseModel, msgspec.Struct)) or dataclasses.is_dataclass(type_)


def _typed_dict(type_: Any) -> Fits:
    try:
        hints = typing.get_type_hints(type_)
    except NameError:
        return _never
    fields, required = {name: _fits(hint) for name, hint in hints.items()}, type_.__required_keys__

    def fits(value: Any) -> bool:
        if type(value) is not dict or not required <= value.keys() <= fields.keys():
            return False
        return all(fields[name](one) for name, one in value.items())

    return fits


_PLAIN = frozenset({str, int, bool, NoneType})


def scan_plain(value: Any) -> bool:
    """Whether this is plain JSON that comes back as the same value."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is float:
        return value - value == 0  # type: ignore[no-any-return]
    return (kind is dict or kind is list) and scan(value) and _json(value)


def _json(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return all(type(key) is str for key in value) and all(map(_json, value.values()))
    if kind is list:
        return all(map(_json, value))
    return kind in _PLAIN or kind is float


def _never(_: Any) -> bool:
    return False
