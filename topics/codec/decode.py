"""JSON text into values of the declared type."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from inspect import Parameter
from pathlib import PurePath
from typing import Any

import msgspec
import pydantic
from pydantic import BaseModel

from .errors import DecodeError, Mismatch, TypeNotCarried
from .models import FieldPlan, first_fault, plan_of
from .path import join, step
from .survey import ADDRESSES, is_model, not_carried, survey, type_name
from .unions import ambiguity

_Reader = Callable[[bytes | msgspec.Raw], Any]
_AT = re.compile(r"(?P<text>.*) - at `(?P<path>(?:key` in `)?\$.*)`", re.DOTALL)


def decode(data: bytes | msgspec.Raw, type_: Any = Any) -> Any:
    """Return the value of the declared type; `Any`, `object` and no annotation (`Parameter.empty`) give plain JSON.

    Types are strict (no "5" for an int), except where a pydantic model is lenient itself; unknown fields are ignored,
    except where the type forbids them. Raises DecodeError with path, expected and found; TypeNotCarried when the type
    itself cannot be read. A retry never helps.
    """
    reader = _reader_of(type_)
    try:
        return reader(data)
    except (msgspec.MsgspecError, pydantic.ValidationError, Mismatch) as error:
        raise _decode_error(error, type_) from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"cannot decode: this is no UTF-8: {error}") from error
    except RecursionError:
        raise DecodeError("cannot decode: the text is nested too deep") from None


def check_type(type_: Any) -> None:
    """Raise TypeNotCarried if no value could be read as the declared type."""
    _reader_of(type_)


def _decode_error(error: Exception, type_: Any) -> DecodeError:
    path, text = _place(error)
    where = f" at {path}" if path != "$" else ""
    return DecodeError(f"cannot decode as {type_name(type_)}{where}: {text}", path=path)


def _place(error: Exception) -> tuple[str, str]:
    """Return path and text; inside a hook's error stands the rest of the path."""
    if isinstance(error, pydantic.ValidationError):
        loc, text = first_fault(error)
        return "$" + join(loc), text
    found = _AT.fullmatch(str(error))
    path, text = (found["path"].replace("key` in `", ""), found["text"]) if found else ("$", str(error))
    inner = error if isinstance(error, Mismatch) else error.__cause__
    return (path + inner.trail, inner.text) if isinstance(inner, Mismatch) else (path, text)


def _reader_of(type_: Any) -> _Reader:
    try:
        return _cached_reader(type_)
    except TypeError as error:
        if isinstance(error, TypeNotCarried) or "unhashable" not in str(error):
            raise
        return _new_reader(type_)


def _new_reader(type_: Any) -> _Reader:
    if type_ is Any or type_ is object or type_ is Parameter.empty:
        return _plain
    _check_parts(type_)
    if is_model(type_):
        return _model_reader(type_)
    try:
        return msgspec.json.Decoder(type_, dec_hook=restore).decode
    except (TypeError, NotImplementedError, NameError, AttributeError) as error:
        return _adapter_reader(type_, error)


_cached_reader = lru_cache(maxsize=4096)(_new_reader)
_plain = msgspec.json.Decoder().decode


def _check_parts(type_: Any) -> None:
    found = survey(type_)
    if found.unknown:
        names = ", ".join(map(type_name, found.unknown))
        raise not_carried(type_, f"nothing is known about {names}; use a model, dataclass, Struct or TypedDict")
    if found.faults:
        raise not_carried(type_, found.faults[0])
    for model in found.models:
        if not model.__pydantic_complete__ and model.model_rebuild(raise_errors=False) is not True:
            raise not_carried(type_, f"an annotation of {type_name(model)} does not resolve; call its model_rebuild()")
        if (refusal := plan_of(model).refusal) is not None:
            raise not_carried(type_, f"{type_name(model)} is not carried: {refusal}")


def _model_reader(cls: type[BaseModel]) -> _Reader:
    if plan_of(cls).foreign:
        return lambda data: restore_model(cls, _plain(data))
    read = cls.__pydantic_validator__.validate_json
    return lambda data: read(bytes(data))


def _adapter_reader(type_: Any, error: Exception) -> _Reader:
    """Read by pydantic what msgspec cannot, if that is safe: unions whose members JSON tells apart."""
    if survey(type_).foreign:
        raise not_carried(type_, str(error)) from error
    if (reason := ambiguity(type_)) is not None:
        raise not_carried(type_, f"{reason}; tell them apart by a Literal field or wrap them") from error
    try:
        read = pydantic.TypeAdapter(type_).validator.validate_json
    except pydantic.errors.PydanticUserError as cause:
        raise not_carried(type_, f"{error}; {cause.message}") from cause
    return lambda data: read(bytes(data))


def restore(type_: type, value: Any) -> Any:
    """Make an instance of a type that msgspec does not know, from plain JSON values: the hook for msgspec."""
    if issubclass(type_, BaseModel):
        return restore_model(type_, value)
    if type_ is object:
        return value
    if issubclass(type_, (PurePath, *ADDRESSES)):
        return _from_text(type_, value)
    raise not_carried(type_, "nothing is known about it")


def _from_text(type_: type, value: Any) -> Any:
    if not isinstance(value, str):
        raise Mismatch(f"Expected `{type_name(type_)}` as a string, got `{type_name(type(value))}`")
    try:
        return type_(value)
    except ValueError as error:
        raise Mismatch(f"Expected `{type_name(type_)}`, got {value!r:.80}") from error


def restore_model(cls: type[BaseModel], value: Any) -> BaseModel:
    """Make a pydantic model from plain JSON values. Raises Mismatch with the path below the model."""
    plan = plan_of(cls)
    try:
        if not plan.foreign:
            return cls.__pydantic_validator__.validate_json(msgspec.json.encode(value))  # type: ignore[no-any-return]
        if plan.root:
            return cls.model_validate(_ready(plan.fields[0], value, ""))
        if isinstance(value, dict):
            value = value | {
                field.key: _ready(field, value[field.key], step(field.name))
                for field in plan.fields
                if field.key in value
            }
        return cls.model_validate(value)
    except pydantic.ValidationError as error:
        loc, text = first_fault(error)
        raise Mismatch(text, join(loc)) from error


def _ready(field: FieldPlan, value: Any, trail: str) -> Any:
    """Return bytes and Structs made ready by our rules; the rest is left to pydantic unless the field is strict."""
    if field.custom or not (field.foreign or field.strict):
        return value
    try:
        return msgspec.convert(value, field.annotation, dec_hook=restore, str_keys=True)
    except (msgspec.ValidationError, Mismatch) as error:
        if not field.foreign:
            return value
        path, text = _place(error)
        raise Mismatch(text, trail + path.removeprefix("$")) from error
    except TypeError:
        return value
