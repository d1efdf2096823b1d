"""Copies of state values: a node may do with its copy what it likes. What cannot be changed is shared."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import typing
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin
from uuid import UUID

import msgspec
from pydantic import BaseModel

ATOMS: frozenset[type] = frozenset(
    {str, int, float, bool, NoneType, bytes, complex, dt.datetime, dt.date, dt.time, dt.timedelta, UUID, Decimal}
)

Copy = Callable[[Any], Any]


def copied(value: Any) -> Any:
    """A copy that shares nothing changeable with the value."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is list:
        return value.copy() if _flat(value) else [copied(one) for one in value]
    if kind is dict:
        return value.copy() if _flat(value.values()) else {key: copied(one) for key, one in value.items()}
    if kind is tuple:
        return value if _flat(value) else tuple([copied(one) for one in value])
    if kind is set:
        return value.copy()
    return value if immutable(kind) else copy.deepcopy(value)


def _flat(values: Any) -> bool:
    return ATOMS.issuperset(map(type, values))


def copier(type_: Any) -> Copy | None:
    """How to copy values of a declared type; None: they need no copy."""
    if immutable(type_):
        return None
    origin, inner = get_origin(type_), get_args(type_)
    if origin in (list, set, dict) and inner and all(immutable(one) for one in inner):
        copy_of: Copy = origin.copy
        return copy_of
    return copied


def immutable(type_: Any) -> bool:
    """Whether no value of this declared type can be changed."""
    try:
        return _immutable(type_)
    except (TypeError, RecursionError):  # unhashable, or a type that holds itself
        return False


@lru_cache(maxsize=4096)
def _immutable(type_: Any) -> bool:
    if type_ in ATOMS or type_ is None:
        return True
    origin = get_origin(type_)
    if origin is Literal:
        return True
    if origin in (Union, UnionType, tuple, frozenset):
        return all(one is Ellipsis or immutable(one) for one in get_args(type_)) and bool(get_args(type_))
    if origin is typing.Annotated:
        return immutable(get_args(type_)[0])
    return isinstance(type_, type) and _frozen(type_)


def _frozen(cls: type) -> bool:
    """Enums, paths, and frozen classes of fields that are immutable themselves."""
    if issubclass(cls, (Enum, PurePath)):
        return True
    if issubclass(cls, msgspec.Struct):
        frozen = cls.__struct_config__.frozen
    elif issubclass(cls, BaseModel):
        frozen = bool(cls.model_config.get("frozen")) and cls.model_config.get("extra") != "allow"
    elif dataclasses.is_dataclass(cls):
        frozen = bool(getattr(cls, "__dataclass_params__").frozen)  # noqa: B009  # no stub knows it
    else:
        return False
    return frozen and _fields_immutable(cls)


def _fields_immutable(cls: type) -> bool:
    try:
        hints = typing.get_type_hints(cls)
    except Exception:  # noqa: BLE001  # an annotation that does not resolve can raise anything: then it is copied
        return False
    return all(immutable(hint) for name, hint in hints.items() if not name.startswith("__"))
