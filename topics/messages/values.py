"""Values and errors as they travel, and how a body is written."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

VERSION = 1
"""Version of the wire format; a field `v` in a record that is greater is refused."""


class BlobRef(Struct, frozen=True):
    """A payload that lies in the object store because it is above the inline limit."""

    name: str
    size: int
    """Bytes."""
    bucket: str
    """Object-store bucket; any NATS client can read `name` there."""


class Payload(Struct, frozen=True, omit_defaults=True):
    """A user's value: its JSON inline, or a reference to it."""

    json: Raw | UnsetType = UNSET
    ref: BlobRef | None = None
    sealed: bool = False
    """Whether it is encrypted: a token stands in the place of the JSON, inline as a string."""


NOTHING = Payload(json=Raw(b"null"))


class ErrorInfo(Struct, frozen=True, omit_defaults=True):
    """Why something failed. `code` is stable, `type` the exception's qualified name."""

    code: str
    message: str
    type: str | None = None
    retryable: bool = False
    traceback: str | None = None
    details: dict[str, Any] | None = None


encode = msgspec.json.Encoder().encode
