"""What a look finds."""

from __future__ import annotations

from typing import Literal

import msgspec


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was looked at. `note` is worth knowing; `problem` needs a person."""

    name: str
    level: Literal["ok", "note", "problem"]
    text: str
    remedy: str | None = None


def ok(name: str, text: str) -> Check:
    """All is well."""
    return Check(name=name, level="ok", text=text)


def note(name: str, text: str, remedy: str | None = None) -> Check:
    """Worth knowing."""
    return Check(name=name, level="note", text=text, remedy=remedy)


def problem(name: str, text: str, remedy: str) -> Check:
    """Needs a person; `remedy` says what to do."""
    return Check(name=name, level="problem", text=text, remedy=remedy)
