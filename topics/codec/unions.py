"""Unions that msgspec cannot read but pydantic can, and whether JSON alone tells their members apart.

`datetime | str` reads every datetime back as one of the two, whichever the reader prefers: such a type is refused.
Models are told apart by a Literal field, or because each needs a field that the other does not have.
"""

from __future__ import annotations

import dataclasses
import typing
from enum import Enum
from itertools import combinations
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from .models import plan_of
from .survey import bare, has_fields, is_model, parts, type_name


def ambiguity(declared: Any) -> str | None:
    """Return what cannot be told apart in some union outside of models, or None."""
    todo, seen = [declared], set[int]()
    while todo:
        type_ = bare(todo.pop())
        if id(type_) in seen or is_model(type_):
            continue
        seen.add(id(type_))
        if get_origin(type_) in (typing.Union, UnionType):
            for one, other in combinations(map(bare, get_args(type_)), 2):
                if not _apart(one, other):
                    return f"{type_name(one)} and {type_name(other)} look alike in JSON"
        todo += parts(type_, [])
    return None


def _apart(one: Any, other: Any) -> bool:
    kinds = _json_kinds(one), _json_kinds(other)
    if not kinds[0] & kinds[1]:
        return True
    return kinds == ({"object"}, {"object"}) and _objects_apart(one, other)


def _json_kinds(type_: Any) -> set[str]:
    """Return which JSON kinds the values of a union's member are written as."""
    origin = get_origin(type_)
    if origin is Literal:
        return {_kind_of(type(value)) for value in get_args(type_)}
    if isinstance(type_, type) and issubclass(type_, Enum):
        return {_kind_of(type(member.value)) for member in type_}
    return {_kind_of(origin or type_)}


def _kind_of(type_: Any) -> str:
    if type_ in (NoneType, bool, int, float):
        return str(type_.__name__)
    if is_model(type_) or (has_fields(type_) and not issubclass(type_, tuple)):
        return "object"
    if isinstance(type_, type) and issubclass(type_, tuple | list | set | frozenset):
        return "array"
    return "object" if isinstance(type_, type) and issubclass(type_, dict) else "string"


def _objects_apart(one: Any, other: Any) -> bool:
    if not (_described(one) and _described(other)):
        return False
    mine, theirs = _fields(one), _fields(other)
    for name in mine.keys() & theirs.keys():
        values = _tags(mine[name][0]), _tags(theirs[name][0])
        if values[0] and values[1] and not values[0] & values[1]:
            return True
    needs_mine = {name for name, (_, required) in mine.items() if required} - theirs.keys()
    needs_theirs = {name for name, (_, required) in theirs.items() if required} - mine.keys()
    return bool(needs_mine) and bool(needs_theirs)


def _described(type_: Any) -> bool:
    return is_model(type_) or dataclasses.is_dataclass(type_)


def _tags(annotation: Any) -> set[Any]:
    annotation = bare(annotation)
    return set(get_args(annotation)) if get_origin(annotation) is Literal else set()


def _fields(type_: Any) -> dict[str, tuple[Any, bool]]:
    """Return the annotation of each field by its key on the wire, and whether it is required."""
    if is_model(type_):
        infos = type_.model_fields
        return {plan.key: (plan.annotation, infos[plan.name].is_required()) for plan in plan_of(type_).fields}
    hints = typing.get_type_hints(type_)
    missing = dataclasses.MISSING
    return {
        field.name: (hints[field.name], field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(type_)
    }
