"""How a class of pydantic models is written and read: what pydantic does itself, and what the codec does for it.

pydantic's own JSON mode loses things without a word: NaN becomes null, bytes become text or fail, Structs are unknown.
So the codec writes a model field by field under its own rules, and leaves to pydantic the fields and models that
have a serializer of their own. Reading is pydantic's (validators, strictness, aliases, discriminated unions); only
what pydantic would read by another rule, bytes and Structs, is made ready before.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, get_args, get_origin

import msgspec
import pydantic
from pydantic import AliasChoices, BaseModel, RootModel
from pydantic.fields import FieldInfo
from pydantic.types import EncodedBytes, EncodedStr

from .survey import bare, class_name, is_model, parts, survey

_SERIALIZERS = (pydantic.PlainSerializer, pydantic.WrapSerializer, EncodedBytes, EncodedStr, pydantic.Json)
_SECRETS = (pydantic.SecretStr, pydantic.SecretBytes, pydantic.Secret)


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """One field: its name, its key on the wire, who writes it, and what the codec does before pydantic reads it.

    `foreign` fields hold what pydantic reads by other rules; `strict` ones take no JSON text for, say, a datetime.
    """

    name: str
    key: str
    annotation: Any
    custom: bool
    foreign: bool
    strict: bool


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """All fields of one class; `whole` models have a serializer of their own; `refusal` says why one is not carried."""

    fields: tuple[FieldPlan, ...]
    whole: bool
    root: bool
    foreign: bool
    refusal: str | None


@lru_cache(maxsize=4096)
def plan_of(cls: type[BaseModel]) -> ModelPlan:
    """Return the plan of a class, made once."""
    decorated = cls.__pydantic_decorators__
    whole = bool(decorated.model_serializers) or bool(cls.model_config.get("json_encoders"))
    serialized = {name for entry in decorated.field_serializers.values() for name in entry.info.fields}
    infos = {name: info for name, info in cls.model_fields.items() if not info.exclude}
    explicit = {
        name for name, info in infos.items() if name in serialized or "*" in serialized or _serializes(info, set())
    }
    fields = tuple(_field_plan(cls, name, info, name in explicit) for name, info in infos.items())
    return ModelPlan(
        fields=fields,
        whole=whole,
        root=issubclass(cls, RootModel),
        foreign=not whole and any(field.foreign for field in fields),
        refusal=None if whole else _refusal(fields, explicit),
    )


def _field_plan(cls: type[BaseModel], name: str, info: FieldInfo, explicit: bool) -> FieldPlan:
    inside = survey(info.annotation, inside_model=True)
    custom = explicit or bool(survey(info.annotation, inside_model=True, through_models=False).custom)
    strict = bool(cls.model_config.get("strict")) or any(isinstance(entry, pydantic.Strict) for entry in info.metadata)
    return FieldPlan(
        name=name,
        key=_wire_key(cls, name, info),
        annotation=info.annotation,
        custom=custom,
        foreign=inside.foreign and not custom,
        strict=strict,
    )


def _wire_key(cls: type[BaseModel], name: str, info: FieldInfo) -> str:
    """Return the name under which the model itself reads the field."""
    alias = info.validation_alias
    if cls.model_config.get("validate_by_alias") is False or alias is None:
        return name
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    for choice in choices:
        if isinstance(choice, str):
            return choice
        if len(choice.path) == 1:
            return str(choice.path[0])
    return ""


def _refusal(fields: tuple[FieldPlan, ...], explicit: set[str]) -> str | None:
    for field in fields:
        if not field.key:
            return f"its field {field.name} is read through an alias path; give it a plain alias"
        if field.name not in explicit and _holds_secret(field.annotation, set()):
            return f"its field {field.name} is a secret, which pydantic writes masked; declare str or exclude it"
        if field.foreign and (reason := _unreadable(field.annotation)):
            return f"its field {field.name} holds bytes or a Struct in a form that cannot be read back: {reason}"
    return None


def _unreadable(annotation: Any) -> str | None:
    """Say why msgspec cannot read the annotation; models below answer for themselves."""
    try:
        msgspec.json.Decoder(annotation, dec_hook=lambda _type, value: value)
    except (TypeError, NotImplementedError, NameError) as error:
        return str(error)
    return None


def _serializes(part: FieldInfo | Any, seen: set[int]) -> bool:
    """Say whether an annotation carries a pydantic serializer, at the top or inside; models below are left out."""
    if isinstance(part, FieldInfo):
        return any(map(_is_serializer, part.metadata)) or _serializes(part.annotation, seen)
    if id(part) in seen or is_model(part):
        return False
    seen.add(id(part))
    if get_origin(part) is typing.Annotated:
        inner, *metadata = get_args(part)
        return any(map(_is_serializer, metadata)) or _serializes(inner, seen)
    return any(_serializes(child, seen) for child in parts(part, []))


def _is_serializer(entry: Any) -> bool:
    return isinstance(entry, _SERIALIZERS) or entry is pydantic.Json


def _holds_secret(part: Any, seen: set[int]) -> bool:
    part = bare(part)
    if id(part) in seen or is_model(part):
        return False
    seen.add(id(part))
    origin: Any = get_origin(part) or part
    if isinstance(origin, type) and issubclass(origin, _SECRETS):
        return True
    return any(_holds_secret(child, seen) for child in parts(part, []))


def written_by_pydantic(model: BaseModel, field: FieldPlan | None = None) -> Any:
    """Return what pydantic's JSON mode makes of the whole model, or of one field. Raises what its serializers raise."""
    if field is None:
        return model.model_dump(mode="json", by_alias=True, round_trip=True, warnings="error")
    dumped = model.model_dump(mode="json", include={field.name}, by_alias=False, round_trip=True, warnings="error")
    return dumped[field.name]


def first_fault(error: pydantic.ValidationError) -> tuple[tuple[str | int, ...], str]:
    """Return where the first thing wrong is and what was expected and found, with the number of further ones."""
    faults = error.errors(include_url=False, include_context=False)
    first = faults[0]
    found = first["input"]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    if first["type"] == "json_invalid":
        return first["loc"], first["msg"]
    if first["type"] == "missing":
        return first["loc"], f"the field is missing{more}"
    return first["loc"], f"{first['msg']}, got {_shown(found)}{more}"


def _shown(found: Any) -> str:
    text = repr(found) if isinstance(found, str | int | float | bool | None) else ""
    kind = class_name(type(found))
    return f"`{kind}` {text}" if text and len(text) <= 60 else f"`{kind}`"
