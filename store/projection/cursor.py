"""Cursors of pages: opaque text that names the last row seen, so that rows which come meanwhile move nothing."""

from __future__ import annotations

import base64
import binascii
import hashlib

import msgspec

from ...topics.errors import InvalidInput

_MAX_TEXT = 1024


class _Place(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    query: str
    created: int
    id: str


_decode = msgspec.json.Decoder(_Place).decode


def query_digest(*parts: object) -> str:
    """A short name of a query, so that its cursors are not taken for those of another."""
    return hashlib.blake2b(repr(parts).encode("utf-8", "backslashreplace"), digest_size=6).hexdigest()


def write_cursor(query: str, created: int, row: str) -> str:
    """The cursor behind the row with creation time `created` (microseconds) and id `row`."""
    raw = msgspec.json.encode(_Place(query, created, row))
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def read_cursor(query: str, text: str) -> tuple[int, str]:
    """Where a page goes on. Raises InvalidInput when the text is no cursor of this query."""
    try:
        if len(text) > _MAX_TEXT:
            raise ValueError("too long")
        raw = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        place = _decode(raw)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise InvalidInput(f"cursor {text[:40]!r} cannot be read: pass the one of the last page unchanged") from error
    if place.query != query:
        raise InvalidInput(f"cursor {text[:40]!r} belongs to another query: start again without a cursor")
    if not -(2**63) <= place.created < 2**63:
        raise InvalidInput(f"cursor {text[:40]!r} cannot be read: pass the one of the last page unchanged")
    return place.created, place.id
