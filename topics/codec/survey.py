"""What a declared type is made of: every type that can be reached from it, looked through once."""

from __future__ import annotations

import dataclasses
import datetime as dt
import ipaddress
import sys
import typing
from collections import abc
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from inspect import Parameter
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin
from uuid import UUID

import msgspec
from pydantic import BaseModel

from .errors import TypeNotCarried
from .scan import enum_is_carried

BINARY = (bytes, bytearray)
ADDRESSES: tuple[type, ...] = (
    ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network,
    ipaddress.IPv4Interface, ipaddress.IPv6Interface,
)  # fmt: skip
_SCALARS = (str, int, float, bool, NoneType, dt.datetime, dt.date, dt.time, dt.timedelta, UUID, Decimal, *BINARY)
_CONTAINERS = (
    list, tuple, set, frozenset, dict, abc.Collection, abc.Sequence, abc.MutableSequence, abc.Set, abc.MutableSet,
    abc.Mapping, abc.MutableMapping,
)  # fmt: skip
_KNOWN = frozenset({*_SCALARS, *_CONTAINERS, *ADDRESSES, Any, object, msgspec.Raw, msgspec.UnsetType})
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
# Newer forms come from typing_extensions on older Pythons; who declares a type by them has it loaded, as pydantic has.
_TYPING: tuple[Any, ...] = (typing, sys.modules.get("typing_extensions", typing))
_QUALIFIERS = tuple(
    getattr(module, name)
    for module in _TYPING
    for name in ("Required", "NotRequired", "ReadOnly", "ClassVar", "Final")
    if hasattr(module, name)
)

_ALIASES = tuple(module.TypeAliasType for module in _TYPING if hasattr(module, "TypeAliasType"))


@dataclass
class Survey:
    """What was found: the pydantic models, whether pydantic alone could read it, classes nobody knows, faults."""

    models: list[type[BaseModel]] = field(default_factory=list)
    foreign: bool = False
    """Holds bytes or Structs, which pydantic's JSON reader would not read by our rules."""
    unknown: list[Any] = field(default_factory=list)
    """Neither ours nor pydantic's to read: found outside every pydantic model."""
    custom: list[Any] = field(default_factory=list)
    """Inside pydantic models, types with pydantic rules of their own."""
    faults: list[str] = field(default_factory=list)


def survey(declared: Any, *, inside_model: bool = False, through_models: bool = True) -> Survey:
    """Walk `declared`. With `through_models=False` the fields of pydantic models are left out."""
    found = Survey()
    todo: list[tuple[Any, bool]] = [(declared, inside_model)]
    seen: dict[tuple[int, bool], Any] = {}
    while todo:
        type_, inside = todo.pop()
        if (id(type_), inside) in seen:
            continue
        seen[id(type_), inside] = type_
        _note(found, type_, inside)
        if is_model(type_):
            inside = True
            if not through_models:
                continue
        todo += [(part, inside) for part in parts(type_, found.faults)]
    return found


def _note(found: Survey, type_: Any, inside: bool) -> None:
    origin = get_origin(type_)
    if origin in _MAPPINGS:
        _check_keys(found, get_args(type_))
    if origin is not None:
        return
    if is_model(type_):
        found.models.append(type_)
    elif type_ in BINARY or _is(type_, msgspec.Struct):
        found.foreign = True
    if is_leaf(type_) and not _is_known(type_):
        (found.custom if inside else found.unknown).append(type_)
    if not inside and _is(type_, Enum) and not enum_is_carried(type_):
        found.faults.append(f"the values of {class_name(type_)} must be all str or all int of at most 64 bits")


def _check_keys(found: Survey, args: tuple[Any, ...]) -> None:
    keys = bare(args[0]) if args else Any
    members = [bare(part) for part in get_args(keys)] if get_origin(keys) in (typing.Union, UnionType) else [keys]
    if len(members) > 1:
        found.faults.append(f"the keys {type_name(keys)} cannot be told apart: in JSON every key is a string")
    elif any(member in (bool, NoneType) for member in members):
        found.faults.append(f"keys of type {type_name(keys)} are not carried")


def bare(type_: Any) -> Any:
    """Return what stands inside Annotated, NewType, a named alias or a qualifier such as Required."""
    while True:
        origin = get_origin(type_)
        if origin is typing.Annotated or origin in _QUALIFIERS:
            type_ = get_args(type_)[0]
        elif isinstance(type_, typing.NewType):
            type_ = type_.__supertype__
        elif isinstance(type_, _ALIASES):
            type_ = type_.__value__
        else:
            return type_


def parts(type_: Any, faults: list[str] | None = None) -> Iterator[Any]:
    """Yield what a type is made of: arguments, the fields of a class, the bound of a type variable."""
    inner = bare(type_)
    if inner is not type_:
        yield inner
    elif isinstance(type_, TypeVar):
        yield from type_.__constraints__ or ([type_.__bound__] if type_.__bound__ else [])
    elif (origin := get_origin(type_)) is not None:
        if origin is not Literal:
            yield from (part for part in get_args(type_) if part is not Ellipsis)
            yield from () if origin in (typing.Union, UnionType) else (origin,)
    elif is_model(type_):
        yield from (info.annotation for info in type_.model_fields.values())
    elif has_fields(type_):
        yield from _hints(type_, faults)


def _hints(type_: Any, faults: list[str] | None) -> list[Any]:
    try:
        hints = typing.get_type_hints(type_, include_extras=True)
    except Exception as error:
        if faults is None:
            raise
        faults.append(f"an annotation of {type_name(type_)} does not resolve: {error}")
        return []
    return [hint for hint in hints.values() if typing.ClassVar not in (hint, get_origin(hint))]


def has_fields(type_: Any) -> bool:
    """Say whether it is a dataclass, Struct, TypedDict or NamedTuple class."""
    if not isinstance(type_, type):
        return False
    return (
        dataclasses.is_dataclass(type_)
        or issubclass(type_, msgspec.Struct)
        or any(module.is_typeddict(type_) for module in _TYPING)
        or (issubclass(type_, tuple) and hasattr(type_, "_fields"))
    )


def is_model(type_: Any) -> bool:
    """Say whether it is a class of pydantic models."""
    return _is(type_, BaseModel)


def is_leaf(type_: Any) -> bool:
    """Say whether nothing further can be looked at inside the type."""
    return (
        get_origin(type_) is None
        and bare(type_) is type_
        and not isinstance(type_, TypeVar | UnionType)
        and type_ not in (typing.Union, typing.Generic, typing.Self, None)
        and not is_model(type_)
        and not has_fields(type_)
    )


def _is(type_: Any, base: type) -> bool:
    return isinstance(type_, type) and get_origin(type_) is None and issubclass(type_, base)


def _is_known(type_: Any) -> bool:
    try:
        return type_ in _KNOWN or _is(type_, PurePath) or _is(type_, Enum)
    except TypeError:
        return False


def type_name(type_: Any) -> str:
    """Return a readable name, the same in every process: `app.models.Review`, `list[str]`, `int | None`, `Any`."""
    if type_ is Any or type_ is object or type_ is Parameter.empty:
        return "Any"
    if type_ is None or type_ is NoneType:
        return "None"
    origin = get_origin(type_)
    if origin is None:
        return class_name(type_)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, get_args(type_)))}]"
    if origin is typing.Annotated:
        return type_name(get_args(type_)[0])
    if origin in (typing.Union, UnionType):
        return " | ".join(map(type_name, get_args(type_)))
    inner = ", ".join("..." if part is Ellipsis else type_name(part) for part in get_args(type_))
    return f"{type_name(origin)}[{inner}]"


def class_name(type_: Any) -> str:
    """Return module and name of a class; of a built-in one the name alone."""
    name = getattr(type_, "__qualname__", None) or getattr(type_, "__name__", None) or repr(type_)
    module = getattr(type_, "__module__", "builtins")
    return str(name) if module in ("builtins", "typing") else f"{module}.{name}"


def not_carried(type_: Any, reason: str) -> TypeNotCarried:
    """Return the error for a type that can never be read back."""
    name = type_name(type_)
    return TypeNotCarried(f"{name} cannot be a declared type: {reason}", type_name=name)
