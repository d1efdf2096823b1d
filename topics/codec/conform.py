"""Whether JSON is what a JSON Schema asks for, in bounded time: the schema and the value may come from anybody.

Patterns are matched with a bound on backtracking, references that would have to be fetched are refused, and values
above a size are not looked at."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from .path import join

MOST_BYTES = 1 << 20
"""Larger values are not checked, and not taken."""
_MOST_FAULTS = 5
_BACKTRACKS = 100_000
_FAULT_CHARS = 200


def schema_fault(schema: bytes) -> str | None:
    """Why the text is no JSON Schema that a value can be checked with; None when it is one."""
    try:
        _validator(schema)
    except (ValueError, RecursionError) as error:
        return str(error).partition("\n")[0][:_FAULT_CHARS]
    return None


def faults(schema: bytes, value: bytes) -> list[str]:
    """What is wrong with a value, given as JSON, at most five things; empty when it conforms. Raises ValueError for a
    schema that is none."""
    if len(value) > MOST_BYTES:
        return [f"it has {len(value)} bytes; at most {MOST_BYTES} are checked"]
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return [f"it is not JSON: {error}"]
    told = []
    for fault in _validator(schema).iter_errors(found):
        told.append(f"{_where(fault.instance_path)}{fault.message[:_FAULT_CHARS]}")
        if len(told) == _MOST_FAULTS:
            break
    return told


def _where(path: list[str | int]) -> str:
    return f"{join(path)}: " if path else ""


def _nothing(address: str) -> Any:
    """A schema stands for itself: what it refers to elsewhere is not fetched."""
    raise ValueError(f"{address} is not fetched: put it into the schema")


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Any:
    from jsonschema_rs import Draft202012Validator, FancyRegexOptions, ValidationError

    try:
        parsed = msgspec.json.decode(schema)
        limit = FancyRegexOptions(backtrack_limit=_BACKTRACKS)
        return Draft202012Validator(parsed, retriever=_nothing, pattern_options=limit)
    except (msgspec.DecodeError, ValidationError, TypeError) as error:
        raise ValueError(f"this is no JSON Schema: {str(error).partition(chr(10))[0]}") from error
