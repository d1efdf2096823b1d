"""What the codec raises: a value, a text or a type that is not carried, each with the place where that shows."""

from __future__ import annotations

from typing import ClassVar

from ..errors import CallboardError


class EncodeError(CallboardError):
    """A value cannot be written. `path` says where in it (`$.findings[3].owner`), `type_name` what stands there."""

    code: ClassVar[str] = "encode_error"

    def __init__(self, message: str, *, path: str, type_name: str) -> None:
        super().__init__(message, path=path, type_name=type_name)
        self.path = path
        self.type_name = type_name


class DecodeError(CallboardError):
    """A text is no JSON, or not of the declared type. `path` says where; the message what was expected and found."""

    code: ClassVar[str] = "decode_error"

    def __init__(self, message: str, *, path: str = "$") -> None:
        super().__init__(message, path=path)
        self.path = path


class TypeNotCarried(CallboardError, TypeError):
    """A declared type can never be read back, or an annotation does not resolve. `type_name` is the type's name.

    Raised where the type is declared (a handler is registered) or first used; no value is looked at.
    """

    code: ClassVar[str] = "type_not_carried"

    def __init__(self, message: str, *, type_name: str) -> None:
        super().__init__(message, type_name=type_name)
        self.type_name = type_name


class Mismatch(ValueError):
    """Inside a decode hook: the value below is wrong. The decoder joins `trail` to the path that it knows itself."""

    def __init__(self, text: str, trail: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.trail = trail
