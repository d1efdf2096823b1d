"""Versions of an agent, and the one subject token that names an agent in one of them."""

from __future__ import annotations

import re

from .errors import InvalidSubject

_VERSION = re.compile(r"[^\s*>/\\@\x00-\x20\x7f\ud800-\udfff]{1,64}\Z")
_MARK = "@"


def require_version(text: str) -> str:
    """`text` as the version of an agent, or empty for none. Raises InvalidSubject."""
    if text and not _VERSION.match(text):
        raise InvalidSubject(
            f"version {text[:80]!r} cannot be part of a subject: use 1 to 64 characters without spaces, '*', '>', "
            "'/', '\\' and '@'",
            kind="version",
        )
    return text


def versioned(agent: str, version: str) -> str:
    """`{agent}@{version}` as one subject token: in a version each "." is written as "@", which no name can hold."""
    return f"{agent}{_MARK}{version.replace('.', _MARK)}"


def split(token: str) -> tuple[str, str | None]:
    """The agent and the version in a token; None for a token that names an agent alone. `@{topic}` is given whole."""
    if token.startswith(_MARK):
        return token, None
    agent, mark, version = token.partition(_MARK)
    return agent, version.replace(_MARK, ".") if mark else None
