"""User values into JSON and back as the declared type; docs/types.md is the table of what is carried.

`scan` is the fast question whether msgspec alone may write a value, `lower` the careful walk that refuses with a path;
`models` says how pydantic models are written and read; `survey` and `unions` judge declared types; `json_text` says why
a text is not JSON; `encode`, `decode`, `schema` and `handler` are what callers use.
"""

from .conform import MOST_BYTES, faults, schema_fault
from .decode import check_type, decode
from .encode import canonical, encode
from .errors import DecodeError, EncodeError, TypeNotCarried
from .handler import handler_types
from .json_text import why_not_json
from .schema import json_schema
from .survey import type_name

__all__ = [
    "MOST_BYTES",
    "DecodeError",
    "EncodeError",
    "TypeNotCarried",
    "canonical",
    "check_type",
    "decode",
    "encode",
    "faults",
    "handler_types",
    "json_schema",
    "schema_fault",
    "type_name",
    "why_not_json",
]
