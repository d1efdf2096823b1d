"""JSON Schema of declared types, as people and tools see them: input forms, bytes as base64."""

from __future__ import annotations

from inspect import Parameter
from typing import Any

import msgspec
from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

_REF = "#/$defs/{model}"
_BYTES: dict[str, Any] = {"type": "string", "contentEncoding": "base64"}


def json_schema(type_: Any) -> dict[str, Any] | None:
    """Return the JSON Schema (2020-12) of what a declared type accepts; None for plain JSON or if none can be made."""
    if type_ is Any or type_ is object or type_ is Parameter.empty:
        return None
    defs: dict[str, Any] = {}
    try:
        schema = _of(type_, defs)
    except (TypeError, NotImplementedError, NameError, PydanticInvalidForJsonSchema, PydanticUserError):
        return None
    return schema | {"$defs": dict(sorted(defs.items()))} if defs else schema


def _of(type_: Any, defs: dict[str, Any]) -> dict[str, Any]:
    if isinstance(type_, type) and issubclass(type_, BaseModel):
        return _lifted(type_.model_json_schema(ref_template=_REF, schema_generator=_Generator), defs)
    try:
        return _lifted(msgspec.json.schema(type_, schema_hook=lambda below: _hook(below, defs)), defs)
    except (TypeError, NotImplementedError):
        adapter = TypeAdapter(type_)
        return _lifted(adapter.json_schema(ref_template=_REF, schema_generator=_Generator), defs)


def _hook(type_: type, defs: dict[str, Any]) -> dict[str, Any]:
    if issubclass(type_, BaseModel):
        return _of(type_, defs)
    return {"type": "string"} if type_ is not object else {}


def _lifted(schema: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """Move the definitions to the one root; of two types with one name the later gets a number behind it."""
    own: dict[str, Any] = schema.pop("$defs", {})
    renamed: dict[str, str] = {}
    for name, body in own.items():
        free, number = name, 2
        while free in defs and defs[free] != body:
            free, number = f"{name}_{number}", number + 1
        if free != name:
            renamed[f"#/$defs/{name}"] = f"#/$defs/{free}"
        defs[free] = body
    if renamed:
        for name in own:
            defs[renamed.get(f"#/$defs/{name}", name).removeprefix("#/$defs/")] = _replaced(own[name], renamed)
        return dict(_replaced(schema, renamed))
    return schema


def _replaced(node: Any, renamed: dict[str, str]) -> Any:
    if isinstance(node, dict):
        return {
            key: renamed.get(item, item) if key == "$ref" and isinstance(item, str) else _replaced(item, renamed)
            for key, item in node.items()
        }
    return [_replaced(item, renamed) for item in node] if isinstance(node, list) else node


class _Generator(GenerateJsonSchema):
    """pydantic's generator with our form of bytes, and with Structs, which it cannot describe itself."""

    def bytes_schema(self, schema: Any) -> JsonSchemaValue:
        """Describe base64 text."""
        lengths = ("min_length", "minLength"), ("max_length", "maxLength")
        # Lengths count bytes; in base64 each three take four characters.
        limits = {key: -(-int(schema[name]) // 3) * 4 for name, key in lengths if name in schema}
        return _BYTES | limits

    def is_instance_schema(self, schema: Any) -> JsonSchemaValue:
        """Describe a Struct in place."""
        cls = schema["cls"]
        if isinstance(cls, type) and issubclass(cls, msgspec.Struct):
            return _inlined(msgspec.json.schema(cls, schema_hook=lambda below: _hook(below, {})))
        return super().is_instance_schema(schema)


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Put definitions in place of their references; what refers to itself becomes an open object."""
    defs: dict[str, Any] = schema.pop("$defs", {})

    def put(node: Any, open_: frozenset[str]) -> Any:
        if isinstance(node, dict):
            name = str(node.get("$ref", "")).removeprefix("#/$defs/")
            if name in defs:
                return {"type": "object"} if name in open_ else put(defs[name], open_ | {name})
            return {key: put(item, open_) for key, item in node.items()}
        return [put(item, open_) for item in node] if isinstance(node, list) else node

    return dict(put(schema, frozenset()))
