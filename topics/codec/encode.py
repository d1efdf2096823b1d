"""User values into JSON text, and JSON text into its canonical form."""

from __future__ import annotations

from typing import Any

import msgspec

from .errors import DecodeError
from .lower import lower
from .scan import scan

_write = msgspec.json.Encoder().encode
_write_sorted = msgspec.json.Encoder(order="sorted").encode


def encode(value: Any) -> bytes:
    """Return the value as JSON in UTF-8, in the forms that docs/types.md lists.

    Raises EncodeError with the path to whatever is not carried; a retry never helps. Nothing is changed, left out or
    replaced by null on the way. The bytes are the same in every process: sets are written in a fixed order.
    """
    if scan(value):
        try:
            return _write(value)
        except (TypeError, ValueError, RecursionError, OverflowError):
            pass  # `lower` finds the place and says it better
    return _write(lower(value))


def canonical(data: bytes | msgspec.Raw) -> bytes:
    """Return the same JSON value with sorted keys and without spaces, for fingerprints.

    Texts that differ in key order, spaces or escapes give the same bytes. 1 and 1.0 stay two values; of a key that
    occurs twice the last one counts. Raises DecodeError when it is no JSON.
    """
    try:
        return _write_sorted(msgspec.json.decode(data))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"this is no JSON: {error}") from error
