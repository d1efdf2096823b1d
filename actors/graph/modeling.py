"""What pydantic models say of their fields besides a type: aliases, bounds, validators."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, PlainValidator, WrapValidator

_NUMBERS = ("ge", "gt", "le", "lt", "multiple_of")
_LENGTHS = ("min_length", "max_length")
_MODES: dict[str, Any] = {
    "after": AfterValidator,
    "before": BeforeValidator,
    "plain": PlainValidator,
    "wrap": WrapValidator,
}


def argument(cls: type, name: str) -> str:
    """Under which name the constructor of a state takes a field: its alias, where a model wants that."""
    if not issubclass(cls, BaseModel):
        return name
    config = cls.model_config
    alias: Any = cls.model_fields[name].validation_alias
    if isinstance(alias, AliasChoices):
        alias = next((one for one in alias.choices if isinstance(one, str)), None)
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    return alias if isinstance(alias, str) and not by_name else name


def validators(cls: type[BaseModel], name: str) -> list[Any]:
    """The validators of a field that look at its value alone; those that look at other fields need the whole state."""
    found = []
    for one in cls.__pydantic_decorators__.field_validators.values():
        needed = 2 if one.info.mode == "wrap" else 1
        if {name, "*"} & set(one.info.fields) and len(inspect.signature(one.func).parameters) == needed:
            found.append(_MODES[one.info.mode](one.func))
    return found


def bounded(hint: Any, marks: Iterable[Any]) -> Any:
    """The hint with the bounds that a model's field has, as everybody who reads its schema knows them."""
    kinds = {get_origin(one) or one for one in _members(hint)} - {NoneType}
    names: tuple[str, ...] = ()
    if kinds <= {int, float}:
        names = _NUMBERS
    elif kinds <= {str, list, dict, set, frozenset, bytes}:
        names = (*_LENGTHS, "pattern") if kinds == {str} else _LENGTHS
    values = {name: getattr(mark, name, None) for mark in marks for name in names if hasattr(mark, name)}
    bounds: dict[str, Any] = {name: value for name, value in values.items() if isinstance(value, (int, float, str))}
    return typing.Annotated[hint, msgspec.Meta(**bounds)] if bounds else hint


def _members(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) is typing.Annotated:
        return _members(get_args(hint)[0])
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
