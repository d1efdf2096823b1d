"""Values held against JSON Schemas: what is wrong and where, in bounded time, with nothing fetched."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from callboard.topics.codec import MOST_BYTES, faults, json_schema, schema_fault


def found(schema: Any, value: Any) -> list[str]:
    return faults(json.dumps(schema).encode(), json.dumps(value).encode())


def test_faults_name_their_place() -> None:
    schema = {"type": "object", "properties": {"a": {"items": {"type": "integer"}}}, "required": ["b"]}
    assert found(schema, {"a": [1, 2], "b": None}) == []
    first, second = sorted(found(schema, {"a": [1, "x"]}))
    assert '"b" is a required property' in first
    assert second.startswith(".a[1]: ")


def test_only_some_faults_are_told() -> None:
    assert len(found({"items": {"type": "integer"}}, ["x"] * 1000)) == 5


def test_schemas_of_declared_types_are_schemas() -> None:
    for type_ in (int, list[str], dict[str, float], bool | None):
        assert schema_fault(json.dumps(json_schema(type_)).encode()) is None
    assert found(json_schema(int), 7) == []
    assert found(json_schema(int), "7")


@pytest.mark.parametrize(
    "schema", [{"type": "number of things"}, {"$ref": "https://example.org/schema"}, {"$ref": "#/$defs/none"}, [1]]
)
def test_what_is_no_schema(schema: Any) -> None:
    assert schema_fault(json.dumps(schema).encode())
    with pytest.raises(ValueError, match="no JSON Schema"):
        found(schema, 1)


def test_a_pattern_that_would_search_for_ever_is_stopped() -> None:
    began = time.perf_counter()
    assert found({"type": "string", "pattern": r"^(a|a)*(?=b)\1c$"}, "a" * 60 + "b")
    assert time.perf_counter() - began < 2


def test_large_values_and_what_is_no_json_are_refused() -> None:
    assert "bytes" in faults(b"{}", b'"' + b"x" * MOST_BYTES + b'"')[0]
    assert "JSON" in faults(b"{}", b"{")[0]
